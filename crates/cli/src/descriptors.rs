//! File descriptors: each connection takes one, and systems give a process few of them unless it asks.

/// Descriptors kept for the rest of the process: databases, other nodes, logs and what comes and goes.
const RESERVE: u64 = 32;

/// Asks the system for as many descriptors as this process may have, and tells how many that is. A system that refuses
/// leaves what there was.
pub(crate) fn raise() -> u64 {
    rlimit::increase_nofile_limit(u64::MAX).or_else(|_| rlimit::Resource::NOFILE.get_soft()).unwrap_or_default()
}

/// Connections that so many descriptors allow besides those in use. A WebSocket over HTTP/2 takes two.
pub(crate) fn connections(limit: u64) -> u64 {
    let in_use = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    limit.saturating_sub(in_use + RESERVE)
}
