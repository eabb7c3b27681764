//! A crowd: clients that react at a common rate and watch the totals.

use std::io::{BufRead as _, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::messages::{CHANNEL, CrowdOrder, CrowdReport, OPTIONS};
use crate::part::say;
use crate::wire;

/// Maximum time until the sent reactions are in the totals.
const PATIENCE: Duration = Duration::from_secs(10);
/// Clients that are read between two looks at the clock.
const READ_AT_ONCE: usize = 64;

/// Runs orders until standard input ends.
pub(crate) fn run() -> Result<()> {
    let mut crowd = Crowd::default();
    for line in std::io::stdin().lock().lines() {
        let report = match serde_json::from_str(&line?)? {
            CrowdOrder::Open { address, connections, is_bare } => {
                crowd = Crowd::open(address, connections, is_bare)?;
                CrowdReport::Open
            }
            CrowdOrder::React { rate, seconds } => crowd.react(rate, seconds)?,
            CrowdOrder::Watch { seq } => CrowdReport::Watched { clients: crowd.watch(seq)? },
        };
        say(&report)?;
    }
    Ok(())
}

/// The clients that react.
#[derive(Default)]
struct Crowd {
    fans: Vec<Fan>,
    /// The client that is read next.
    next_read: usize,
    next_sent: usize,
}

struct Fan {
    socket: TcpStream,
    /// The greatest sum that it has seen.
    seq: u64,
}

impl Crowd {
    fn open(address: SocketAddr, connections: usize, is_bare: bool) -> Result<Self> {
        let open = |_| -> Result<Fan> {
            let mut socket = TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            if !is_bare {
                let subscribe = format!(r#"{{"id":2,"subscribe":{{"channel":"{CHANNEL}"}}}}"#);
                socket.write_all(&wire::handshake("lab", "/connection/websocket"))?;
                socket.write_all(&wire::text(&format!("{{\"id\":1,\"connect\":{{}}}}\n{subscribe}")))?;
                let (mut answer, mut some) = (Vec::new(), [0; 4_096]);
                while wire::find(&answer, b"\"subscribe\"").is_none() {
                    match socket.read(&mut some)? {
                        0 => bail!("the server closed the connection of a client"),
                        length => answer.extend_from_slice(&some[..length]),
                    }
                }
            }
            socket.set_nonblocking(true)?;
            Ok(Fan { socket, seq: 0 })
        };
        let fans = (0..connections).map(open).collect::<Result<_>>()?;
        Ok(Crowd { fans, next_read: 0, next_sent: 0 })
    }

    fn react(&mut self, rate: u64, seconds: u64) -> Result<CrowdReport> {
        let frames = OPTIONS.map(|option| {
            let data = format!(r#"{{"channel":"{CHANNEL}","option":"{option}","n":1}}"#);
            wire::text(&format!(r#"{{"send":{{"data":{{"method":"reactions.add","data":{data}}}}}}}"#))
        });
        let (began, mut sent) = (Instant::now(), 0);
        let count = rate * seconds;
        while sent < count {
            let due = ((began.elapsed().as_secs_f64() * rate as f64) as u64).min(count);
            if sent >= due {
                self.read_some()?;
                std::thread::sleep(Duration::from_micros(500));
            }
            while sent < due {
                self.send(&frames[(sent % 2) as usize])?;
                sent += 1;
            }
        }
        Ok(CrowdReport::Reacted { sent, seconds: began.elapsed().as_secs_f64() })
    }

    fn send(&mut self, frame: &[u8]) -> Result<()> {
        let number = self.next_sent % self.fans.len();
        self.next_sent += 1;
        let fan = self.fans.get_mut(number).context("the crowd is there")?;
        loop {
            match fan.socket.write(frame) {
                Ok(length) if length == frame.len() => return Ok(()),
                Ok(_) => bail!("a frame was written in part: the server does not read"),
                Err(error) if error.kind() == ErrorKind::WouldBlock => fan.read()?,
                Err(error) => return Err(error).context("a client was disconnected"),
            }
        }
    }

    fn read_some(&mut self) -> Result<()> {
        for _ in 0..READ_AT_ONCE.min(self.fans.len()) {
            self.next_read = (self.next_read + 1) % self.fans.len();
            self.fans[self.next_read].read()?;
        }
        Ok(())
    }

    fn watch(&mut self, seq: u64) -> Result<usize> {
        let until = Instant::now() + PATIENCE;
        loop {
            self.fans.iter_mut().try_for_each(Fan::read)?;
            let clients = self.fans.iter().filter(|fan| fan.seq == seq).count();
            if clients == self.fans.len() || Instant::now() > until {
                return Ok(clients);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Fan {
    /// Reads the received bytes, and records the last sum.
    fn read(&mut self) -> Result<()> {
        let mut some = [0; 4_096];
        loop {
            match self.socket.read(&mut some) {
                Ok(0) => bail!("the server closed the connection of a client"),
                Ok(length) => self.note(&some[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        let mark = b"\"seq\":";
        let mut rest = bytes;
        while let Some(at) = wire::find(rest, mark) {
            rest = &rest[at + mark.len()..];
            let digits: Vec<u8> = rest.iter().copied().take_while(u8::is_ascii_digit).collect();
            if let Some(seq) = std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok()) {
                self.seq = self.seq.max(seq);
            }
        }
    }
}
