//! Secrets in separate files, and in systemd's directory of credentials.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A directory whose files only this account can read. It is removed when the test ends.
struct Directory(PathBuf);

impl Directory {
    fn new(files: &[(&str, &str)]) -> Self {
        let unique = format!("touchline-{}-{:?}-secrets", std::process::id(), std::thread::current().id());
        let directory = Directory(std::env::temp_dir().join(unique));
        std::fs::create_dir_all(&directory.0).expect("the temporary directory is writable");
        for (name, text) in files {
            let path = directory.0.join(name);
            std::fs::write(&path, text).expect("it is writable");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the test owns it");
        }
        directory
    }

    /// Makes a named pipe and returns its path.
    fn pipe(&self) -> String {
        let path = self.path("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().expect("the system has mkfifo");
        assert!(made.success());
        path
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SECRET: &str = "a secret that is long enough for all";

#[test]
fn a_secret_may_be_in_a_file_of_its_own() {
    let directory = Directory::new(&[
        ("token", &format!("{SECRET}\n")),
        ("api", &format!("{SECRET}\r\n")),
        ("named", "the key of news, 1234"),
        ("headers", r#"{"Authorization": "Bearer x"}"#),
        ("key.pem", "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"),
    ]);
    let text = format!(
        "client.token.hmac_secret_key_file = {:?}\nrpc.proxy.http.static_headers_file = {:?}\n\
         http_server.tls.key_pem_file = {:?}\n[[http_api.keys]]\nname = \"news\"\nkey_file = {:?}\n",
        directory.path("token"),
        directory.path("headers"),
        directory.path("key.pem"),
        directory.path("named"),
    );
    let file = File::new("c.toml", &text);
    let reading = file.read(&[("TOUCHLINE_HTTP_API_KEY_FILE", &directory.path("api"))]);
    assert_eq!(texts(&reading), Vec::<String>::new());
    let settings = settings(reading);
    assert_eq!(settings.client.token.hmac_secret_key, SECRET, "the end of the line is not a part of the secret");
    assert_eq!(settings.http_api.key, SECRET);
    assert_eq!(settings.http_api.keys[0].options.key, "the key of news, 1234");
    assert_eq!(settings.rpc.proxy.http.static_headers.0["Authorization"], "Bearer x");
    assert_eq!(settings.http_server.tls.key_pem, directory.path("key.pem"), "the file is read again when it changes");
    let mut sources = Sources::default();
    sources.flags.keys.push(("http_api.key_file".to_owned(), directory.path("api")));
    assert_eq!(self::settings(read(&sources)).http_api.key, SECRET);
}

#[test]
fn a_file_of_a_secret_that_cannot_be_used_stops_the_start_and_is_not_shown() {
    let directory =
        Directory::new(&[("empty", "\n"), ("large", &"x".repeat(1_048_577)), ("good", SECRET), ("binary", "\u{0}")]);
    let too_large = "the file cannot be used: it has more than 1048576 bytes";
    for (value, expected) in [
        (format!("{:?}", directory.path("empty")), "the file cannot be used: it is empty"),
        (format!("{:?}", directory.path("large")), too_large),
        (format!("{:?}", directory.path("none")), "the file cannot be used: No such file"),
        (format!("{:?}", directory.0.display().to_string()), "the file cannot be used: it is not a regular file"),
        // The pipe has no writer, so a read of it would never end.
        (format!("{:?}", directory.pipe()), "the file cannot be used: it is not a regular file"),
        // A secret that was written where the path of its file belongs.
        ("\"tops3cret\"".to_owned(), "the file cannot be used: No such file"),
        ("7".to_owned(), "expected the path of a file, found a number"),
        (
            format!("{:?}\nhmac_secret_key = \"tops3cret\"", directory.path("good")),
            "client.token.hmac_secret_key is also set: keep one of them",
        ),
    ] {
        let found = texts(&toml(&format!("[client.token]\nhmac_secret_key_file = {value}")));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("Error c.toml:2:1: client.token.hmac_secret_key_file: "), "{found:?}");
        assert!(found[0].contains(expected) && !found[0].contains("tops3cret"), "{found:?}");
    }
    let unknown = texts(&toml("[client.token]\nhmac_secret_kei_file = \"x\"\naudience_file = \"x\""));
    assert!(unknown.len() == 2 && unknown.iter().all(|text| text.contains("unknown key")), "{unknown:?}");
    std::fs::set_permissions(directory.path("good"), std::fs::Permissions::from_mode(0o644)).expect("the test owns it");
    let open = texts(&toml(&format!("http_api.key_file = {:?}", directory.path("good"))));
    assert!(open.len() == 1 && open[0].contains("everybody on this machine can read the file"), "{open:?}");
    let public = texts(&toml(&format!("client.token.rsa_public_key_file = {:?}", directory.path("good"))));
    assert_eq!(public, Vec::<String>::new(), "a public key is not a secret");
}

#[test]
fn a_credential_is_the_value_of_the_key_that_it_is_called_by() {
    let directory = Directory::new(&[
        ("http_api.key", SECRET),
        ("http_api.keys.news.key", "the key of news, 1234"),
        ("client.token.jwks.providers.own.hmac_secret_key", SECRET),
        ("client.token.hmac_secret_kye", SECRET),
        ("of-another-service", "x"),
    ]);
    let text = "client.token.jwks = {enabled = true, providers = [{name = \"own\", enabled = true, issuer = \"i\"}]}\n\
                [[http_api.keys]]\nname = \"news\"\n";
    let file = File::new("c.toml", text);
    let credentials = directory.0.display().to_string();
    let reading = file.read(&[("CREDENTIALS_DIRECTORY", &credentials)]);
    assert_eq!(
        texts(&reading),
        ["Warning CREDENTIALS_DIRECTORY: client.token.hmac_secret_kye: no key for a secret has this name; \
          did you mean client.token.hmac_secret_key?"]
    );
    let settings = settings(reading);
    assert_eq!(
        (settings.http_api.key.as_str(), settings.http_api.keys[0].options.key.as_str()),
        (SECRET, "the key of news, 1234")
    );
    assert_eq!(settings.client.token.jwks.providers[0].options.hmac_secret_key, SECRET);
    for more in [
        ("TOUCHLINE_HTTP_API_KEY", "another key of the api"),
        ("TOUCHLINE_HTTP_API_KEY_FILE", directory.0.join("http_api.key").to_str().expect("text")),
    ] {
        let found = texts(&file.read(&[("CREDENTIALS_DIRECTORY", &credentials), more]));
        assert!(found.iter().any(|text| text.starts_with("Error") && text.contains("keep one of them")), "{found:?}");
    }
    let missing = texts(&file.read(&[("CREDENTIALS_DIRECTORY", "/no/such/directory")]));
    assert!(missing[0].contains("the directory of credentials cannot be read"), "{missing:?}");
    // Without the secret the node cannot fetch or verify keys, so the configuration is refused.
    assert!(file.read(&[]).configuration.is_none());
}
