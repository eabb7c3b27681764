//! File descriptors: each connection needs one, and a process gets only a few unless it raises its limit.

/// File descriptors reserved for other uses: databases, other nodes, logs and temporary files.
const RESERVE: u64 = 32;

/// Raises the limit of open files to the maximum for this process and returns the limit. If the system refuses, the
/// limit does not change. 0 = the limit is unknown.
pub(crate) fn raise() -> u64 {
    rlimit::increase_nofile_limit(u64::MAX).or_else(|_| rlimit::Resource::NOFILE.get_soft()).unwrap_or_default()
}

/// The number of connections that a limit of open files allows, besides the files in use. A WebSocket over HTTP/2 needs
/// two file descriptors.
pub(crate) fn connections(limit: u64) -> u64 {
    let in_use = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    limit.saturating_sub(in_use + RESERVE)
}
