//! What the kernel says of a process in one line.

use std::fs;

/// When a process was started, clock ticks since the start of the machine; `None` = there is none with this number.
pub(crate) fn started_at(pid: u32) -> Option<u64> {
    stat_field(pid, 22)?.parse().ok()
}

/// A field of `/proc/PID/stat` by its number in proc(5), from 3 on.
pub(crate) fn stat_field(pid: u32, number: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, which may hold anything.
    text.rsplit_once(") ")?.1.split_ascii_whitespace().nth(number - 3).map(str::to_owned)
}
