//! The process at its limit of open files: accepted clients stay connected, waiting clients cost nothing, and the
//! server accepts clients as soon as there is room.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use touchline_testkit::PATIENCE;
use touchline_testkit::http::socket;
use touchline_testkit::process::TestProgram;
use touchline_testkit::websocket::{frame, handshake, text};

const BINARY: &str = env!("CARGO_BIN_EXE_touchline");
/// The limit of open files of the server. The server needs about thirty for itself.
const OPEN_FILES: usize = 128;
const CROWD: usize = 400;

struct Server {
    program: TestProgram,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let script = format!(
            "ulimit -n {OPEN_FILES} && exec \"$0\" serve --dev --no-match --port 0 --shards 2 --log-level info"
        );
        let program = TestProgram::start(Command::new("sh").args(["-c", &script, BINARY]));
        let address = program.address();
        Server { program, address }
    }

    fn connect(&self) -> TcpStream {
        let mut socket = socket(self.address);
        socket.write_all(handshake("").as_bytes()).expect("the kernel accepts the bytes");
        socket
    }

    /// The processor time of the process in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.program.id())).expect("it runs");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum()
    }
}

fn is_upgraded(socket: &mut TcpStream) -> bool {
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).is_ok() && answer.starts_with(b"HTTP/1.1 101")
}

/// Whether the server answers a WebSocket ping (with a mask of zeros) with its pong.
fn is_served(socket: &mut TcpStream) -> bool {
    let mut rest = [0; 1024];
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket takes a timeout");
    while socket.read(&mut rest).is_ok_and(|length| length > 0) {}
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    let mut pong = [0; 4];
    socket.write_all(&frame(0x89, b"ok")).is_ok() && socket.read_exact(&mut pong).is_ok() && &pong == b"\x8a\x02ok"
}

#[test]
fn a_crowd_beyond_the_open_files_waits_outside_and_costs_nothing() {
    let server = Server::start();
    let mut first = server.connect();
    assert!(is_upgraded(&mut first));
    // The server closes connections that have not connected when others need room, so this client connects.
    first.write_all(&text(r#"{"id":1,"connect":{}}"#)).expect("the kernel takes it");
    let mut crowd: Vec<TcpStream> = (0..CROWD).map(|_| server.connect()).collect();
    // Once the server has accepted as many connections as it can, it waits. A loop that tries again at once would use
    // two whole threads for ever: 200 ticks a second.
    let used_in_a_second = || {
        let before = server.ticks();
        // waits: the test measures the processor time of a second.
        std::thread::sleep(Duration::from_secs(1));
        server.ticks() - before
    };
    assert!((0..20).any(|_| used_in_a_second() < 50), "the server still uses its processors");
    assert!(is_served(&mut first), "the accepted client is served");
    // The clients at the front disconnect, and the server accepts the clients behind them.
    drop(crowd.drain(..CROWD - 20));
    for socket in &mut crowd {
        assert!(is_upgraded(socket), "the server has room again");
    }
    assert!(is_served(&mut first));
}
