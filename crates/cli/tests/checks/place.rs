//! A directory with a configuration, and servers that run in it.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use touchline_testkit::Folder;
use touchline_testkit::process::TestProgram;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_touchline");
pub(crate) const KEY: &str = "the-key-of-this-test";
const BEGINNING: &str = "http_server.address = \"127.0.0.1\"\nhttp_server.port = 0\nshutdown.spread = \"100ms\"\n\
                         http_api.key = \"the-key-of-this-test\"\n\
                         client.token.hmac_secret_key = \"a secret of this test, long enough for HS256\"\n";

/// A directory with a configuration.
pub(crate) struct Place(pub(crate) Folder);

impl Place {
    /// Makes a directory whose configuration begins with secrets and a free port, and continues with `more`.
    pub(crate) fn new(more: &str) -> Self {
        let place = Place(Folder::new("checks"));
        place.configure(more);
        place
    }

    /// Writes the configuration again.
    pub(crate) fn configure(&self, more: &str) {
        self.write("touchline.toml", &format!("{BEGINNING}{more}"));
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        self.0.write(name, text);
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
        if self.0.file("cert.pem").exists() {
            command.env("TOUCHLINE_HTTP_SERVER_TLS_CERT_PEM", "cert.pem");
            command.env("TOUCHLINE_HTTP_SERVER_TLS_KEY_PEM", "key.pem");
        }
        command.current_dir(self.0.path()).stdin(Stdio::null());
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

/// A server and its log.
pub(crate) struct Server(pub(crate) TestProgram);

impl Server {
    /// Starts the server, and waits until it serves.
    pub(crate) fn start(mut command: Command) -> Self {
        let server = Server(TestProgram::start(&mut command));
        server.line("ready address=");
        server
    }

    /// The first line of the log that contains a text. Waits for this line.
    pub(crate) fn line(&self, text: &str) -> String {
        self.0.errors.find(text)
    }

    /// The address in the line that contains a text.
    pub(crate) fn address(&self, text: &str) -> String {
        let line = self.line(text);
        let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
        address.expect("the line has an address").to_owned()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
