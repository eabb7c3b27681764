//! What systemd, or another program that speaks its protocol (sd_notify(3)), is told of this process. Without one
//! nothing is sent.
//!
//! The crate `sd-notify` waits for ever where nobody reads the socket, and does not know abstract names: a service
//! manager that hangs must not hold up a signal.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use touchline_server::ServerHandle;

/// Names the socket of the service manager.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// How long the service manager waits for a sign of life, microseconds, and the process that it means.
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// Tries to tell what the service manager must know, and the time between them.
const TRIES: u32 = 10;
const TRY_INTERVAL: Duration = Duration::from_millis(50);
/// Time to end beside `shutdown.timeout`: databases are closed behind the drain.
const CLOSING_TIME: Duration = Duration::from_secs(20);

/// Tells that the node serves.
pub(crate) async fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={}\n", in_a_line(status))).await;
}

/// Tells that the configuration is read again, until [`ready`].
pub(crate) async fn reloading() {
    let now_us = monotonic_us().map_or(String::new(), |now| format!("MONOTONIC_USEC={now}\n"));
    tell(&format!("RELOADING=1\n{now_us}")).await;
}

/// Tells that the node drains, and how long that can take: a limit of the unit that is shorter does not end it.
pub(crate) async fn stopping(drain: Duration) {
    let limit = (drain + CLOSING_TIME).as_micros();
    let status = format!("draining: clients are told to go, within {} s", drain.as_secs());
    tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={limit}\nSTATUS={status}\n")).await;
}

/// Tells again and again that the node lives, as often as the service manager wants it: while every event loop turns.
/// If one does not, nothing is told, and the service manager starts the process anew. For ever pending if nobody wants
/// it.
pub(crate) async fn keep_alive(server: ServerHandle) {
    let Some(limit) = watchdog_limit() else { return std::future::pending().await };
    loop {
        // Twice in the time that the service manager waits, as sd_watchdog_enabled(3) has it.
        tokio::time::sleep(limit / 2).await;
        if !server.turns().await {
            tracing::error!("an event loop does not turn: the service manager is not told that this process lives");
        } else if let Err(error) = send("WATCHDOG=1\n") {
            tracing::debug!(%error, "a sign of life was not sent to the service manager");
        }
    }
}

/// How long the service manager waits for a sign of life of this process; `None` = it wants none.
fn watchdog_limit() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let of_us = std::env::var_os(WATCHDOG_PID).is_none() || number(WATCHDOG_PID) == Some(std::process::id().into());
    number(WATCHDOG_USEC).filter(|limit| *limit > 0 && of_us).map(Duration::from_micros)
}

/// Sends a message that the service manager must get; gives up where it does not read.
async fn tell(message: &str) {
    for _ in 1..TRIES {
        match send(message) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(TRY_INTERVAL).await,
            Err(error) => return tracing::warn!(%error, "the service manager ({NOTIFY_SOCKET}) cannot be told"),
            Ok(()) => return,
        }
    }
    tracing::warn!("the service manager ({NOTIFY_SOCKET}) does not read what it is told");
}

/// Sends a message without waiting.
fn send(message: &str) -> io::Result<()> {
    let Some(path) = std::env::var_os(NOTIFY_SOCKET).filter(|path| !path.is_empty()) else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address(&path)?).map(drop)
}

/// The address of a socket: a path, or behind an `@` an abstract name.
fn address(path: &OsStr) -> io::Result<SocketAddr> {
    match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    }
}

/// The time of the clock that systemd orders messages by, microseconds. `None` = the system does not tell.
fn monotonic_us() -> Option<u64> {
    // The first number is the time since the start, in seconds with a fraction.
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some((seconds * 1e6) as u64)
}

/// A text without control characters: each line of a message is a variable.
fn in_a_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
