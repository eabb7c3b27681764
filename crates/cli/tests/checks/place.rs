//! A directory with a configuration, and servers that run in it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_touchline");
pub(crate) const KEY: &str = "the-key-of-this-test";
const BEGINNING: &str = "http_server.address = \"127.0.0.1\"\nhttp_server.port = 0\nshutdown.spread = \"100ms\"\n\
                         http_api.key = \"the-key-of-this-test\"\n\
                         client.token.hmac_secret_key = \"a secret of this test, long enough for HS256\"\n";
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with a configuration. It is removed at the end of the test.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    /// Makes a directory whose configuration begins with secrets and a free port, and continues with `more`.
    pub(crate) fn new(name: &str, more: &str) -> Self {
        let path = std::env::temp_dir().join(format!("touchline-checks-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        let place = Place(path);
        place.configure(more);
        place
    }

    /// Writes the configuration again.
    pub(crate) fn configure(&self, more: &str) {
        self.write("touchline.toml", &format!("{BEGINNING}{more}"));
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the test owns it");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the test owns it");
    }

    /// Writes `cert.pem` and `key.pem`, valid for `days` days. The environment of the commands names both files.
    pub(crate) fn certificate(&self, days: u64) {
        self.certificate_until(SystemTime::now() + Duration::from_secs(days * 86_400 + 3_600));
    }

    /// Writes `cert.pem` and `key.pem`, valid until a time.
    pub(crate) fn certificate_until(&self, end: SystemTime) {
        let mut options = rcgen::CertificateParams::new(vec!["live.example.com".to_owned()]).expect("a name");
        options.not_after = end.into();
        let key = rcgen::KeyPair::generate().expect("a key is made");
        self.write("cert.pem", &options.self_signed(&key).expect("it is signed").pem());
        self.write("key.pem", &key.serialize_pem());
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).env_clear().env("TOUCHLINE_CONFIG", "touchline.toml");
        if self.0.join("cert.pem").exists() {
            command.env("TOUCHLINE_HTTP_SERVER_TLS_CERT_PEM", "cert.pem");
            command.env("TOUCHLINE_HTTP_SERVER_TLS_KEY_PEM", "key.pem");
        }
        command.current_dir(&self.0).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// Runs a command without a configuration.
    pub(crate) fn run_bare(&self, arguments: &[&str]) -> Output {
        self.command(arguments).env_remove("TOUCHLINE_CONFIG").output().expect("the binary runs")
    }

    pub(crate) fn serve(&self) -> Server {
        Server::start(self.command(&["serve"]))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server and the lines of its log.
pub(crate) struct Server {
    pub(crate) child: Child,
    lines: Receiver<String>,
    seen: std::cell::RefCell<Vec<String>>,
}

impl Server {
    /// Starts the server, and waits until it serves.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
        let log = BufReader::new(child.stderr.take().expect("the stream is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || log.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let server = Server { child, lines, seen: std::cell::RefCell::default() };
        server.line("ready address=");
        server
    }

    /// The first line of the log that contains a text. The server may have logged the line before this call.
    pub(crate) fn line(&self, text: &str) -> String {
        let found = self.seen.borrow().iter().find(|line| line.contains(text)).cloned();
        found.unwrap_or_else(|| {
            loop {
                let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no line with {text:?}"));
                self.seen.borrow_mut().push(line.clone());
                if line.contains(text) {
                    return line;
                }
            }
        })
    }

    /// The address in the line that contains a text.
    pub(crate) fn address(&self, text: &str) -> String {
        let line = self.line(text);
        let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
        address.expect("the line has an address").to_owned()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill is there").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
