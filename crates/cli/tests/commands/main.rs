//! The binary as operators run it: a server, and the commands that call it.

mod answers;
mod api;
mod compact;
mod explain;
mod tls;
mod tokens;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use touchline_testkit::http::raw;
use touchline_testkit::ports::free_port;
use touchline_testkit::process::TestProgram;

const BINARY: &str = env!("CARGO_BIN_EXE_touchline");
const KEY: &str = "a key with blanks\n";
const SECRET: &str = "a secret of this test, long enough for HS256";

const CONFIGURATION: &str = r#"
http_server.address = "127.0.0.1"
http_api.key = "the-key-of-this-test"
client.token.hmac_secret_key = "a secret of this test, long enough for HS256"
shutdown.spread = "100ms"
[[channel.namespaces]]
name = "news"
allow_subscribe_for_client = true
history_size = 10
history_ttl = "1m"
force_recovery = true
[[channel.namespaces]]
name = "quiet"
"#;

fn touchline(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    touchline(arguments).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running server. It is killed when the value is dropped.
struct Server {
    program: TestProgram,
    file: PathBuf,
    address: String,
}

impl Server {
    fn start(name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("touchline-commands-{}-{name}.toml", std::process::id()));
        std::fs::write(&file, CONFIGURATION).expect("the temporary directory is writable");
        Server::start_with(file, 0)
    }

    /// Starts a server with a configuration file. The file is removed at the end.
    fn start_with(file: PathBuf, port: u16) -> Self {
        let (path, port) = (file.display().to_string(), port.to_string());
        Server::spawn(&mut touchline(&["serve", "--config", &path, "--port", &port, "--shards", "2"]), file)
    }

    /// Starts a server by a command. `file`: the configuration file, which is removed at the end.
    fn spawn(command: &mut Command, file: PathBuf) -> Self {
        let program = TestProgram::start(command);
        let address = program.address().to_string();
        Server { program, file, address }
    }

    fn path(&self) -> String {
        self.file.display().to_string()
    }

    fn api(&self) -> String {
        format!("http://{}", self.address)
    }

    fn publish(&self, channel: &str, data: &str) -> Output {
        run(&["publish", channel, data, "--api", &self.api(), "--config", &self.path()])
    }

    /// Starts a watcher of the channel `news:a`, and waits until it watches.
    fn watch(&self, arguments: &[&str]) -> TestProgram {
        let token = text(&run(&["token", "--user", "42", "--config", &self.path()]).stdout);
        let url = format!("ws://{}/connection/websocket", self.address);
        let words = [&["watch", "news:a", "--url", &url, "--token", token.trim()], arguments].concat();
        watching(&mut touchline(&words))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Starts a watcher, and waits until it watches the channel `news:a`.
fn watching(command: &mut Command) -> TestProgram {
    let watcher = TestProgram::start(command);
    watcher.errors.find("watching news:a");
    watcher
}

#[test]
fn a_publication_reaches_a_watcher_and_a_restart_is_survived() {
    let file = std::env::temp_dir().join(format!("touchline-commands-{}-restart.toml", std::process::id()));
    std::fs::write(&file, CONFIGURATION).expect("the temporary directory is writable");
    let port = free_port();
    let mut server = Server::start_with(file, port);
    let watcher = server.watch(&[]);
    let published = server.publish("news:a", r#"{"goal": "1:0"}"#);
    assert!(published.status.success(), "{}", text(&published.stderr));
    assert!(text(&published.stdout).contains(r#""offset":1"#), "{}", text(&published.stdout));
    assert!(watcher.out.next("").contains(r#""data":{"goal":"1:0"}"#));

    assert_eq!(server.program.stop().code(), Some(0));
    let again = std::env::temp_dir().join(format!("touchline-commands-{}-again.toml", std::process::id()));
    std::fs::copy(&server.file, &again).expect("the temporary directory is writable");
    let server = Server::start_with(again, port);
    // The new server has a new history: the watcher gets only publications that are made after it has reconnected.
    let (seen, was_seen) = std::sync::mpsc::channel::<()>();
    let (api, path) = (server.api(), server.path());
    let publisher = std::thread::spawn(move || {
        while was_seen.recv_timeout(Duration::from_millis(100)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            run(&["publish", "news:a", "\"back\"", "--api", &api, "--config", &path]);
        }
    });
    assert!(watcher.out.next("").contains(r#""data":"back""#));
    drop(seen);
    publisher.join().expect("it publishes");
}

#[test]
fn a_watcher_ends_after_as_many_as_asked_for() {
    let server = Server::start("count");
    let mut watcher = server.watch(&["--count", "2"]);
    for data in ["1", "2", "3"] {
        assert!(server.publish("news:a", data).status.success());
    }
    assert!(watcher.wait().success());
    let all = watcher.out.all();
    assert_eq!(all.lines().count(), 2, "{all}");
}

#[test]
fn what_fails_says_so_and_exits_with_one() {
    let server = Server::start("fails");
    let unknown = server.publish("nothing:here", "1");
    let said = text(&unknown.stderr);
    let expected = "touchline: failed to publish: error 102: unknown channel: no namespace of channel.namespaces is \
                    named \"nothing\" (UNKNOWN_CHANNEL). ";
    assert!(said.starts_with(expected) && said.lines().count() == 1, "{said}");
    let port = server.address.rsplit(':').next().expect("an address has a port");
    let url = format!("ws://{}/connection/websocket", server.address);
    let api = server.api();
    let path = server.path();
    let nowhere = format!("ws://{}/nowhere", server.address);
    let cases: &[(&[&str], &str)] = &[
        (&["publish", "news:a", "1", "--api", &api, "--key", KEY], "not valid in a header"),
        (&["publish", "news:a", "1", "--api", &api, "--key", "guess"], "refused the key (401)"),
        (&["publish", "news:a", "{", "--api", &api, "--key", "k"], "the publication is not JSON"),
        (
            &["publish", "news:a", "1", "--api", "ftp://example.com", "--key", "k"],
            "is not a valid http:// or https:// URL",
        ),
        (&["watch", "news:a", "--url", &url], "disconnected"),
        (&["watch", "news:a", "--url", &nowhere], "the server answered 404"),
        (
            &["watch", "news:a", "--url", &url, "--token", "forged"],
            "invalid token (3500): `touchline token --check TOKEN --config FILE` says why",
        ),
        (&["watch", "news:a", "--url", &api], "is not a valid ws:// or wss:// URL"),
        (&["serve", "--config", &path, "--port", port], "is taken: stop the process that has it"),
        (&["serve"], "`touchline genconfig --output touchline.toml`"),
        (&["publish", "news:a", "1", "--api", "http://127.0.0.1:9", "--key", "k"], "see that the server runs"),
        (&["serve", "--config", "/no/such.toml"], "/no/such.toml: cannot be read"),
        (&["token", "--user", "42"], "no secret to sign with"),
        (&["match", "--replay", "/no/such.json"], "failed to read /no/such.json"),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_file_without_its_option_is_told_the_option() {
    for words in [&["serve", "touchline.toml"][..], &["touchline.toml"]] {
        let output = run(words);
        let said = text(&output.stderr);
        assert!(said.contains("tip: name the file with --config touchline.toml"), "{words:?}: {said}");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn a_recorded_match_is_played_in_order_and_in_time() {
    let server = Server::start("match");
    let recording = server.file.with_extension("json");
    let events =
        r#"{"events": [{"at": 0, "data": "kick-off"}, {"at": 10, "data": "goal"}, {"at": 20, "data": "end"}]}"#;
    std::fs::write(&recording, events).expect("the temporary directory is writable");
    assert!(server.publish("news:a", "\"of the match before\"").status.success());
    let watcher = server.watch(&["--count", "3"]);
    let began = Instant::now();
    let (api, replay, path) = (server.api(), recording.display().to_string(), server.path());
    let play = ["match", "--replay", &replay, "--speed", "50", "--channel", "news:a", "--api", &api, "--config", &path];
    let played = run(&play);
    std::fs::remove_file(&recording).expect("it was written");
    assert!(played.status.success(), "{}", text(&played.stderr));
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
    let found: Vec<String> = (0..3).map(|_| watcher.out.next("")).collect();
    for (line, expected) in found.iter().zip(["kick-off", "goal", "end"]) {
        assert!(line.contains(&format!(r#""data":"{expected}""#)), "{found:?}");
    }
}

#[test]
fn a_token_is_alone_on_its_line() {
    let output = run(&["token", "--user", "42", "--secret", SECRET]);
    let token = text(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty());
    assert_eq!((token.matches('.').count(), token.lines().count()), (2, 1));
}

/// Sends an HTTP request and returns the answer.
fn ask(address: &str, request: &str) -> String {
    raw(address.parse().expect("an address"), request.replace('\n', "\r\n").as_bytes())
}

const MISSPELT: &str = "POST /api/publish HTTP/1.1\nHost: here\nX-API-Key: the-key-of-this-test\nConnection: close\n\
                        Content-Length: 50\n\n{\"channel\":\"news:a\",\"data\":1,\"idempotencykey\":\"x\"}";

#[test]
fn every_refusal_is_logged_with_its_cause_and_without_secrets() {
    let mut server = Server::start("refusals");
    let (url, path) = (format!("ws://{}/connection/websocket", server.address), server.path());
    let token = |more: &[&str]| {
        text(&run(&[&["token", "--user", "42", "--config", &path], more].concat()).stdout).trim().to_owned()
    };
    let forged = text(&run(&["token", "--user", "42", "--secret", "guess"]).stdout).trim().to_owned();
    let number = token(&["--claims", r#"{"sub": 42}"#]);
    let old = token(&["--claims", r#"{"exp": 100}"#]);
    let good = token(&[]);
    for arguments in [
        &["watch", "news:a", "--url", &url][..],
        &["watch", "news:a", "--url", &url, "--token", &forged],
        &["watch", "news:a", "--url", &url, "--token", &number],
        &["watch", "news:a", "--url", &url, "--token", &old],
        &["watch", "quiet:a", "--url", &url, "--token", &good],
        &["watch", "nothing:a", "--url", &url, "--token", &good],
        &["watch", "news:a", "--url", &url, "--token", &good, "--subscription-token", &forged],
        &["publish", "news:a", "1", "--api", &server.api(), "--key", "a-key-that-is-not-it"],
        &["publish", "nothing:a", "1", "--api", &server.api(), "--config", &path],
    ] {
        assert_eq!(run(arguments).status.code(), Some(1), "{arguments:?}");
    }
    let handshake = "GET /connection/websocket HTTP/1.1\nHost: here\nOrigin: https://elsewhere.example\n\
                     Connection: Upgrade\nUpgrade: websocket\n\
        Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n";
    assert!(ask(&server.address, &handshake.replace("Upgrade\n", "Upgrade, close\n")).contains(" 403 "));
    assert!(
        ask(&server.address, "POST /api/info HTTP/1.1\nHost: here\nConnection: close\nContent-Length: 2\n\n{}")
            .contains(" 401 ")
    );
    assert!(ask(&server.address, MISSPELT).contains(" 200 "));
    server.program.stop();
    let log = server.program.errors.all();
    for (cause, more) in [
        (
            "the operation ignored a field",
            r#""idempotencykey" is not a field of publish; did you mean idempotency_key?"#,
        ),
        (
            "no token was sent, and client.allow_anonymous_connect_without_token is off",
            "code=3507 address=127.0.0.1 client=",
        ),
        ("the signature of the token does not match the configured key", "code=3500 address=127.0.0.1"),
        ("sub of the token is a number", "code=3500"),
        ("exp of the token has passed", "code=109"),
        (
            "the namespace lacks allow_subscribe_for_client, and no subscription token was sent",
            r#"code=103 address=127.0.0.1 client="#,
        ),
        ("the namespace of the channel is not in channel.namespaces", r#"channel="nothing:a""#),
        ("server API: the key that was sent is not in http_api.key or http_api.keys", "code=401 address=127.0.0.1"),
        ("server API: no key was sent (header X-API-Key)", "code=401"),
        ("server API: the namespace of the channel is not in channel.namespaces", r#"operation="publish""#),
        (
            "the origin of the page is not in client.allowed_origins",
            r#"code=403 address=127.0.0.1 origin="https://elsewhere.example""#,
        ),
    ] {
        assert!(log.lines().any(|line| line.contains(cause) && line.contains(more)), "{cause}: {log}");
    }
    for secret in [SECRET, "the-key-of-this-test", "a-key-that-is-not-it", &forged, &good] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn in_development_the_client_is_told_the_cause_too() {
    let server = TestProgram::start(&mut touchline(&["serve", "--dev", "--no-match", "--port", "0"]));
    let url = format!("ws://{}/connection/websocket", server.address());
    let forged = text(&run(&["token", "--user", "42", "--secret", "guess"]).stdout).trim().to_owned();
    let refused = text(&run(&["watch", "news", "--url", &url, "--token", &forged]).stderr);
    assert!(
        refused.contains("invalid token: the signature of the token does not match the configured key"),
        "{refused}"
    );
}

#[test]
fn a_token_is_told_what_is_wrong_with_it() {
    let made =
        |arguments: &[&str]| text(&run(&[&["token", "--secret", SECRET], arguments].concat()).stdout).trim().to_owned();
    let good = made(&["--user", "42"]);
    let output = run(&["token", "--check", &good, "--secret", SECRET]);
    let said = text(&output.stdout);
    assert!(
        output.status.success() && said.contains("\ngood: user \"42\", expires in 3"),
        "{said} {}",
        text(&output.stderr)
    );
    let (old, early) = (
        made(&["--user", "42", "--claims", r#"{"exp": 100}"#]),
        made(&["--user", "42", "--claims", r#"{"nbf": 99999999999}"#]),
    );
    let (number, channel) =
        (made(&["--user", "42", "--claims", r#"{"sub": 42}"#]), made(&["--user", "42", "--channel", "a"]));
    let cases: &[(&[&str], &str)] = &[
        (&["--check", &good, "--secret", "another secret"], "the signature of the token does not match"),
        (&["--check", &old, "--secret", SECRET], "exp of the token has passed"),
        (&["--check", &early, "--secret", SECRET], "nbf of the token is in the future"),
        (&["--check", &number, "--secret", SECRET], "sub of the token is a number"),
        (&["--check", "<html>", "--secret", SECRET], "is not a JWT"),
        (
            &["--check", &channel, "--secret", SECRET],
            "a subscription token was sent where a connection token is needed",
        ),
        (&["--check", &channel, "--channel", "b", "--secret", SECRET], r#"is for channel "a", not for "b""#),
    ];
    for (arguments, expected) in cases {
        let output = run(&[&["token"], *arguments].concat());
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && said.contains(expected) && !said.contains(SECRET),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn a_token_is_good_only_where_a_client_with_it_would_be_let_in() {
    let file = std::env::temp_dir().join(format!("touchline-commands-{}-tokens.toml", std::process::id()));
    let more = "client.disallow_anonymous_connection_tokens = true\nclient.channel_limit = 3\n\
                [[registry.scopes]]\nname = \"devices\"\n";
    let (keys, namespaces) = CONFIGURATION.split_once("[[").expect("it has namespaces");
    std::fs::write(&file, format!("{keys}{more}[[{namespaces}")).expect("the temporary directory is writable");
    let path = file.display().to_string();
    let long = format!(r#"{{"channels": ["news:{}"]}}"#, "x".repeat(300));
    let cases: &[(&[&str], &str)] = &[
        (&["--claims", r#"{"sub": ""}"#], "client.disallow_anonymous_connection_tokens is on (3507)"),
        (&["--claims", r#"{"expire_at": 5}"#], "expire_at of the token has passed (110)"),
        (&["--claims", r#"{"channels": ["zz:1"]}"#], r#"is not in channel.namespaces: channel "zz:1" (3501)"#),
        (&["--claims", r#"{"subs": {"zz:1": {}}}"#], "(3501)"),
        (&["--claims", &long], "(3501)"),
        (&["--claims", r#"{"names": [{"scope": "nope", "name": "x"}]}"#], "must be in registry.scopes (3501)"),
        (
            &["--claims", r#"{"channels": ["news:1", "news:2", "news:3", "news:4"]}"#],
            "more channels than client.channel_limit",
        ),
        (&["--channel", "zz:1"], "(102)"),
        (&["--claims", r#"{"names": [{"scope": "devices", "name": "x"}], "channels": ["news:1"]}"#], "good: user"),
        (&["--channel", "news:1"], "good: user"),
        (&["--channel", "news:1", "--claims", r#"{"sub": ""}"#], "good: the anonymous user"),
    ];
    let check = |arguments: &[&str]| {
        let output = run(&[&["token", "--config", &path], arguments].concat());
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    for (arguments, expected) in cases {
        let token =
            text(&run(&[&["token", "--user", "42", "--secret", SECRET], *arguments].concat()).stdout).trim().to_owned();
        let channel: &[&str] = if arguments[0] == "--channel" { &arguments[..2] } else { &[] };
        let (is_good, said) = check(&[&["--check", &token], channel].concat());
        assert!(said.contains(expected) && is_good == expected.starts_with("good"), "{arguments:?}: {said}");
    }
    let token = text(&run(&["token", "--user", "42", "--secret", SECRET]).stdout).trim().to_owned();
    assert!(check(&["--check", &token]).0);
    assert!(!check(&["--check", &format!(" {token}")]).0, "a server takes no space before it");
    let _ = std::fs::remove_file(&file);
}

#[test]
fn a_check_tells_good_from_bad() {
    let server = Server::start("check");
    let readable = run(&["check", &server.path()]);
    assert!(text(&readable.stdout).contains("everybody on this machine can read"), "{}", text(&readable.stdout));
    std::fs::set_permissions(&server.file, std::fs::Permissions::from_mode(0o600)).expect("the test owns it");
    let good = run(&["check", &server.path()]);
    assert_eq!(
        (good.status.code(), text(&good.stdout).lines().last()),
        (Some(0), Some("ok: 0 errors, 0 warnings, 1 note"))
    );
    let bad = server.file.with_extension("bad.toml");
    std::fs::write(&bad, "client.chanel_limit = 3").expect("the temporary directory is writable");
    let output = run(&["check", &bad.display().to_string()]);
    std::fs::remove_file(&bad).expect("it was written");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stdout).contains(":1:8: client.chanel_limit: unknown key; did you mean client.channel_limit?"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn a_second_signal_does_not_wait_for_the_drain() {
    let file = std::env::temp_dir().join(format!("touchline-commands-{}-twice.toml", std::process::id()));
    std::fs::write(&file, CONFIGURATION.replace("\"100ms\"", "\"20m\"")).expect("the temporary directory is writable");
    let mut server = Server::start_with(file, 0);
    // There are so many watchers that the server disconnects some of them late.
    let _watchers: Vec<TestProgram> = (0..8).map(|_| server.watch(&[])).collect();
    server.program.signal("TERM");
    server.program.errors.find("stopping");
    assert_eq!(server.program.stop().code(), Some(130), "the drain would take longer than PATIENCE");
}
