//! The commands of an operator: commands that use a configuration, starts that fail, copies of databases, and schemas
//! that are removed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use touchline_testkit::Folder;
use touchline_testkit::ports::free_port;
use touchline_testkit::process::TestProgram;

const BINARY: &str = env!("CARGO_BIN_EXE_touchline");
const CONFIGURATION: &str = r#"
http_server.address = "127.0.0.1"
http_server.port = 0
http_api.key = "the-key-of-this-test"
client.token.hmac_secret_key = "a secret of this test, long enough for HS256"
shutdown.spread = "100ms"
store.primary.url = "sqlite:data/primary.db"
[[channel.namespaces]]
name = "orders"
durable = true
allow_subscribe_for_client = true
history_size = 10
history_ttl = "1h"
force_recovery = true
"#;

/// A directory with a configuration.
struct Place(Folder);

impl Place {
    fn new() -> Self {
        let place = Place(Folder::new("operators"));
        place.write("touchline.toml", CONFIGURATION);
        place
    }

    fn write(&self, name: &str, text: &str) {
        self.0.write(name, text);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .env_clear()
            .env("TOUCHLINE_CONFIG", "touchline.toml")
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// The output of a command that succeeds.
    fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    /// The errors of a command that fails.
    fn bad(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// Starts a server. From now on the configuration contains its port.
    fn serve(&self) -> Server {
        let server = Server(TestProgram::start(&mut self.command(&["serve"])));
        let port = server.0.address().port();
        self.write("touchline.toml", &CONFIGURATION.replace("port = 0", &format!("port = {port}")));
        server
    }

    fn offset(&self) -> u64 {
        let published = self.good(&["publish", "orders:1", r#"{"state": "paid"}"#]);
        let result: serde_json::Value = serde_json::from_str(&published).expect("it prints JSON");
        result["offset"].as_u64().expect("an offset")
    }
}

struct Server(TestProgram);

impl Server {
    fn stop(mut self) {
        assert_eq!(self.0.stop().code(), Some(0));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn every_command_takes_the_word_of_the_configuration() {
    let place = Place::new();
    let server = place.serve();
    // The path of the configuration is in the environment first, and then in a flag, from another directory.
    assert_eq!(place.offset(), 1);
    let path = place.0.file("touchline.toml").display().to_string();
    let mut published = Command::new(BINARY);
    let published =
        published.args(["publish", "orders:1", "2", "--config", &path]).env_clear().output().expect("the binary runs");
    assert!(
        published.status.success() && text(&published.stdout).contains(r#""offset":2"#),
        "{}",
        text(&published.stderr)
    );
    assert!(place.good(&["check"]).contains("ok: 0 errors"));
    assert!(place.good(&["check", "--config", &path]).contains("ok: 0 errors"));
    let token = place.good(&["token", "--user", "42"]);
    let mut watcher = place.command(&["watch", "orders:1", "--token", &token, "--count", "1"]);
    let mut watcher = TestProgram::start(&mut watcher);
    watcher.errors.find("watching orders:1");
    assert_eq!(place.offset(), 3);
    assert!(watcher.wait().success());
    server.stop();
}

#[test]
fn a_running_database_is_copied_and_put_back() {
    let place = Place::new();
    let server = place.serve();
    assert_eq!((place.offset(), place.offset()), (1, 2));
    let said = place.good(&["backup", "copy.db"]);
    assert!(said.contains("copy.db: a copy of data/primary.db"), "{said}");
    assert_eq!(mode(&place.0.file("copy.db")), 0o600);
    assert!(
        place.bad(&["backup", "copy.db"]).contains("copy.db can't be used: it exists, and no copy overwrites a file"),
        "nothing is written over"
    );
    assert_eq!(place.offset(), 3);
    let refused = place.bad(&["restore", "copy.db"]);
    assert!(refused.contains("another process uses data/primary.db"), "{refused}");
    server.stop();
    let said = place.good(&["restore", "copy.db"]);
    let kept = said.split("the old database is kept as ").nth(1).expect("the database is kept").to_owned();
    assert!(place.0.file(&kept).exists() && mode(&place.0.file("data/primary.db")) == 0o600);
    let server = place.serve();
    assert_eq!(place.offset(), 3, "the third one was made after the copy");
    server.stop();
    // The former databases are whole too, however often and fast the command restores copies.
    let others: Vec<String> = (0..3)
        .map(|_| {
            place
                .good(&["restore", "copy.db"])
                .split("the old database is kept as ")
                .nth(1)
                .expect("the database is kept")
                .to_owned()
        })
        .collect();
    assert!(others.iter().all(|other| *other != kept && place.0.file(other).exists()), "{others:?}");
    let refused = place.bad(&["restore", "data/primary.db"]);
    assert!(refused.contains("it is the database itself"), "{refused}");
    place.good(&["restore", &kept]);
    let server = place.serve();
    assert_eq!(place.offset(), 4);
    server.stop();
}

#[test]
fn a_look_at_a_schema_makes_nothing_and_what_is_made_is_its_owners() {
    let place = Place::new();
    assert!(place.bad(&["migrate", "status"]).is_empty(), "there is nothing yet");
    assert!(!place.0.file("data").exists());
    place.good(&["migrate", "up"]);
    assert_eq!(mode(&place.0.file("data/primary.db")), 0o600);
    let server = place.serve();
    assert!(place.good(&["migrate", "status"]).contains("made"), "also while a node runs");
    for part in ["", "-wal", "-shm"] {
        assert_eq!(mode(&place.0.file(&format!("data/primary.db{part}"))), 0o600, "{part}");
    }
    server.stop();
}

#[test]
fn what_is_no_copy_is_not_put_in_the_place_of_anything() {
    let place = Place::new();
    let server = place.serve();
    assert_eq!(place.offset(), 1);
    server.stop();
    place.write("text", "this is no database, and it is long enough to be looked at by anybody who wants to know");
    place.write("empty", "");
    let of_stats = CONFIGURATION.replace("[[channel", "store.stats.url = \"sqlite:data/primary.db\"\n[[channel");
    for (copy, expected) in [
        ("text", "file is not a database"),
        ("empty", "is not a copy of the primary database"),
        ("nothing", "No such file"),
    ] {
        let said = place.bad(&["restore", copy]);
        assert!(said.contains(expected), "{copy}: {said}");
    }
    place.good(&["backup", "copy.db"]);
    place.write("touchline.toml", &of_stats);
    let said = place.bad(&["restore", "--database", "stats", "copy.db"]);
    assert!(said.contains("is not a copy of the stats database"), "{said}");
    assert!(place.bad(&["backup", "no/such/directory/copy.db"]).contains("No such file or directory"));
    place.write("touchline.toml", &CONFIGURATION.replace("sqlite:data/primary.db", "postgres://db/live"));
    for command in ["backup", "restore"] {
        let said = place.bad(&[command, "copy.db"]);
        assert!(said.contains("pg_dump --format=custom") && said.contains("pg_restore"), "{said}");
    }
    place.write("touchline.toml", CONFIGURATION);
    let server = place.serve();
    assert_eq!(place.offset(), 2, "nothing was touched");
    server.stop();
}

#[test]
fn a_database_that_does_not_open_says_each_cause_once_and_no_password() {
    let place = Place::new();
    let url = "postgres://me:tops3cret@127.0.0.1:1/live";
    place.write("touchline.toml", &CONFIGURATION.replace("sqlite:data/primary.db", url));
    let said = place.bad(&["migrate", "status"]);
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
    assert!(said.contains("127.0.0.1:1/live") && said.contains("check that PostgreSQL is running"), "{said}");
    assert!(!said.contains("tops3cret"), "{said}");
}

#[test]
fn a_schema_goes_only_when_asked_in_earnest_and_while_nobody_uses_it() {
    let place = Place::new();
    let server = place.serve();
    assert_eq!(place.offset(), 1);
    assert!(place.bad(&["migrate", "down", "--yes"]).contains("another process uses"));
    server.stop();
    let said = place.bad(&["migrate", "down"]);
    assert!(said.contains("rows would be deleted") && said.contains("use --yes"), "{said}");
    assert!(place.good(&["migrate", "status"]).lines().all(|line| line.contains("  made ")));
    // The migrations after the first one, newest first: each command names a table of its migration.
    for table in ["reaction", "event_endpoint", "user_seen", "event_outbox", "fact", "inbox_message"] {
        let said = text(&place.run(&["migrate", "down", "--yes"]).stderr);
        assert!(said.contains(&format!("touchline: {table}: 0 rows are deleted")), "{said}");
    }
    let said = place.bad(&["migrate", "down"]);
    assert!(said.contains("touchline: publication: 1 rows would be deleted"), "{said}");
    place.good(&["migrate", "down", "--yes"]);
    assert!(place.bad(&["migrate", "status"]).is_empty());
}

#[test]
fn a_start_that_fails_names_its_cause() {
    let place = Place::new();
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", BINARY]).args(arguments);
        text(&command.env_clear().current_dir(place.0.path()).output().expect("setpriv runs").stderr)
    };
    place.write("database.toml", CONFIGURATION);
    place.write(
        "certificate.toml",
        &format!("{CONFIGURATION}\n[http_server.tls]\nenabled = true\ncert_pem = \"c.pem\"\nkey_pem = \"c.pem\""),
    );
    place.write("c.pem", "a certificate");
    let missing = place.bad(&["serve", "--config", "certificate.toml"]);
    assert!(missing.contains("http_server.tls.cert_pem: c.pem holds no"), "{missing}");
    if std::fs::metadata("/proc/self").map(|me| std::os::unix::fs::MetadataExt::uid(&me)).ok() != Some(0) {
        return eprintln!("only root can try what another account is refused");
    }
    let permit = |name: &str, mode| {
        std::fs::set_permissions(place.0.file(name), std::fs::Permissions::from_mode(mode)).expect("the test owns it")
    };
    permit("", 0o755);
    permit("database.toml", 0o644);
    permit("certificate.toml", 0o644);
    let database = nobody(&["serve", "--config", "database.toml"]);
    assert!(database.contains("data in ") && database.contains("cannot be accessed by uid 65534"), "{database}");
    assert!(!database.contains("port"), "{database}");
    let certificate = nobody(&["serve", "--config", "certificate.toml"]);
    assert!(certificate.contains("http_server.tls.cert_pem: c.pem can't be read: Permission denied"), "{certificate}");
    assert!(!certificate.contains("privilege"), "{certificate}");
}

#[test]
fn a_start_that_fails_says_its_cause_once_and_no_secret() {
    let place = Place::new();
    let internal =
        "internal_port = 0\n[http_server.internal_tls]\nenabled = true\ncert_pem = \"no.pem\"\nkey_pem = \"no.pem\"";
    let (first, rest) = CONFIGURATION.split_once("[[").expect("it has namespaces");
    let with = |more: &str| place.write("start.toml", &format!("{first}{more}\n[[{rest}"));
    let serve = |arguments: &[&str]| place.bad(&[&["serve", "--config", "start.toml"], arguments].concat());
    with(&format!("http_server.{internal}"));
    let said = serve(&[]);
    assert!(said.contains("http_server.internal_tls.cert_pem: no.pem can't be read: No such file"), "{said}");
    assert_eq!(said.matches("No such file").count(), said.matches("_pem: ").count(), "{said}");
    with("tcp.enabled = true");
    let port = free_port().to_string();
    let said = serve(&["--port", &port, "--tcp.port", &port]);
    assert!(
        said.contains("tcp.port: ")
            && said.contains("http_server.port: set tcp.port")
            && !said.contains("stop who has it"),
        "{said}"
    );
    let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49\n-----END PRIVATE KEY-----";
    for arguments in [
        &["--http_server.tls.enabled", "--http_server.tls.key_pem", key, "--http_server.tls.cert_pem", key][..],
        &["--http_server.tls.key", key],
        &["--http_server.address", key],
        &[key],
    ] {
        let output = place.run(&[&["serve", "--config", "start.toml"], arguments].concat());
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(!output.status.success() && !said.contains("MIGHAgEAMBMG"), "{said}");
    }
    assert!(serve(&["--open-to-network"]).contains("--open-to-network needs --dev"));
}

#[test]
fn a_demo_that_is_open_says_its_address_and_lets_others_in() {
    for (arguments, expected, is_open) in [
        (&["serve", "--dev", "--no-match", "--port", "0"][..], "Only this machine can see it", false),
        (
            &["serve", "--dev", "--no-match", "--port", "0", "--address", "0.0.0.0"],
            "Clients of other machines are refused",
            false,
        ),
        (
            &["serve", "--dev", "--no-match", "--port", "0", "--open-to-network"],
            "Everybody who can reach this address can watch",
            true,
        ),
    ] {
        let server = TestProgram::start(Command::new(BINARY).args(arguments).env_clear());
        server.out.find("Stop with Ctrl-C");
        let banner = server.out.text();
        assert!(banner.contains(expected), "{banner}");
        let fans = banner.split("Fans ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address");
        let address = fans.trim_start_matches("http://").trim_end_matches('/').to_owned();
        if is_open {
            // Other machines can reach the address that the server prints, and the server accepts clients at it.
            let own =
                Command::new("hostname").arg("-I").output().map(|output| text(&output.stdout)).unwrap_or_default();
            let host = address.split(':').next().unwrap_or_default().to_owned();
            assert!(own.trim().is_empty() || own.split_whitespace().any(|own| own == host), "{address} of {own}");
        }
        let url = format!("ws://{address}/connection/websocket");
        let mut watcher = Command::new(BINARY);
        let watcher = TestProgram::start(watcher.args(["watch", "news", "--url", &url]).env_clear());
        watcher.errors.find("watching news");
    }
}

#[test]
fn open_files_are_raised_to_the_limit_and_their_want_is_told_once_with_its_remedy() {
    let place = Place::new();
    let serve = format!("ulimit -Sn 48 && ulimit -Hn 96 && exec {BINARY} serve --config touchline.toml --shards 1");
    let mut command = Command::new("bash");
    let server = Server(TestProgram::start(command.args(["-c", &serve]).current_dir(place.0.path())));
    let address = server.0.address();
    server.0.errors.find("descriptors=96 connections=");
    // The server closes each of these connections to make room for the next: each one beyond the limit is a failure.
    let sockets: Vec<_> = (0..300).filter_map(|_| std::net::TcpStream::connect(address).ok()).collect();
    server.0.errors.find("could not be accepted");
    drop(sockets);
    let more: Vec<_> = (0..300).filter_map(|_| std::net::TcpStream::connect(address).ok()).collect();
    assert!(!more.is_empty());
    let log = server.0.errors.clone();
    server.stop();
    let said = log.all();
    let told: Vec<&str> = said.lines().filter(|line| line.contains("could not be accepted")).collect();
    assert!(told.len() == 1 && told[0].contains("LimitNOFILE="), "{said}");
}
