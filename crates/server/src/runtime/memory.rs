//! How much memory the process may use.

use std::fs;

use touchline_config::Settings;

/// Files that contain the limit of a control group: version 2, then version 1.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
/// The memory that is assumed if the system does not report it, in bytes.
const UNKNOWN: usize = 1 << 30;

/// The memory that the node may hold for everything that waits, in bytes.
pub(crate) fn buffer_max_size(settings: &Settings) -> usize {
    match settings.node.buffer_max_size {
        0 => available() / 4,
        size => size,
    }
}

/// How many bytes the process may use: the machine's memory, or the limit of its control group if that is less.
fn available() -> usize {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let limits =
        LIMITS.iter().filter_map(|path| fs::read_to_string(path).ok()).filter_map(|text| text.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(UNKNOWN)
}

/// Reads the machine's memory from `/proc/meminfo` (proc(5)), in bytes.
fn total(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_kibibytes() {
        assert_eq!(total("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16_777_216));
        assert_eq!((total("MemTotal: many kB"), total("")), (None, None));
    }

    #[test]
    fn some_memory_is_available() {
        assert!(available() > 1 << 20);
    }
}
