//! Status messages to systemd or another service manager with its protocol (sd_notify(3)). Without a service manager
//! nothing is sent.
//!
//! The crate `sd-notify` would block for ever if nobody reads the socket, and does not support abstract names. A
//! service manager that hangs must not delay the handling of a signal.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use touchline_server::ServerHandle;

/// The variable with the path of the service manager's socket.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// The variables with the watchdog time of the service manager, microseconds, and with the process that it applies to.
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// How often an important message is tried, and the time between two tries.
const TRIES: u32 = 10;
const TRY_INTERVAL: Duration = Duration::from_millis(50);
/// Time to stop in addition to `shutdown.timeout`, because databases are closed after the drain.
const CLOSING_TIME: Duration = Duration::from_secs(20);

/// Reports that the node serves.
pub(crate) async fn ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={}\n", in_a_line(status))).await;
}

/// Reports that the configuration is being read again. [`ready`] ends this state.
pub(crate) async fn reloading() {
    let now_us = monotonic_us().map_or(String::new(), |now| format!("MONOTONIC_USEC={now}\n"));
    tell(&format!("RELOADING=1\n{now_us}")).await;
}

/// Reports that the node drains, and extends the stop timeout of the unit to `timeout` and [`CLOSING_TIME`]. `clients`
/// is the number of clients to disconnect, and `over` is the time until all have been disconnected.
pub(crate) async fn stopping(timeout: Duration, (clients, over): (u64, Duration)) {
    let limit = (timeout + CLOSING_TIME).as_micros();
    let status = format!("draining: disconnecting {clients} clients over {:.0} s", over.as_secs_f64().ceil());
    tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={limit}\nSTATUS={status}\n")).await;
}

/// Reports regularly that the node is alive, as often as the service manager requires, while every event loop runs. If
/// an event loop hangs, nothing is sent, and the service manager restarts the process. The future is pending for ever
/// if there is no watchdog.
pub(crate) async fn keep_alive(server: ServerHandle) {
    let Some(limit) = watchdog_limit() else { return std::future::pending().await };
    loop {
        // Twice within the watchdog time, as sd_watchdog_enabled(3) recommends.
        tokio::time::sleep(limit / 2).await;
        if !server.turns().await {
            tracing::error!("an event loop hangs: the service manager is not notified that this process is alive");
        } else if let Err(error) = send("WATCHDOG=1\n") {
            tracing::debug!(%error, "the watchdog message was not sent to the service manager");
        }
    }
}

/// The watchdog time for this process. `None` = the service manager has no watchdog for it.
fn watchdog_limit() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let of_us = std::env::var_os(WATCHDOG_PID).is_none() || number(WATCHDOG_PID) == Some(std::process::id().into());
    number(WATCHDOG_USEC).filter(|limit| *limit > 0 && of_us).map(Duration::from_micros)
}

/// Sends an important message. It gives up after some tries if the service manager does not read.
async fn tell(message: &str) {
    for _ in 1..TRIES {
        match send(message) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(TRY_INTERVAL).await,
            Err(error) => return tracing::warn!(%error, "the service manager ({NOTIFY_SOCKET}) cannot be notified"),
            Ok(()) => return,
        }
    }
    tracing::warn!("the service manager ({NOTIFY_SOCKET}) does not read its messages");
}

/// Sends a message without blocking. Does nothing without a service manager.
fn send(message: &str) -> io::Result<()> {
    let Some(path) = std::env::var_os(NOTIFY_SOCKET).filter(|path| !path.is_empty()) else { return Ok(()) };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message.as_bytes(), &address(&path)?).map(drop)
}

/// The address of a socket: a path, or after an `@` an abstract name.
fn address(path: &OsStr) -> io::Result<SocketAddr> {
    match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    }
}

/// The monotonic time by which systemd orders messages, microseconds. `None` = the system does not report it.
fn monotonic_us() -> Option<u64> {
    // The first number is the time since the start of the system, in seconds with a fraction.
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some((seconds * 1e6) as u64)
}

/// The text without control characters, because each line of a message is a variable.
fn in_a_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
