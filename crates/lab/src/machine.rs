//! The limits of the machine for a run of the lab (files, memory, source addresses), and whether a step of the ladder
//! fits.

use std::fs;

use anyhow::{Context as _, Result};

/// Files of a process besides its connections.
const FILES_BESIDE: u64 = 200;
/// Memory of one connection with both ends, in server, load and kernel, bytes. Measured by `touchline-lab ladder`.
const BYTES_EACH: u64 = 11_000;
/// Memory of a process of the lab besides its connections, bytes.
const BYTES_OF_PROCESS: u64 = 12 << 20;
/// Pages of TCP buffers per connection while an event is sent to all.
const TCP_PAGES_EACH: f64 = 0.2;
/// Connections that the lab's source addresses allow: 4,000 of each of the addresses 127.x.0.1 to 127.x.0.254.
const ADDRESSED: u64 = 254 * 4_000;

/// Ends of connections for each entry of the kernel's table above which searches are noticed.
const LOOKUP_LOAD_MAX: u64 = 2;

/// The limits of the machine that bound how many connections it can hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MachineLimits {
    /// Files that all processes may open besides those that are open.
    files: u64,
    /// Files that one process may open.
    files_each: u64,
    /// Pages that the buffers of all TCP connections may use before the kernel drops incoming data.
    tcp_pages: u64,
    /// Memory that is available, bytes.
    bytes: u64,
    /// Connections that the kernel's tracking follows at a time. None = it does not follow those of the loopback.
    tracked: Option<u64>,
    /// Entries of the kernel's table of established connections. None = it does not tell.
    lookup_entries: Option<u64>,
}

/// The resources that a step of the ladder needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepNeeds {
    pub(crate) connections: u64,
    /// Maximum number of connections of one process.
    pub(crate) of_process: u64,
    /// Servers, and processes that hold the other ends.
    pub(crate) processes: u64,
}

impl MachineLimits {
    /// Reads the limits as they are now.
    ///
    /// # Errors
    /// When the system does not tell one of them.
    pub(crate) fn read() -> Result<Self> {
        let open = numbers("/proc/sys/fs/file-nr")?;
        let tracking = (numbers(TRACKED), numbers(TRACKED_MAX));
        Ok(MachineLimits {
            files: numbers("/proc/sys/fs/file-max")?.last().copied().unwrap_or(0) - open.first().copied().unwrap_or(0),
            files_each: files_of_process(&text("/proc/self/limits")?)?,
            // The limit applies to all network namespaces together.
            tcp_pages: numbers("/proc/sys/net/ipv4/tcp_mem").ok().and_then(|it| it.last().copied()).unwrap_or(u64::MAX),
            bytes: kib(&text("/proc/meminfo")?, "MemAvailable:").context("no MemAvailable in /proc/meminfo")? << 10,
            tracked: match tracking {
                (Ok(tracked), Ok(most)) if tracked.first() > Some(&0) => most.first().copied(),
                _ => None,
            },
            lookup_entries: numbers("/proc/sys/net/ipv4/tcp_ehash_entries")
                .ok()
                .and_then(|entries| entries.first().copied().filter(|entries| *entries > 0)),
        })
    }

    /// Says, in words, that the kernel will search long for the connection of each packet. None = it will not. It costs
    /// servers more than the floor, which exchanges fewer packets.
    pub(crate) fn slow_lookups(&self, connections: u64) -> Option<String> {
        let entries = self.lookup_entries.filter(|entries| 2 * connections > LOOKUP_LOAD_MAX * entries)?;
        Some(format!(
            "the kernel's table of connections has {entries} entries for {} ends, so each packet is searched for long; \
             after sysctl net.ipv4.tcp_child_ehash_entries=4194304 a new network namespace has a larger one",
            2 * connections
        ))
    }

    /// Each limit that is too low for a step, in words, with the setting that raises it. Empty = the step fits.
    pub(crate) fn obstacles(&self, needs: StepNeeds) -> Vec<String> {
        let StepNeeds { connections, of_process, processes } = needs;
        let bytes = connections * BYTES_EACH + processes * BYTES_OF_PROCESS;
        let limits = [
            (2 * connections + processes * FILES_BESIDE, self.files, "open files of the machine (sysctl fs.file-max)"),
            (of_process + FILES_BESIDE, self.files_each, "open files of a process (ulimit -Hn, sysctl fs.nr_open)"),
            (
                (connections as f64 * TCP_PAGES_EACH) as u64,
                self.tcp_pages,
                "pages for TCP's buffers (sysctl net.ipv4.tcp_mem, the third number)",
            ),
            (bytes >> 20, self.bytes >> 20, "MB of available memory"),
            (connections, ADDRESSED, "source addresses and ports of the lab"),
            (
                connections,
                self.tracked.unwrap_or(u64::MAX),
                "tracked connections (sysctl net.netfilter.nf_conntrack_max)",
            ),
        ];
        let short = limits.into_iter().filter(|(needed, allowed, _)| needed > allowed);
        short.map(|(needed, allowed, what)| format!("it needs {needed} {what}, and there are {allowed}")).collect()
    }
}

const TRACKED: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const TRACKED_MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// Memory that the kernel itself uses, bytes: its objects, stacks and tables of pages.
///
/// # Errors
/// When the system does not tell.
pub(crate) fn kernel_bytes() -> Result<f64> {
    let memory = text("/proc/meminfo")?;
    let parts = ["Slab:", "KernelStack:", "PageTables:", "Percpu:"];
    Ok(parts.iter().filter_map(|part| kib(&memory, part)).sum::<u64>() as f64 * 1_024.0)
}

fn text(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {path}"))
}

fn numbers(path: &str) -> Result<Vec<u64>> {
    let words = text(path)?;
    words.split_whitespace().map(|word| word.parse().with_context(|| format!("{path} is not numbers"))).collect()
}

/// A line of `/proc/meminfo`, KiB.
fn kib(memory: &str, name: &str) -> Option<u64> {
    memory.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// The hard limit of open files, from the text of `/proc/self/limits`. Servers and workers raise theirs to it.
fn files_of_process(limits: &str) -> Result<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(1)).context("no limit of open files")?;
    if hard == "unlimited" { Ok(u64::MAX) } else { hard.parse().context("the limit of open files is not a number") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MachineLimits = MachineLimits {
        files: 2_500_000,
        files_each: 20_000,
        tcp_pages: 600_000,
        bytes: 20 << 30,
        tracked: None,
        lookup_entries: Some(262_144),
    };

    fn needs(connections: u64) -> StepNeeds {
        StepNeeds { connections, of_process: connections.min(18_000), processes: 2 * connections.div_ceil(16_000) }
    }

    #[test]
    fn a_step_fits_unless_a_limit_is_too_low_which_is_named() {
        assert_eq!(LIMITS.obstacles(needs(1_000_000)), [""; 0]);
        let cases = [
            (MachineLimits { files: 1_000_000, ..LIMITS }, "fs.file-max"),
            (MachineLimits { files_each: 1_024, ..LIMITS }, "ulimit"),
            (MachineLimits { tcp_pages: 50_000, ..LIMITS }, "tcp_mem"),
            (MachineLimits { bytes: 1 << 30, ..LIMITS }, "memory"),
            (MachineLimits { tracked: Some(262_144), ..LIMITS }, "nf_conntrack_max"),
        ];
        for (limits, named) in cases {
            let obstacles = limits.obstacles(needs(1_000_000));
            assert!(obstacles.len() == 1 && obstacles[0].contains(named), "{named}: {obstacles:?}");
            assert_eq!(limits.obstacles(needs(500)), [""; 0]);
        }
        assert!(LIMITS.obstacles(needs(1_020_000))[0].contains("source addresses"));
        assert!(LIMITS.slow_lookups(1_000_000).is_some_and(|hint| hint.contains("tcp_child_ehash_entries")));
        assert!(LIMITS.slow_lookups(100_000).is_none());
    }

    #[test]
    fn limits_are_read() {
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024          20000        files\n";
        assert_eq!(files_of_process(limits).unwrap(), 20_000);
        assert_eq!(kib("MemTotal: 5 kB\nSlab:   77 kB\n", "Slab:"), Some(77));
        let machine = MachineLimits::read().unwrap();
        assert!(machine.bytes > 1 << 20 && machine.files > 0 && kernel_bytes().unwrap() > 1e6);
    }
}
