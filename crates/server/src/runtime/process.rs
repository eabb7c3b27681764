//! What the system tells about this process and its machine.

use std::fs;
use std::sync::OnceLock;

/// The version of this server, as clients and `info` see it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the program was built for: the processor's architecture and the C library.
pub(crate) const TARGET: &str = if cfg!(target_arch = "aarch64") {
    if cfg!(target_env = "musl") { "aarch64-linux-musl" } else { "aarch64-linux-gnu" }
} else if cfg!(target_env = "musl") {
    "x86_64-linux-musl"
} else {
    "x86_64-linux-gnu"
};

/// Ticks of a second in which Linux counts the time of processes (proc(5)).
const TICKS: f64 = 100.0;

/// What the system tells of a process; 0 = it does not.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ProcessFigures {
    /// Processor time since the start, seconds.
    pub(crate) processor_s: f64,
    /// Memory, bytes.
    pub(crate) resident: u64,
    /// Address space, bytes.
    pub(crate) virtual_size: u64,
    pub(crate) threads: u64,
    /// File descriptors that are open; one of them reads this number.
    pub(crate) open_files: u64,
    /// The most file descriptors.
    pub(crate) files_max: u64,
    /// When the process started, seconds since the Unix epoch.
    pub(crate) started_s: u64,
}

impl ProcessFigures {
    /// Those of this process.
    pub(crate) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        ProcessFigures {
            processor_s: ticks_of(&stat).unwrap_or_default() as f64 / TICKS,
            resident: kibibytes_of(&status, "VmRSS:").unwrap_or_default(),
            virtual_size: kibibytes_of(&status, "VmSize:").unwrap_or_default(),
            threads: threads.and_then(|text| text.trim().parse().ok()).unwrap_or_default(),
            open_files: open_files(),
            files_max: fs::read_to_string("/proc/self/limits")
                .ok()
                .and_then(|all| files_max_of(&all))
                .unwrap_or_default(),
            started_s: *STARTED_S.get_or_init(|| started_s(&stat)),
        }
    }
}

/// File descriptors that are open. The size of their directory is their number since Linux 6.2; before it is 0, and
/// they are counted one by one.
fn open_files() -> u64 {
    let path = "/proc/self/fd";
    match fs::metadata(path).map_or(0, |directory| directory.len()) {
        0 => fs::read_dir(path).map_or(0, |files| files.count() as u64),
        number => number,
    }
}

/// The directory of this thread in `/proc`, by which other threads ask what it uses; empty = the system does not tell.
pub(crate) fn thread_directory() -> String {
    let link = fs::read_link("/proc/thread-self");
    link.map_or(String::new(), |link| format!("/proc/{}", link.display()))
}

/// Processor time that a thread has used, seconds; 0 = the system does not tell.
pub(crate) fn thread_processor_s(directory: &str) -> f64 {
    let stat = fs::read_to_string(format!("{directory}/stat"));
    stat.ok().and_then(|stat| ticks_of(&stat)).unwrap_or_default() as f64 / TICKS
}

/// The machine's name; `node` if the system does not tell it.
pub(crate) fn host_name() -> String {
    let told = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    told.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or_else(|| "node".to_owned())
}

/// Bytes of memory that the process holds; 0 = the system does not tell.
pub(crate) fn resident() -> u64 {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| kibibytes_of(&status, "VmRSS:")).unwrap_or_default()
}

/// Processor time that the process has used since its start, seconds; 0 = the system does not tell.
pub(crate) fn processor_s() -> f64 {
    fs::read_to_string("/proc/self/stat").ok().and_then(|stat| ticks_of(&stat)).unwrap_or_default() as f64 / TICKS
}

/// A size out of `/proc/self/status`, bytes.
fn kibibytes_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1_024)
}

/// `utime` and `stime` out of `/proc/self/stat`. The program's name before them may hold anything.
fn ticks_of(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    user.checked_add(system)
}

/// When the process started, as it was read first: the system counts from a time that moves with its clock.
static STARTED_S: OnceLock<u64> = OnceLock::new();

fn started_s(stat: &str) -> u64 {
    let booted_s = fs::read_to_string("/proc/stat").ok().and_then(|stat| booted_s_of(&stat)).unwrap_or_default();
    started_ticks_of(stat).map_or(0, |ticks| booted_s + (ticks as f64 / TICKS) as u64)
}

/// `starttime` out of `/proc/self/stat`: ticks since the machine started.
fn started_ticks_of(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The soft limit of open files out of `/proc/self/limits`.
fn files_max_of(limits: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

/// `btime` out of `/proc/stat`: when the machine started, seconds since the Unix epoch.
fn booted_s_of(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_where_they_stand() {
        assert_eq!(kibibytes_of("Name:\tx\nVmRSS:\t    2048 kB\n", "VmRSS:"), Some(2_097_152));
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 900 0 0 0 120 30 0 0 20 0 4 0 100 1 1";
        assert_eq!(ticks_of(stat), Some(150));
        assert_eq!(started_ticks_of(stat), Some(100));
        assert_eq!(booted_s_of("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000));
        assert_eq!((kibibytes_of("", "VmRSS:"), ticks_of("7 (a"), started_ticks_of("7 (a")), (None, None, None));
        let read = ProcessFigures::read();
        let is_plausible = read.resident < read.virtual_size && read.open_files > 2 && read.open_files < read.files_max;
        assert!(is_plausible && read.threads > 0 && read.started_s > 1_700_000_000, "{read:?}");
        assert!(resident() > 0 && !host_name().is_empty());
    }
}
