//! The commands of an operator: commands that use a configuration, starts that fail, copies of databases, and schemas
//! that are removed.

use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

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

/// A directory with a configuration. It is removed at the end of the test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("touchline-operators-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        let place = Place(path);
        place.write("touchline.toml", CONFIGURATION);
        place
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the test owns it");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the test owns it");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .env_clear()
            .env("TOUCHLINE_CONFIG", "touchline.toml")
            .current_dir(&self.0)
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
        let mut child = self.command(&["serve"]).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut log = BufReader::new(child.stderr.take().expect("the stream is piped"));
        let mut line = String::new();
        while !line.contains("ready address=") {
            line.clear();
            assert!(log.read_line(&mut line).expect("the log is text") > 0, "the server ended");
        }
        let address = line
            .split("address=")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next())
            .expect("the line has an address");
        let port = address.rsplit(':').next().expect("it has a port");
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        self.write("touchline.toml", &CONFIGURATION.replace("port = 0", &format!("port = {port}")));
        Server(child)
    }

    fn offset(&self) -> u64 {
        let published = self.good(&["publish", "orders:1", r#"{"state": "paid"}"#]);
        let result: serde_json::Value = serde_json::from_str(&published).expect("it prints JSON");
        result["offset"].as_u64().expect("an offset")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Server(Child);

impl Server {
    fn stop(mut self) {
        assert!(Command::new("kill").arg(self.0.id().to_string()).status().expect("kill is there").success());
        assert_eq!(self.0.wait().expect("the test owns it").code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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
    let place = Place::new("word");
    let server = place.serve();
    // The path of the configuration is in the environment first, and then in a flag, from another directory.
    assert_eq!(place.offset(), 1);
    let path = place.0.join("touchline.toml").display().to_string();
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
    let mut watcher = watcher.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut said = BufReader::new(watcher.stderr.take().expect("the stream is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("stderr is text");
    assert!(line.contains("watching orders:1"), "{line}");
    assert_eq!(place.offset(), 3);
    assert!(watcher.wait().expect("the test owns it").success());
    server.stop();
}

#[test]
fn a_running_database_is_copied_and_put_back() {
    let place = Place::new("copies");
    let server = place.serve();
    assert_eq!((place.offset(), place.offset()), (1, 2));
    let said = place.good(&["backup", "copy.db"]);
    assert!(said.contains("copy.db: a copy of data/primary.db"), "{said}");
    assert_eq!(mode(&place.0.join("copy.db")), 0o600);
    assert!(
        place.bad(&["backup", "copy.db"]).contains("copy.db can't be used: File exists"),
        "nothing is written over"
    );
    assert_eq!(place.offset(), 3);
    let refused = place.bad(&["restore", "copy.db"]);
    assert!(refused.contains("another process uses data/primary.db"), "{refused}");
    server.stop();
    let said = place.good(&["restore", "copy.db"]);
    let kept = said.split("the old database is kept as ").nth(1).expect("the database is kept").to_owned();
    assert!(place.0.join(&kept).exists() && mode(&place.0.join("data/primary.db")) == 0o600);
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
    assert!(others.iter().all(|other| *other != kept && place.0.join(other).exists()), "{others:?}");
    let refused = place.bad(&["restore", "data/primary.db"]);
    assert!(refused.contains("it is the database itself"), "{refused}");
    place.good(&["restore", &kept]);
    let server = place.serve();
    assert_eq!(place.offset(), 4);
    server.stop();
}

#[test]
fn a_look_at_a_schema_makes_nothing_and_what_is_made_is_its_owners() {
    let place = Place::new("schema");
    assert!(place.bad(&["migrate", "status"]).is_empty(), "there is nothing yet");
    assert!(!place.0.join("data").exists());
    place.good(&["migrate", "up"]);
    assert_eq!(mode(&place.0.join("data/primary.db")), 0o600);
    let server = place.serve();
    assert!(place.good(&["migrate", "status"]).contains("made"), "also while a node runs");
    for part in ["", "-wal", "-shm"] {
        assert_eq!(mode(&place.0.join(format!("data/primary.db{part}"))), 0o600, "{part}");
    }
    server.stop();
}

#[test]
fn what_is_no_copy_is_not_put_in_the_place_of_anything() {
    let place = Place::new("no-copies");
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
    let place = Place::new("away");
    let url = "postgres://me:tops3cret@127.0.0.1:1/live";
    place.write("touchline.toml", &CONFIGURATION.replace("sqlite:data/primary.db", url));
    let said = place.bad(&["migrate", "status"]);
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
    assert!(said.contains("127.0.0.1:1/live") && said.contains("check that PostgreSQL is running"), "{said}");
    assert!(!said.contains("tops3cret"), "{said}");
}

#[test]
fn a_schema_goes_only_when_asked_in_earnest_and_while_nobody_uses_it() {
    let place = Place::new("down");
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
    let place = Place::new("causes");
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", BINARY]).args(arguments);
        text(&command.env_clear().current_dir(&place.0).output().expect("setpriv runs").stderr)
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
        std::fs::set_permissions(place.0.join(name), std::fs::Permissions::from_mode(mode)).expect("the test owns it")
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
    let place = Place::new("starts");
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
    let said = serve(&["--port", "27501", "--tcp.port", "27501"]);
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
        let mut server = Server(
            Command::new(BINARY)
                .args(arguments)
                .env_clear()
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("it runs"),
        );
        let mut out = BufReader::new(server.0.stdout.take().expect("the stream is piped"));
        let mut banner = String::new();
        while !banner.contains("Stop with Ctrl-C") {
            assert!(out.read_line(&mut banner).expect("it prints") > 0, "the server ended");
        }
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
        let mut watcher = Server(
            watcher.args(["watch", "news", "--url", &url]).env_clear().stderr(Stdio::piped()).spawn().expect("it runs"),
        );
        let mut line = String::new();
        BufReader::new(watcher.0.stderr.take().expect("the stream is piped"))
            .read_line(&mut line)
            .expect("stderr is text");
        assert!(line.contains("watching news"), "{line}");
    }
}

#[test]
fn open_files_are_raised_to_the_limit_and_their_want_is_told_once_with_its_remedy() {
    let place = Place::new("files");
    let serve = format!("ulimit -Sn 48 && ulimit -Hn 96 && exec {BINARY} serve --config touchline.toml --shards 1");
    let mut command = Command::new("bash");
    command.args(["-c", &serve]).current_dir(&place.0).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = Server(command.spawn().expect("bash runs"));
    let mut log = BufReader::new(server.0.stderr.take().expect("the stream is piped"));
    let mut said = String::new();
    while !said.contains("ready address=") {
        assert!(log.read_line(&mut said).expect("the log is text") > 0, "{said}");
    }
    assert!(said.contains("descriptors=96 connections="), "{said}");
    let address =
        said.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("the line has an address");
    let address: std::net::SocketAddr = address.parse().expect("an address");
    // The server closes each of these connections to make room for the next: each one beyond the limit is a failure.
    let sockets: Vec<_> = (0..300).filter_map(|_| std::net::TcpStream::connect(address).ok()).collect();
    while !said.contains("could not be accepted") {
        assert!(log.read_line(&mut said).expect("the log is text") > 0, "{said}");
    }
    drop(sockets);
    let more: Vec<_> = (0..300).filter_map(|_| std::net::TcpStream::connect(address).ok()).collect();
    assert!(!more.is_empty());
    server.stop();
    log.read_to_string(&mut said).expect("the log is text");
    let told: Vec<&str> = said.lines().filter(|line| line.contains("could not be accepted")).collect();
    assert!(told.len() == 1 && told[0].contains("LimitNOFILE="), "{said}");
}
