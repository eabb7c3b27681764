//! Ports for servers that must know their port before they start, or that start again on the same port. Each suite has
//! its own range, and all ranges are below the ports that the kernel gives to outgoing connections.
//!
//! A server that binds port 0 itself needs none of these.

use std::fs::File;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The ports of Rust's tests. 10,000 to 17,999 belong to `tests/e2e`, and 23,000 to 26,999 to Python, Go, Java and
/// the packages.
const RUST: Range<u16> = 18_000..23_000;
/// The ports of the attacks.
const ATTACKS: Range<u16> = 27_000..30_000;
/// The name of the test program of the attacks.
const ATTACKS_PROGRAM: &str = "attacks-";

/// The locks of all ports that this process has got. They end with the process.
static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A free port in the range of this suite. No other test gets it while this process runs.
pub fn free_port() -> u16 {
    let program = std::env::current_exe().unwrap_or_default();
    let is_attack = program.file_name().is_some_and(|name| name.to_string_lossy().starts_with(ATTACKS_PROGRAM));
    let range = if is_attack { ATTACKS } else { RUST };
    let (first, size) = (range.start, range.len() as u16);
    let start = fastrand::u16(..size);
    let ports = (0..size).map(|step| first + (start + step) % size);
    let locked = ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).find_map(lock);
    let (port, lock) = locked.expect("the range of the suite has a free port");
    LOCKS.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
    port
}

/// Locks a port for this process. `None` if another test has it.
fn lock(port: u16) -> Option<(u16, File)> {
    let directory = std::env::temp_dir().join("touchline-ports");
    std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
    let file = File::create(directory.join(port.to_string())).expect("the directory is writable");
    file.try_lock().is_ok().then_some((port, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_different_and_in_the_range_of_rust() {
        let mut ports: Vec<u16> = (0..100).map(|_| free_port()).collect();
        assert!(ports.iter().all(|port| RUST.contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 100);
        assert!(lock(ports[0]).is_none());
    }
}
