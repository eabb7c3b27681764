//! What the system reports about this process and its machine.

use std::fs::{self, File};
use std::io::Read;
use std::sync::OnceLock;

/// The version of this server, as clients and `info` see it.
pub const VERSION: &str =
    if cfg!(debug_assertions) { concat!(env!("CARGO_PKG_VERSION"), "+quick") } else { env!("CARGO_PKG_VERSION") };

/// The platform that the program was built for: the processor's architecture and the C library.
pub(crate) const TARGET: &str = if cfg!(target_arch = "aarch64") {
    if cfg!(target_env = "musl") { "aarch64-linux-musl" } else { "aarch64-linux-gnu" }
} else if cfg!(target_env = "musl") {
    "x86_64-linux-musl"
} else {
    "x86_64-linux-gnu"
};

/// The size of the files that [`read_short`] reads, in bytes. The longest has 52 numbers of at most 20 digits.
const SHORT_FILE: usize = 1_200;
/// How many ticks a second has in which Linux counts the time of processes (proc(5)).
const TICKS: f64 = 100.0;

/// What the system reports about a process; 0 = the system does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ProcessFigures {
    /// Processor time since the start, in seconds.
    pub(crate) processor_s: f64,
    /// Resident memory, in bytes.
    pub(crate) resident: u64,
    /// Address space, in bytes.
    pub(crate) virtual_size: u64,
    pub(crate) threads: u64,
    /// The number of open file descriptors; one of them is open to read this number.
    pub(crate) open_files: u64,
    /// The limit of open file descriptors.
    pub(crate) files_max: u64,
    /// When the process started, seconds since the Unix epoch.
    pub(crate) started_s: u64,
}

impl ProcessFigures {
    /// Reads the figures of this process.
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

/// The number of open file descriptors. Since Linux 6.2 it is the size of their directory. Before, that size is 0, and
/// they are counted one by one.
fn open_files() -> u64 {
    let path = "/proc/self/fd";
    match fs::metadata(path).map_or(0, |directory| directory.len()) {
        0 => fs::read_dir(path).map_or(0, |files| files.count() as u64),
        number => number,
    }
}

/// Processor time that this process has used since its start, in seconds; 0 = the system does not report it.
pub(crate) fn process_processor_s() -> f64 {
    thread_processor_s("/proc/self")
}

/// How long the processors of the machine were idle since the machine started, in seconds, summed over all of them; 0 =
/// the system does not report it.
pub(crate) fn machine_idle_s() -> f64 {
    read_short("/proc/uptime", idle_of).unwrap_or_default()
}

/// Reads the idle time: the second number of `/proc/uptime`.
fn idle_of(uptime: &str) -> Option<f64> {
    uptime.split_whitespace().nth(1)?.parse().ok()
}

/// The directory of this thread in `/proc`, where other threads read what it uses; empty = the system has none.
pub(crate) fn thread_directory() -> String {
    let link = fs::read_link("/proc/thread-self");
    link.map_or(String::new(), |link| format!("/proc/{}", link.display()))
}

/// Processor time that a thread has used, in seconds; 0 = the system does not report it.
pub(crate) fn thread_processor_s(directory: &str) -> f64 {
    read_short(&format!("{directory}/stat"), ticks_of).unwrap_or_default() as f64 / TICKS
}

/// Reads a value from a short file of `/proc`, which the system returns in one read. The text needs no memory of the
/// allocator: a large buffer each second makes it rearrange its free blocks, which costs more than the reading.
fn read_short<T>(path: &str, value_of: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut buffer = [0; SHORT_FILE];
    let length = File::open(path).ok()?.read(&mut buffer).ok()?;
    value_of(std::str::from_utf8(&buffer[..length]).ok()?)
}

/// The machine's name; `node` if the system does not report it.
pub(crate) fn host_name() -> String {
    let told = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    told.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or_else(|| "node".to_owned())
}

/// Bytes of memory that the process holds; 0 = the system does not report it.
pub(crate) fn resident() -> u64 {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| kibibytes_of(&status, "VmRSS:")).unwrap_or_default()
}

/// Processor time that the process has used since its start, in seconds; 0 = the system does not report it.
pub(crate) fn processor_s() -> f64 {
    fs::read_to_string("/proc/self/stat").ok().and_then(|stat| ticks_of(&stat)).unwrap_or_default() as f64 / TICKS
}

/// Reads a size from `/proc/self/status`, in bytes.
fn kibibytes_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1_024)
}

/// Adds `utime` and `stime` from `/proc/self/stat`. The program's name before them may contain any characters.
fn ticks_of(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    user.checked_add(system)
}

/// When the process started, as it was read first. The system counts from a time that moves with its clock.
static STARTED_S: OnceLock<u64> = OnceLock::new();

fn started_s(stat: &str) -> u64 {
    let booted_s = fs::read_to_string("/proc/stat").ok().and_then(|stat| booted_s_of(&stat)).unwrap_or_default();
    started_ticks_of(stat).map_or(0, |ticks| booted_s + (ticks as f64 / TICKS) as u64)
}

/// Reads `starttime` from `/proc/self/stat`: ticks since the machine started.
fn started_ticks_of(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Reads the soft limit of open files from `/proc/self/limits`.
fn files_max_of(limits: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

/// Reads `btime` from `/proc/stat`: when the machine started, seconds since the Unix epoch.
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
        assert_eq!((idle_of("12.50 7.25\n"), idle_of("12.50")), (Some(7.25), None));
        assert!(machine_idle_s() > 0.0);
        let read = ProcessFigures::read();
        let is_plausible = read.resident < read.virtual_size && read.open_files > 2 && read.open_files < read.files_max;
        assert!(is_plausible && read.threads > 0 && read.started_s > 1_700_000_000, "{read:?}");
        assert!(resident() > 0 && !host_name().is_empty());
    }
}
