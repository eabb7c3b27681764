//! The first start for a new user: `serve` asks for secrets, and a bare `touchline` makes them and shows the next
//! steps.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::json;
use touchline_testkit::http::{TestClient, raw};
use touchline_testkit::process::TestProgram;
use touchline_testkit::until;

const BINARY: &str = env!("CARGO_BIN_EXE_touchline");

/// Starts a `touchline` without a configuration.
fn start(arguments: &[&str]) -> TestProgram {
    TestProgram::start(Command::new(BINARY).args(arguments).args(["--port", "0"]))
}

/// The address of the page for fans, which the server prints.
fn address(dev: &TestProgram) -> SocketAddr {
    let page = dev.out.next("Fans");
    let address = page.split("http://").nth(1).expect("an address").trim_end_matches('/');
    address.parse().expect("an address")
}

/// The head and the body of a page.
fn get(address: SocketAddr, path: &str) -> String {
    raw(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
}

#[test]
fn without_secrets_it_refuses_and_says_how_to_make_them() {
    let output = Command::new(BINARY).arg("serve").env_clear().output().expect("the binary runs");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    for hint in ["client.token.hmac_secret_key", "touchline genconfig", "serve --dev"] {
        assert!(said.contains(hint), "{hint} is not in: {said}");
    }
}

#[test]
fn a_generated_configuration_is_enough() {
    let generated = Command::new(BINARY).arg("genconfig").output().expect("the binary runs");
    let file = std::env::temp_dir().join(format!("touchline-serve-{}.toml", std::process::id()));
    std::fs::write(&file, &generated.stdout).expect("the temporary directory is writable");
    let checked = Command::new(BINARY).arg("check").arg(&file).output().expect("the binary runs");
    let _ = std::fs::remove_file(&file);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn a_bare_start_shows_the_pages_and_a_line_that_works_when_pasted() {
    let dev = start(&["--no-match"]);
    let address = address(&dev);
    assert!(dev.out.next("Reporter").contains("/reporter#key="));
    let curl = dev.out.next("curl http://").trim().to_owned();
    let fan = get(address, "/");
    assert!(fan.contains("<title>Live match</title>"));
    let script = fan.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a script");
    assert!(get(address, "/reporter").contains("Goal"));
    assert!(get(address, script).contains("text/javascript"));
    let pasted = Command::new("sh").args(["-c", &curl]).output().expect("sh runs");
    let answer = String::from_utf8_lossy(&pasted.stdout).into_owned();
    assert!(
        answer.contains(r#""result":{"offset":1"#),
        "{curl} gave {answer} {}",
        String::from_utf8_lossy(&pasted.stderr)
    );
}

#[test]
fn the_demo_plays_by_itself() {
    let dev = start(&[]);
    let address = address(&dev);
    let key = dev.out.next("Reporter").split("#key=").nth(1).expect("a key").to_owned();
    let mut client = TestClient::new(address, &key);
    let body = json!({"channel": "match:live", "limit": 1});
    until("a match is played", || client.api("history", &body).to_string().contains("lineup"));
}
