//! `serve --ephemeral`: a test starts the server, finds it by a file, and the server ends with the test.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value as Json;
use touchline_testkit::process::TestProgram;
use touchline_testkit::{Folder, until};

const BINARY: &str = env!("CARGO_BIN_EXE_touchline");

/// The names of the files in a directory.
fn files_in(folder: &Folder) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder.path()).expect("it is a directory").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn command(folder: &Folder, ready: &str, more: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["serve", "--ephemeral", "--port", "0", "--ready-file", ready]).args(more).current_dir(folder.path());
    command
}

/// A running server. It is killed when the value is dropped.
struct Server {
    program: TestProgram,
    line: String,
    ready: Json,
}

impl Server {
    fn start(mut command: Command, ready: &Path) -> Self {
        let program = TestProgram::start(&mut command);
        let line = program.out.next("");
        let ready = std::fs::read(ready).expect("the file is there before the line");
        Server { program, line, ready: serde_json::from_slice(&ready).expect("JSON") }
    }

    fn of(&self, name: &str) -> &str {
        self.ready[name].as_str().unwrap_or_else(|| panic!("{name} is in {}", self.ready))
    }

    fn call(&self, words: &[&str]) -> Output {
        let where_to = ["--api", self.of("url"), "--key", self.of("api_key"), "--json"];
        Command::new(BINARY).arg("api").args(words).args(where_to).env_clear().output().expect("the binary runs")
    }

    /// Stops the server with SIGTERM and returns what it has written to stderr.
    fn stop(mut self) -> String {
        assert!(self.program.stop().success());
        self.program.errors.all()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The file that a killed server has left.
const LEFT: &str = r#"{"pid":1,"websocket_url":"ws://127.0.0.1:1/connection/websocket","api_key":"k"}"#;

#[test]
fn no_file_is_removed_but_that_of_a_server() {
    let folder = Folder::new("foreign");
    let file = folder.file("notes.txt");
    for content in ["my notes", "{}", r#"{"pid":7}"#] {
        std::fs::write(&file, content).expect("it is writable");
        let output = command(&folder, "notes.txt", &[]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{content}");
        assert!(text(&output.stderr).contains("was not written by an earlier server"), "{output:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), content);
    }
    let ready = folder.file("ready.json");
    let first = Server::start(command(&folder, "ready.json", &[]), &ready);
    let second = Server::start(command(&folder, "ready.json", &[]), &ready);
    first.stop();
    assert!(ready.exists(), "the file belongs to the second server now");
    second.stop();
    assert!(!ready.exists());
}

#[test]
fn a_test_finds_its_server_by_a_file_and_nothing_else_is_written() {
    let folder = Folder::new("ready");
    let ready = folder.file("ready.json");
    std::fs::write(&ready, LEFT).expect("it is writable");
    let mut command = command(&folder, "ready.json", &[]);
    // The environment of a developer must not change the server of a test.
    command.env("TOUCHLINE_CONFIG", "/no/such.toml").env("TOUCHLINE_HTTP_SERVER_PORT", "1");
    command.env("TOUCHLINE_HTTP_API_KEY", "of the developer").env("TOUCHLINE_STORE_DIRECTORY", "true");
    let server = Server::start(command, &ready);
    assert_eq!(server.line, format!("listening on {}", server.of("url")));
    assert_eq!(server.ready["pid"], server.program.id());
    assert_eq!(server.of("api_url"), format!("{}/api", server.of("url")));
    let websocket = format!("{}/connection/websocket", server.of("url").replace("http://", "ws://"));
    assert_eq!(server.of("websocket_url"), websocket);
    assert!(server.of("url").starts_with("http://127.0.0.1:") && server.of("api_key").len() > 40);
    assert_eq!(std::fs::metadata(&ready).expect("it is there").permissions().mode() & 0o777, 0o600);
    let published = server.call(&["publish", "channel=news", "data=1"]);
    assert!(published.status.success() && text(&published.stdout).contains(r#""offset":1"#), "{published:?}");
    let token = ["token", "--user", "42", "--secret", server.of("token_secret")];
    let token = text(&Command::new(BINARY).args(token).env_clear().output().expect("the binary runs").stdout);
    let mut watch = Command::new(BINARY);
    watch.args(["watch", "news", "--url", server.of("websocket_url"), "--token", token.trim(), "--count", "1"]);
    let mut watching = TestProgram::start(watch.env_clear());
    watching.errors.find("watching news");
    assert!(server.call(&["publish", "channel=news", "data=\"seen\""]).status.success());
    watching.out.find("seen");
    assert!(watching.wait().success());
    assert_eq!(files_in(&folder), ["ready.json".to_owned()].into());
    assert_eq!(server.stop(), "", "the server writes no errors");
    assert_eq!(files_in(&folder), BTreeSet::new(), "no secret is left");
}

#[test]
fn several_at_once_have_ports_and_keys_of_their_own() {
    let folder = Folder::new("several");
    let names: Vec<String> = (0..6).map(|index| format!("{index}.json")).collect();
    let start = &|name: &String| Server::start(command(&folder, name, &[]), &folder.file(name));
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let starting: Vec<_> = names.iter().map(|name| scope.spawn(move || start(name))).collect();
        starting.into_iter().map(|start| start.join().expect("it starts")).collect()
    });
    for part in ["url", "api_key", "token_secret"] {
        let different: BTreeSet<&str> = servers.iter().map(|server| server.of(part)).collect();
        assert_eq!(different.len(), servers.len(), "{part}");
    }
    for server in servers {
        // If two servers shared a port, another server would sometimes answer.
        for _ in 0..4 {
            let told = server.call(&["info"]);
            assert!(told.status.success(), "{}", text(&told.stderr));
        }
        assert_eq!(server.stop(), "");
    }
}

#[test]
fn a_configuration_adds_namespaces_and_what_needs_more_than_memory_is_refused() {
    let folder = Folder::new("configuration");
    let file = folder.file("c.toml");
    std::fs::write(&file, "[[channel.namespaces]]\nname = \"chat\"\nhistory_size = 1\nhistory_ttl = \"1m\"\n")
        .expect("it is writable");
    let server = Server::start(command(&folder, "ready.json", &["--config", "c.toml"]), &folder.file("ready.json"));
    assert!(server.call(&["publish", "channel=chat:1", "data=1"]).status.success());
    assert!(!server.call(&["publish", "channel=none:1", "data=1"]).status.success());
    drop(server);
    for (text_of, expected) in [
        (
            "[[channel.namespaces]]\nname = \"chat\"\ndurable = true\nhistory_size = 1\nhistory_ttl = \"1m\"",
            "namespace chat",
        ),
        ("store.directory = true", "store.directory"),
        ("store.stats.enabled = true", "store.stats.enabled"),
        ("store.primary.url = \"postgres://me:s3cret@localhost/x\"", "store.primary.url"),
        ("security.use_primary = true", "security.use_primary"),
        ("cluster.engine = \"nats\"", "cluster.engine"),
    ] {
        std::fs::write(&file, text_of).expect("it is writable");
        std::fs::write(folder.file("other.json"), LEFT).expect("it is writable");
        let output = command(&folder, "other.json", &["--config", "c.toml"]).output().expect("it runs");
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{text_of}: {said}");
        assert!(
            said.contains("keeps everything in memory") && said.contains(expected) && !said.contains("s3cret"),
            "{said}"
        );
        assert!(!folder.file("other.json").exists() && !folder.file("data").exists(), "{text_of}");
    }
    let nowhere = command(&folder, "no/such/ready.json", &[]).output().expect("it runs");
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).contains("failed to write no/such/ready.json"), "{}", text(&nowhere.stderr));
}

#[test]
fn it_ends_with_the_process_that_has_started_it_and_not_with_its_thread() {
    let folder = Folder::new("parent");
    let ready = folder.file("ready.json");
    let of_thread = std::thread::scope(|scope| {
        scope.spawn(|| Server::start(command(&folder, "thread.json", &[]), &folder.file("thread.json"))).join()
    });
    let of_thread = of_thread.expect("it starts");

    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" serve --ephemeral --ready-file ready.json & wait", BINARY]).current_dir(folder.path());
    // The shell is killed, as a test runner that hangs is killed. It cannot notify its child.
    let mut parent = Server::start(shell, &ready);
    let pid = parent.ready["pid"].as_u64().expect("a number");
    assert_ne!(pid, u64::from(parent.program.id()));
    parent.program.kill();
    until("the server ends", || !ready.exists());
    // The thread that started the server has ended, but this process still runs, so the server runs too.
    assert!(of_thread.call(&["info"]).status.success());
    assert_eq!(of_thread.stop(), "");
}
