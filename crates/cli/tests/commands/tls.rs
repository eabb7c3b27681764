//! The commands that are clients, against a server that uses TLS.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::{CONFIGURATION, Server, run, text, touchline, watching};

/// A certificate authority for this test, and a server whose certificate for `localhost` this authority has signed.
struct TlsServer {
    server: Server,
    authority: PathBuf,
}

impl TlsServer {
    fn start(name: &str) -> Self {
        let (authority_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "an authority of a test");
        let root = params.self_signed(&authority_key).expect("it signs itself");
        let issuer = Issuer::new(params, authority_key);
        let leaf = CertificateParams::new(["localhost".to_owned()]).expect("a name").signed_by(&key, &issuer);
        let file = std::env::temp_dir().join(format!("touchline-commands-{}-{name}.toml", std::process::id()));
        let (keys, namespaces) = CONFIGURATION.split_once("[[").expect("it has namespaces");
        let (cert, key) = (leaf.expect("it is signed").pem(), key.serialize_pem());
        let tls = format!("http_server.tls = {{ enabled = true, cert_pem = '''{cert}''', key_pem = '''{key}''' }}");
        std::fs::write(&file, format!("{keys}{tls}\n[[{namespaces}")).expect("it is writable");
        let authority = file.with_extension("pem");
        std::fs::write(&authority, root.pem()).expect("the temporary directory is writable");
        TlsServer { server: Server::start_with(file, 0), authority }
    }

    fn port(&self) -> &str {
        self.server.address.rsplit(':').next().expect("an address has a port")
    }

    fn url(&self, scheme: &str, host: &str) -> String {
        format!("{scheme}://{host}:{}", self.port())
    }

    fn ca(&self) -> String {
        self.authority.display().to_string()
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.authority);
    }
}

#[test]
fn a_publication_reaches_a_watcher_over_tls() {
    let tls = TlsServer::start("tls");
    let (path, ca) = (tls.server.path(), tls.ca());
    let token = text(&run(&["token", "--user", "42", "--config", &path]).stdout);
    let url = format!("{}/connection/websocket", tls.url("wss", "localhost"));
    let arguments = ["watch", "news:a", "--url", &url, "--token", token.trim(), "--ca", &ca, "--count", "1"];
    let mut watcher = watching(&mut touchline(&arguments));
    let api = tls.url("https", "localhost");
    let published = run(&["publish", "news:a", r#""by TLS""#, "--api", &api, "--config", &path, "--ca", &ca]);
    assert!(published.status.success(), "{}", text(&published.stderr));
    assert!(watcher.out.next("").contains(r#""data":"by TLS""#));
    assert!(watcher.wait().success());
}

#[test]
fn the_authorities_of_the_system_are_trusted() {
    let tls = TlsServer::start("system");
    let (api, path) = (tls.url("https", "localhost"), tls.server.path());
    let mut publish = touchline(&["publish", "news:a", "1", "--api", &api, "--config", &path]);
    let published = publish.env("SSL_CERT_FILE", &tls.authority).output().expect("the binary runs");
    assert!(published.status.success(), "{}", text(&published.stderr));
}

#[test]
fn a_certificate_that_is_not_trusted_is_final_and_names_the_host() {
    let tls = TlsServer::start("untrusted");
    let (path, ca, port) = (tls.server.path(), tls.ca(), tls.port().to_owned());
    let (by_name, by_address) = (tls.url("https", "localhost"), tls.url("https", "127.0.0.1"));
    let plain = tls.url("http", "localhost");
    let watched = tls.url("wss", "localhost");
    let in_clear = tls.url("ws", "localhost");
    let hint = format!("does it use TLS? Then use wss://localhost:{port}");
    let unknown =
        format!("the certificate of localhost:{port} is not trusted, because this machine does not know its authority");
    let other = format!("the certificate of 127.0.0.1:{port} is for another host");
    let publish =
        |api: &str, more: &[&str]| run(&[&["publish", "news:a", "1", "--api", api, "--config", &path], more].concat());
    let cases = [
        (publish(&by_name, &[]), unknown.as_str()),
        (publish(&by_name, &[]), "--ca FILE"),
        (publish(&by_address, &["--ca", &ca]), &other),
        (publish(&by_name, &["--ca", "/no/such.pem"]), "--ca /no/such.pem: cannot be read"),
        (publish(&by_name, &["--ca", &path]), "has no certificate in PEM"),
        (publish(&plain, &[]), "is it https://?"),
        (run(&["watch", "news:a", "--url", &watched]), &unknown),
        (run(&["watch", "news:a", "--url", &in_clear]), &hint),
    ];
    for (output, expected) in cases {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{expected}: {said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn a_configuration_with_tls_leads_to_https() {
    let tls = TlsServer::start("configured");
    let (file, port) = (&tls.server.file, tls.port());
    let written = std::fs::read_to_string(file).expect("the test owns it");
    std::fs::write(file, format!("http_server.port = {port}\n{written}")).expect("the test owns it");
    let said = text(&run(&["publish", "news:a", "1", "--config", &tls.server.path(), "--ca", &tls.ca()]).stderr);
    assert!(said.contains(&format!("the certificate of 127.0.0.1:{port} is for another host")), "{said}");
}

#[test]
fn tls_to_a_port_without_it_is_told() {
    let server = Server::start("plain");
    let port = server.address.rsplit(':').next().expect("an address has a port");
    let api = format!("https://localhost:{port}");
    let said = text(&run(&["publish", "news:a", "1", "--api", &api, "--config", &server.path()]).stderr);
    assert!(said.contains(&format!("localhost:{port} does not use TLS")), "{said}");
    let watched = run(&["watch", "news:a", "--url", &format!("wss://localhost:{port}/connection/websocket")]);
    assert_eq!(watched.status.code(), Some(1), "the watcher does not try again");
    assert!(text(&watched.stderr).contains(&format!("localhost:{port} does not use TLS")), "it prints the cause");
}
