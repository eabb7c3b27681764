//! The real server as a child process, clients written by hand, and the watch that measures what an attack costs
//! others.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

pub(crate) mod http;
pub(crate) mod lines;
pub(crate) mod protobuf;
pub(crate) mod server;
pub(crate) mod token;
pub(crate) mod two;
pub(crate) mod watch;
pub(crate) mod websocket;

/// The duration of a flood.
pub(crate) const FLOOD: Duration = Duration::from_millis(2_000);
/// Bytes of a mebibyte.
pub(crate) const MIB: u64 = 1024 * 1024;

/// Runs one attack at a time, so that each attack has the machine alone.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static RAISED: Once = Once::new();
    RAISED.call_once(raise_descriptors);
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Raises the limit of descriptors of this process and its servers to the allowed maximum: crowds need about 16,000.
fn raise_descriptors() {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let most = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().nth(1));
    let most = most.expect("there is a limit of open files");
    let process = std::process::id().to_string();
    let raised = Command::new("prlimit").args(["--pid", &process, &format!("--nofile={most}:{most}")]).status();
    assert!(raised.is_ok_and(|status| status.success()), "prlimit is there (Debian package util-linux)");
}

/// Whether TOUCHLINE_ATTACKS_LONG asks for attacks at full size, which run for minutes.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TOUCHLINE_ATTACKS_LONG").is_some()
}

/// A pause of an attacker or of a measurement.
pub(crate) fn pause(lasting: Duration) {
    // waits: attacks and measurements last for a known time.
    std::thread::sleep(lasting);
}

/// The first number for short attacks, the second for long ones.
pub(crate) fn size(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}
