//! The limits of this machine, read from the kernel. This module changes nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// From this value on there is no memory limit: version 1 of control groups reports such a number.
const NO_LIMIT: u64 = 1 << 60;

/// What the kernel reports. `None` = it does not report the value, as in some containers or on another system.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Machine {
    /// Files that this process may open. The process raises its limit to this value.
    pub(super) files_of_process: Option<u64>,
    /// Files that all processes may open.
    pub(super) files: Option<u64>,
    /// Files that are open on the machine.
    pub(super) files_open: Option<u64>,
    /// Maximum number of connections that wait to be accepted (`net.core.somaxconn`).
    pub(super) backlog: Option<u64>,
    /// Ports of outgoing connections, first and last.
    pub(super) ports: Option<(u64, u64)>,
    /// Memory of all TCP buffers above which the kernel drops incoming data, bytes.
    pub(super) tcp_bytes: Option<u64>,
    /// Connections that the firewall tracks, and their maximum. `None` = it tracks none, or the kernel does not report
    /// it.
    pub(super) tracked: Option<(u64, u64)>,
    /// Whether the network settings can be read.
    pub(super) tells_network: bool,
    /// Available memory, bytes.
    pub(super) memory_available: Option<u64>,
    /// Memory that the control group of this process may use, bytes. `None` = it has no limit.
    pub(super) memory_of_group: Option<u64>,
    /// Processors that the control group may use, in thousandths. `None` = it has no limit.
    pub(super) millicores_of_group: Option<u64>,
    /// Processors that this process may run on.
    pub(super) processors: u64,
    /// The clock source of the kernel, such as `tsc`.
    pub(super) clock_source: Option<String>,
    /// Whether a time service has set the clock. `None` = no known time service runs here.
    pub(super) is_clock_synchronized: Option<bool>,
}

impl Machine {
    /// Reads the current limits.
    pub(super) fn read() -> Self {
        let opened = numbers("/proc/sys/fs/file-nr");
        let ports = numbers("/proc/sys/net/ipv4/ip_local_port_range");
        let tracked = numbers("/proc/sys/net/netfilter/nf_conntrack_count");
        let tracked_max = numbers("/proc/sys/net/netfilter/nf_conntrack_max");
        let groups = groups();
        let of_groups = |file: &str| groups.iter().filter_map(|group| text(&group.join(file))).collect::<Vec<_>>();
        Machine {
            files_of_process: rlimit::Resource::NOFILE.get_hard().ok(),
            files: numbers("/proc/sys/fs/file-max").first().copied(),
            files_open: opened.first().copied(),
            backlog: numbers("/proc/sys/net/core/somaxconn").first().copied(),
            ports: ports.first().copied().zip(ports.get(1).copied()),
            tcp_bytes: numbers("/proc/sys/net/ipv4/tcp_mem").get(2).map(|pages| pages.saturating_mul(page_bytes())),
            tells_network: Path::new("/proc/sys/net/core").is_dir(),
            tracked: tracked.first().copied().zip(tracked_max.first().copied()),
            memory_available: text(Path::new("/proc/meminfo")).and_then(|text| kib_of(&text, "MemAvailable:")),
            memory_of_group: [of_groups("memory.max"), of_groups("memory.limit_in_bytes")]
                .iter()
                .flatten()
                .filter_map(|text| text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT))
                .min(),
            millicores_of_group: of_groups("cpu.max")
                .iter()
                .filter_map(|text| millicores(text))
                .chain(groups.iter().filter_map(|group| quota_of(group)))
                .min(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            clock_source: text(Path::new("/sys/devices/system/clocksource/clocksource0/current_clocksource"))
                .map(|text| text.trim().to_owned()),
            is_clock_synchronized: is_clock_synchronized(),
        }
    }
}

/// The control groups of this process and their ancestors: those of version 2, and those of version 1 that limit memory
/// and processors.
fn groups() -> Vec<PathBuf> {
    let own = text(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    let mut groups = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let top = match controllers {
            "" => root.to_owned(),
            names if names.split(',').any(|name| name == "memory") => root.join("memory"),
            names if names.split(',').any(|name| name == "cpu") => root.join("cpu"),
            _ => continue,
        };
        let own = top.join(path.trim_start_matches('/'));
        groups.extend(own.ancestors().take_while(|group| group.starts_with(&top)).map(Path::to_owned));
    }
    groups
}

/// The quota of a control group of version 1, thousandths of a processor. `None` = no limit.
fn quota_of(group: &Path) -> Option<u64> {
    let number = |file| text(&group.join(file))?.trim().parse::<u64>().ok();
    number("cpu.cfs_quota_us")?.saturating_mul(1_000).checked_div(number("cpu.cfs_period_us")?)
}

/// Whether systemd's time service reports that it has set the clock. `None` = it does not run.
fn is_clock_synchronized() -> Option<bool> {
    let service = Path::new("/run/systemd/timesync");
    service.is_dir().then(|| service.join("synchronized").exists())
}

/// The size of a page, bytes.
fn page_bytes() -> u64 {
    let maps = text(Path::new("/proc/self/smaps")).unwrap_or_default();
    kib_of(&maps, "KernelPageSize:").unwrap_or(4_096)
}

/// A quota of processor time (`cpu.max`: microseconds, and the period), thousandths of a processor. `None` = no limit.
fn millicores(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.saturating_mul(1_000).checked_div(period)
}

/// The value of the first line with this name, such as `MemAvailable: 12 kB`, in bytes.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let kib: u64 = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())?;
    Some(kib << 10)
}

fn numbers(path: &str) -> Vec<u64> {
    let words = text(Path::new(path)).unwrap_or_default();
    words.split_whitespace().map_while(|word| word.parse().ok()).collect()
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_understood() {
        assert_eq!(
            (millicores("max 100000\n"), millicores("150000 100000\n"), millicores("")),
            (None, Some(1_500), None)
        );
        assert_eq!(millicores("5 0"), None);
        assert_eq!(kib_of("MemTotal: 9 kB\nMemAvailable:   12 kB\n", "MemAvailable:"), Some(12 << 10));
        let machine = Machine::read();
        assert!(machine.processors > 0 && machine.files_of_process.is_some() && machine.memory_available.is_some());
    }
}
