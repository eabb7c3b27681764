//! The floor: what the bare machine takes for a delivery. One thread, plain sockets, one prebuilt frame an event, one send each.

use std::io::{BufRead as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::process::now_us;
use crate::way::Way;
use crate::wire;
use crate::worker::channel_name;

const BACKLOG: i32 = 4_096;

/// What the floor's sender is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FloorOrder {
    /// Accept so many readers and acknowledge each.
    Accept { connections: usize, way: Way },
    /// Send events, each to the readers of one channel after the other.
    Send(Sending),
}

/// What the floor sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sending {
    pub(crate) prefix: String,
    pub(crate) channels: usize,
    /// Events, of all channels together.
    pub(crate) messages: usize,
    /// Events a second; as fast as possible where it is zero.
    pub(crate) rate: f64,
    /// Events in one send.
    pub(crate) coalesce: usize,
    pub(crate) size: usize,
    /// The bytes are those of this way.
    pub(crate) way: Way,
}

/// What it says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FloorReport {
    /// Where it listens.
    Listening { address: SocketAddr },
    /// Everybody is in.
    Accepted,
    /// Everything is sent.
    Sent,
}

/// Obeys until standard input ends.
pub(crate) fn serve() -> Result<()> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    listener.listen(BACKLOG)?;
    let address = listener.local_addr()?.as_socket().context("the floor listens on TCP")?;
    say(&FloorReport::Listening { address })?;
    let mut readers: Vec<TcpStream> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        match serde_json::from_str(&line?)? {
            FloorOrder::Accept { connections, way } => {
                while readers.len() < connections {
                    let mut reader: TcpStream = listener.accept()?.0.into();
                    reader.set_nodelay(true)?;
                    reader.write_all(way.acknowledgement())?;
                    readers.push(reader);
                }
                say(&FloorReport::Accepted)?;
            }
            FloorOrder::Send(sending) => {
                send(&mut readers, &sending)?;
                say(&FloorReport::Sent)?;
            }
        }
    }
    Ok(())
}

fn send(readers: &mut [TcpStream], sending: &Sending) -> Result<()> {
    let Sending { ref prefix, channels, messages, rate, coalesce, size, way } = *sending;
    let began = Instant::now();
    let (mut sent, mut round) = (0, 0);
    while sent < messages {
        if rate > 0.0 {
            let due = began + Duration::from_secs_f64(sent as f64 / rate);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let (channel, first) = (round % channels, round / channels * coalesce + 1);
        let posted_us = now_us();
        let name = channel_name(prefix, channel);
        let frames: Vec<u8> =
            (first..first + coalesce).flat_map(|number| way.publication(&name, &wire::data(number as u64, posted_us, size))).collect();
        for reader in readers.iter_mut().skip(channel).step_by(channels) {
            reader.write_all(&frames)?;
        }
        round += 1;
        sent += coalesce;
    }
    Ok(())
}

fn say(report: &FloorReport) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
