//! The real server as a child process, clients made by hand, and the watch that sees what an attack costs others.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

pub(crate) mod http;
pub(crate) mod lines;
pub(crate) mod protobuf;
pub(crate) mod server;
pub(crate) mod token;
pub(crate) mod two;
pub(crate) mod watch;
pub(crate) mod websocket;

/// No step of a test takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long a flood lasts.
pub(crate) const FLOOD: Duration = Duration::from_millis(2_000);
/// A mebibyte.
pub(crate) const MIB: u64 = 1024 * 1024;

/// One attack at a time: each is to have the machine alone.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static RAISED: Once = Once::new();
    RAISED.call_once(raise_descriptors);
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets this process, and servers that it starts, have as many descriptors as they may: crowds need some 16,000.
fn raise_descriptors() {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let most = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().nth(1));
    let most = most.expect("there is a limit of open files");
    let process = std::process::id().to_string();
    let raised = Command::new("prlimit").args(["--pid", &process, &format!("--nofile={most}:{most}")]).status();
    assert!(raised.is_ok_and(|status| status.success()), "prlimit is there (Debian package util-linux)");
}

/// Whether attacks are to be carried out at full size, for minutes: TOUCHLINE_ATTACKS_LONG.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TOUCHLINE_ATTACKS_LONG").is_some()
}

/// The first number where attacks are short, the second where they are long.
pub(crate) fn size(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

/// Waits for a condition; whether it came true in time.
pub(crate) fn comes(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + within;
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
