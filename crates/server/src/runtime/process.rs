//! What the system tells about this process and its machine.

use std::fs;

/// The version of this server, as clients and `info` see it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Ticks of a second in which Linux counts the time of processes (proc(5)).
const TICKS: f64 = 100.0;

/// The machine's name; `node` if the system does not tell it.
pub(crate) fn host_name() -> String {
    let told = fs::read_to_string("/proc/sys/kernel/hostname").ok().or_else(|| std::env::var("HOSTNAME").ok());
    told.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or_else(|| "node".to_owned())
}

/// Bytes of memory that the process holds; 0 = the system does not tell.
pub(crate) fn resident() -> u64 {
    fs::read_to_string("/proc/self/status").ok().and_then(|status| resident_of(&status)).unwrap_or_default()
}

/// Processor time that the process has used since its start, seconds; 0 = the system does not tell.
pub(crate) fn processor_s() -> f64 {
    fs::read_to_string("/proc/self/stat").ok().and_then(|stat| ticks_of(&stat)).unwrap_or_default() as f64 / TICKS
}

/// `VmRSS` out of `/proc/self/status`, bytes.
fn resident_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1_024)
}

/// `utime` and `stime` out of `/proc/self/stat`. The program's name before them may hold anything.
fn ticks_of(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    user.checked_add(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_where_they_stand() {
        assert_eq!(resident_of("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2_097_152));
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 900 0 0 0 120 30 0 0 20 0 4 0 100 1 1";
        assert_eq!(ticks_of(stat), Some(150));
        assert_eq!((resident_of(""), ticks_of("7 (a")), (None, None));
        assert!(resident() > 0 && !host_name().is_empty());
    }
}
