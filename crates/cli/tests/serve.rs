//! The first start for a new user: `serve` asks for secrets, and a bare `touchline` makes them and shows the next
//! steps.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_touchline");
const PATIENCE: Duration = Duration::from_secs(60);

/// A `touchline` without arguments, and its output.
struct Dev {
    child: Child,
    lines: Receiver<String>,
}

impl Dev {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.args(arguments).args(["--port", "0"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary runs");
        let out = BufReader::new(child.stdout.take().expect("the stream is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Dev { child, lines }
    }

    /// The next line that contains a text.
    fn line(&self, text: &str) -> String {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let line = self.lines.recv_timeout(PATIENCE).expect("it prints more");
            if line.contains(text) {
                return line.trim().to_owned();
            }
        }
        panic!("no line with {text}")
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("it listens");
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it answers in text");
    answer
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
    let dev = Dev::start(&["--no-match"]);
    let page = dev.line("Fans");
    let address = page.split("http://").nth(1).expect("an address").trim_end_matches('/').to_owned();
    assert!(dev.line("Reporter").contains("/reporter#key="));
    let curl = dev.line("curl http://");
    let fan = get(&address, "/");
    assert!(fan.contains("<title>Live match</title>"));
    let script = fan.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a script");
    assert!(get(&address, "/reporter").contains("Goal"));
    assert!(get(&address, script).contains("text/javascript"));
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
    let dev = Dev::start(&[]);
    let page = dev.line("Fans");
    let address = page.split("http://").nth(1).expect("an address").trim_end_matches('/').to_owned();
    let key = dev.line("Reporter").split("#key=").nth(1).expect("a key").to_owned();
    let began = Instant::now();
    loop {
        let mut socket = TcpStream::connect(&address).expect("it listens");
        let body = r#"{"channel":"match:live","limit":1}"#;
        let head = format!(
            "POST /api/history HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all((head + body).as_bytes()).expect("it reads");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("it answers in text");
        if answer.contains("lineup") {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "no match is played: {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
