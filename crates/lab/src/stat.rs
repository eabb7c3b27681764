//! The kernel's one-line status of a process.

use std::fs;

/// When a process was started, clock ticks since the start of the machine; `None` = there is none with this number.
pub(crate) fn started_at(pid: u32) -> Option<u64> {
    stat_field(pid, 22)?.parse().ok()
}

/// Whether a process has a socket that listens at a port of TCP.
pub(crate) fn listens(pid: u32, port: u16) -> bool {
    let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let socket_of = |row: &str| {
        let fields: Vec<&str> = row.split_ascii_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        let is_listening = fields.get(3) == Some(&"0A");
        let port = u16::from_str_radix(port, 16).ok().filter(|_| is_listening)?;
        Some((port, format!("socket:[{}]", fields.get(9)?)))
    };
    let sockets: Vec<String> =
        rows.filter_map(socket_of).filter(|(of, _)| *of == port).map(|(_, socket)| socket).collect();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

/// A field of `/proc/PID/stat` by its number in proc(5), from 3 on.
pub(crate) fn stat_field(pid: u32, number: usize) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, which may hold anything.
    text.rsplit_once(") ")?.1.split_ascii_whitespace().nth(number - 3).map(str::to_owned)
}
