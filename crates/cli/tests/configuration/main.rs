//! The result of a check with the server's own probes: the check refuses each configuration that a start refuses.

mod starts;

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use touchline_config::{ConfigOutcome, Finding, Severity, Sources};
use touchline_server::PROBES;

fn read(sources: &Sources) -> ConfigOutcome {
    touchline_config::read(sources, &PROBES)
}

fn read_to_serve(sources: &Sources) -> ConfigOutcome {
    touchline_config::read_to_serve(sources, &PROBES)
}

/// A configuration file that is removed when its test ends.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let unique = format!("touchline-{}-{:?}-{name}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(unique);
        std::fs::write(&path, text).expect("the temporary directory is writable");
        File(path)
    }

    fn read(&self, variables: &[(&str, &str)]) -> ConfigOutcome {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        read(&Sources { file: Some(self.0.clone()), variables, ..Sources::default() })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The findings of a reading. The directory and the unique part of the file's name are removed.
fn texts(reading: &ConfigOutcome) -> Vec<String> {
    let shown = |finding: &Finding| {
        let text = finding.to_string();
        match (text.find("touchline-"), text.find("-c.")) {
            (Some(from), Some(to)) if from < to => format!("{:?} {}", finding.severity, &text[to + 1..]),
            _ => format!("{:?} {text}", finding.severity),
        }
    };
    reading.findings.iter().filter(|finding| finding.severity != Severity::Note).map(shown).collect()
}

fn toml(text: &str) -> ConfigOutcome {
    File::new("c.toml", text).read(&[])
}

#[test]
fn a_public_key_that_no_token_is_verified_by_is_refused_at_the_check() {
    let p256 = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE34cZ6TzXLX5MgkZp91zngPwQyqa9QHX539roDMEDtTQ8kaa5Dayd+QoilIEk4vsr8NE\
                OifHRPESGPIl3ppZw2Q==";
    let p521 = "MIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBK5Y0t6qGWD8mzGA/euyc05siBSfCq2tAYSrNV9c0MwPAQbbbJHAYdP1R6uX4vy2rFOy\
                YhYa51jMHgpTK3amO+zEBX8QE8FKlVOo+ik/Cnomskl4OJRO9HZR2UZItjcabBa5b0dddW0koW/iaBF9dTbhTBAAa8HaAhjvpIK4bHi\
                ndkm4=";
    let secp256k1 = "MFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAE2wPM8dV8YfCX6pYT0+1lsfwQOCmG5jM0WYS0lxkOob8Bv8BRYVen5/w4BrkUWqcdDf\
                     0bi6eafueeHROSrZeu0Q==";
    for (key, is_good) in [(p256, true), (p521, true), (secp256k1, false)] {
        let pem = format!("-----BEGIN PUBLIC KEY-----\\n{key}\\n-----END PUBLIC KEY-----");
        let reading = toml(&format!("client.token.ecdsa_public_key = \"{pem}\""));
        assert_eq!(reading.configuration.is_some(), is_good, "{:?}", texts(&reading));
    }
}

#[test]
fn keys_of_issuers_that_could_not_be_had_are_refused_at_the_check() {
    let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
               -----END PUBLIC KEY-----\n";
    let file = File::new("key.pem", pem);
    let provider = |endpoint: &str| {
        format!(
            "jwks = {{enabled = true, providers = [{{name = \"kc\", enabled = true, issuer = \"i\", \
             endpoint = \"{endpoint}\"}}]}}"
        )
    };
    for (text, expected) in [
        (format!("eddsa_public_key = {pem:?}"), None),
        (format!("eddsa_public_key = {:?}", STANDARD.encode(pem)), None),
        (format!("eddsa_public_key = {:?}", file.0.display().to_string()), None),
        (format!("eddsa_public_key_file = {:?}", file.0.display().to_string()), None),
        (
            "eddsa_public_key = \"/no/such.pem\"".to_owned(),
            Some("client.token.eddsa_public_key: /no/such.pem can't be read: No such file"),
        ),
        (format!("rsa_public_key = {pem:?}"), Some("client.token.rsa_public_key: expected a public key of RSA")),
        ("jwks_public_endpoint = \"https://id.example/keys\"".to_owned(), None),
        ("jwks_public_endpoint = \"http://127.0.0.1:8080/keys\"".to_owned(), None),
        (
            "jwks_public_endpoint = \"http://id.example/keys\"".to_owned(),
            Some("client.token.jwks_public_endpoint: must be https://: somebody on the way could replace the keys"),
        ),
        (
            "jwks_public_endpoint = \"http://id.example/keys\"\ninsecure_skip_jwks_endpoint_safety_check = true"
                .to_owned(),
            None,
        ),
        (
            "jwks_public_endpoint = \"https://id.example/{{realm}}/keys\"\nissuer_regex = \"(?P<realm>.*)\"".to_owned(),
            Some("client.token.jwks_public_endpoint: a group of the address is not in issuer_regex"),
        ),
        (provider("https://id.example/keys"), None),
        (provider("http://id.example/keys"), Some("client.token.jwks.providers[kc].endpoint: must be https://")),
    ] {
        let reading = toml(&format!("[client.token]\n{text}"));
        let found = texts(&reading);
        let is_told = expected.is_none_or(|expected| found.iter().any(|found| found.contains(expected)));
        assert!(reading.configuration.is_some() == expected.is_none() && is_told, "{text}: {found:?}");
    }
}

#[test]
fn a_key_in_the_configuration_is_never_shown() {
    let file = File::new(
        "c.toml",
        "[http_server.tls]\nenabled = true\ncert_pem = \"c.pem\"\nkey_pem = \"\"\"-----BEGIN PRIVATE KEY-----\n\
         MIIEtops3cret\n-----END PRIVATE KEY-----\"\"\"",
    );
    let reading = read_to_serve(&Sources { file: Some(file.0.clone()), ..Sources::default() });
    let found = texts(&reading);
    assert!(found.iter().all(|text| !text.contains("tops3cret")), "{found:?}");
    let settings =
        file.read(&[]).configuration.map(|configuration| format!("{:?}", configuration.settings)).unwrap_or_default();
    assert!(!settings.is_empty() && !settings.contains("tops3cret"));
}

#[test]
fn what_a_server_could_not_use_is_refused() {
    let file = |name: &str, text: &str| File::new(name, text);
    let (certificate, key) = (file("c.pem", "no certificate"), file("k.pem", "no key"));
    let secrets = "http_api.key = \"a-key-of-twenty-bytes\"\n\
                   client.token.hmac_secret_key = \"a secret of this test, long enough for it\"\n";
    let durable = "[[channel.namespaces]]\nname = \"a1\"\ndurable = true\nhistory_size = 1\nhistory_ttl = \"1m\"";
    let tls = |certificate: &str, key: &str| {
        format!("[http_server.tls]\nenabled = true\ncert_pem = {certificate:?}\nkey_pem = {key:?}")
    };
    for (text, expected) in [
        (tls("/no/such.pem", "/no/such.key"), "c.toml:5:1: http_server.tls.cert_pem: /no/such.pem can't be read"),
        (tls(&certificate.0.to_string_lossy(), &key.0.to_string_lossy()), "-c.pem holds no certificate in PEM"),
        (
            format!("store.primary.url = \"mysql://db\"\n{durable}"),
            "c.toml:3:15: store.primary.url: expected sqlite:PATH or postgres://",
        ),
        (format!("store.primary.tls_ca = \"/no/ca.pem\"\n{durable}"), "store.primary.tls_ca: /no/ca.pem can't be read"),
        (
            "[cluster]\nengine = \"nats\"\nnats_tls_ca = \"/no/ca.pem\"".to_owned(),
            "cluster.nats_tls_ca: /no/ca.pem can't be read",
        ),
    ] {
        let file = File::new("c.toml", &format!("{secrets}{text}"));
        let found = texts(&read_to_serve(&Sources { file: Some(file.0.clone()), ..Sources::default() }));
        assert!(found.iter().any(|found| found.starts_with("Error") && found.contains(expected)), "{text}: {found:?}");
    }
}
