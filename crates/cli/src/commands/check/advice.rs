//! What each limit of a machine means for a node, and which command changes it.

use std::fmt::Write as _;

use super::machine::Machine;
use crate::descriptors;

/// A limit that allows fewer connections is reported as low. A machine with two cores serves this number easily.
const CONNECTIONS_WANTED: u64 = 100_000;
/// A lower `net.core.somaxconn` is reported as low. This many waiting connections are needed if 100,000 clients
/// reconnect within seconds.
const BACKLOG_WANTED: u64 = 16_384;
/// Memory of TCP buffers that 100,000 connections can use in a burst, bytes: 16 KiB each.
const TCP_BYTES_WANTED: u64 = CONNECTIONS_WANTED * 16_384;
/// Memory of 100,000 connections in a node and in the kernel, bytes, measured by `touchline-lab ladder`.
const MEMORY_WANTED: u64 = CONNECTIONS_WANTED * 11_000;
/// Clock sources that can be read without a system call.
const CLOCK_SOURCES: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// A limit of the machine, with advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LimitAdvice {
    /// The name of the limit.
    what: &'static str,
    /// The value of the limit.
    value: String,
    /// What the limit means for a node.
    means: String,
    /// The command that changes the limit. `None` = there is no such command.
    change: Option<&'static str>,
    /// Whether the limit prevents 100,000 connections, or makes a node slow.
    is_low: bool,
}

/// The advice for each limit of a machine.
pub(super) fn advise(machine: &Machine) -> Vec<LimitAdvice> {
    [files(machine), network(machine), resources(machine), clock(machine)].concat()
}

fn files(machine: &Machine) -> Vec<LimitAdvice> {
    let mut advice = Vec::new();
    if let Some(files) = machine.files_of_process {
        let connections = descriptors::connections(files);
        advice.push(LimitAdvice {
            what: "open files of a process",
            value: files.to_string(),
            means: format!("{connections} connections of a node"),
            change: Some(
                "systemd: LimitNOFILE=1048576; containers: --ulimit nofile=1048576; shells: ulimit -Hn 1048576",
            ),
            is_low: connections < CONNECTIONS_WANTED,
        });
    }
    if let Some(files) = machine.files {
        let free = files.saturating_sub(machine.files_open.unwrap_or_default());
        advice.push(LimitAdvice {
            what: "open files of the machine",
            value: files.to_string(),
            means: format!("{free} more files for all processes together"),
            change: Some("sysctl -w fs.file-max=2097152"),
            is_low: free < CONNECTIONS_WANTED,
        });
    }
    advice
}

fn network(machine: &Machine) -> Vec<LimitAdvice> {
    let mut advice = Vec::new();
    if let Some(backlog) = machine.backlog {
        advice.push(LimitAdvice {
            what: "waiting connections (somaxconn)",
            value: backlog.to_string(),
            means: format!("up to {backlog} clients can connect at once; http_server.backlog can ask for more"),
            change: Some("sysctl -w net.core.somaxconn=65535"),
            is_low: backlog < BACKLOG_WANTED,
        });
    }
    if let Some((first, last)) = machine.ports {
        let ports = (last + 1).saturating_sub(first);
        advice.push(LimitAdvice {
            what: "ports of outgoing connections",
            value: format!("{first}–{last}"),
            means: format!("{ports} connections from a proxy on this machine to one port of a node"),
            change: Some("sysctl -w net.ipv4.ip_local_port_range='10240 65535'"),
            is_low: ports < 20_000,
        });
    }
    if let Some(bytes) = machine.tcp_bytes {
        advice.push(LimitAdvice {
            what: "memory of TCP (tcp_mem)",
            value: mebibytes(bytes),
            means: format!("{} connections with 16 KiB in transit each", bytes / 16_384),
            change: Some("sysctl -w net.ipv4.tcp_mem='196608 393216 786432' (pages; the third number counts)"),
            is_low: bytes < TCP_BYTES_WANTED,
        });
    }
    advice.push(match machine.tracked {
        Some((count, most)) => LimitAdvice {
            what: "connections that the firewall follows",
            value: format!("{count} of {most}"),
            means: "above it the kernel silently drops new connections".to_owned(),
            change: Some("sysctl -w net.netfilter.nf_conntrack_max=1048576, or a rule with `notrack` for the port"),
            is_low: most.saturating_sub(count) < CONNECTIONS_WANTED,
        },
        None => LimitAdvice {
            what: "connections that the firewall follows",
            value: if machine.tells_network { "none" } else { "unknown" }.to_owned(),
            means: if machine.tells_network {
                "no limit (conntrack is not loaded here)"
            } else {
                "/proc does not show it"
            }
            .to_owned(),
            change: None,
            is_low: false,
        },
    });
    advice
}

fn resources(machine: &Machine) -> Vec<LimitAdvice> {
    let mut advice = Vec::new();
    let limits = [
        ("memory that is available", machine.memory_available, None),
        (
            "memory of the control group",
            machine.memory_of_group,
            Some("systemd: MemoryMax=; containers: --memory; Kubernetes: resources.limits.memory"),
        ),
    ];
    for (what, bytes, change) in limits {
        let Some(bytes) = bytes else { continue };
        advice.push(LimitAdvice {
            what,
            value: mebibytes(bytes),
            means: format!("about {} connections, including kernel memory", bytes / 11_000),
            change,
            is_low: bytes < MEMORY_WANTED,
        });
    }
    let processors = machine.processors;
    advice.push(LimitAdvice {
        what: "processors",
        value: processors.to_string(),
        means: format!("{processors} event loops (node.shards)"),
        change: None,
        is_low: false,
    });
    if let Some(millicores) = machine.millicores_of_group {
        advice.push(LimitAdvice {
            what: "processor time of the control group",
            value: format!("{}.{:03}", millicores / 1_000, millicores % 1_000),
            means: "above it all event loops stop until the next period (100 ms): set no limit".to_owned(),
            change: Some("systemd: CPUQuota=; containers: --cpus; Kubernetes: resources.limits.cpu"),
            is_low: millicores < 1_000 * processors,
        });
    }
    advice
}

fn clock(machine: &Machine) -> Vec<LimitAdvice> {
    let mut advice = Vec::new();
    if let Some(source) = &machine.clock_source {
        let is_low = !CLOCK_SOURCES.contains(&source.as_str());
        advice.push(LimitAdvice {
            what: "source of the clock",
            value: source.clone(),
            means: if is_low { "each reading of the clock is a system call" } else { "quick to read" }.to_owned(),
            change: is_low.then_some("/sys/devices/system/clocksource/clocksource0/available_clocksource has others"),
            is_low,
        });
    }
    let (value, is_low) = match machine.is_clock_synchronized {
        Some(true) => ("set by systemd-timesyncd", false),
        Some(false) => ("not set by systemd-timesyncd yet", true),
        None => ("unknown here", false),
    };
    advice.push(LimitAdvice {
        what: "time",
        value: value.to_owned(),
        means: "tokens expire by it, and nodes of a cluster compare their clocks (cluster.clock_drift_max)".to_owned(),
        change: Some("timedatectl set-ntp true; `timedatectl` and `chronyc tracking` show the state"),
        is_low,
    });
    advice
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// The report: a paragraph for each limit with a mark for low ones, and a last line with their number.
pub(super) fn report(advice: &[LimitAdvice]) -> String {
    let mut text = String::new();
    for LimitAdvice { what, value, means, change, is_low } in advice {
        let mark = if *is_low { "low" } else { "ok" };
        let _ = writeln!(text, "{mark:<4} {what}: {value}: {means}");
        if let (true, Some(change)) = (is_low, change) {
            let _ = writeln!(text, "     to change it: {change}");
        }
    }
    let low = advice.iter().filter(|limit| limit.is_low).count();
    let _ = writeln!(text, "machine: {low} of {} limits are low for {CONNECTIONS_WANTED} connections", advice.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roomy() -> Machine {
        Machine {
            files_of_process: Some(1_048_576),
            files: Some(9_000_000),
            files_open: Some(1_000),
            backlog: Some(65_535),
            ports: Some((10_240, 65_535)),
            tcp_bytes: Some(4 << 30),
            tracked: None,
            tells_network: true,
            memory_available: Some(8 << 30),
            memory_of_group: None,
            millicores_of_group: None,
            processors: 2,
            clock_source: Some("tsc".to_owned()),
            is_clock_synchronized: Some(true),
        }
    }

    fn low(machine: &Machine) -> Vec<&'static str> {
        advise(machine).iter().filter(|limit| limit.is_low).map(|limit| limit.what).collect()
    }

    #[test]
    fn a_roomy_machine_has_no_low_limit() {
        assert_eq!(low(&roomy()), Vec::<&str>::new());
        assert!(report(&advise(&roomy())).ends_with("are low for 100000 connections\n"));
    }

    #[test]
    fn each_limit_that_is_low_says_what_changes_it() {
        type Change = fn(&mut Machine);
        let cases: [(Change, &str); 9] = [
            (|m| m.files_of_process = Some(1_024), "open files of a process"),
            (|m| m.files_open = Some(8_990_000), "open files of the machine"),
            (|m| m.backlog = Some(4_096), "waiting connections (somaxconn)"),
            (|m| m.ports = Some((60_000, 61_000)), "ports of outgoing connections"),
            (|m| m.tcp_bytes = Some(1 << 20), "memory of TCP (tcp_mem)"),
            (|m| m.tracked = Some((65_000, 65_536)), "connections that the firewall follows"),
            (|m| m.memory_of_group = Some(512 << 20), "memory of the control group"),
            (|m| m.millicores_of_group = Some(1_500), "processor time of the control group"),
            (|m| m.clock_source = Some("hpet".to_owned()), "source of the clock"),
        ];
        for (change, expected) in cases {
            let mut machine = roomy();
            change(&mut machine);
            assert_eq!(low(&machine), [expected]);
            let text = report(&advise(&machine));
            assert!(text.contains("to change it: ") && text.contains("machine: 1 of "), "{text}");
        }
    }

    #[test]
    fn a_machine_that_tells_nothing_is_no_fault() {
        assert_eq!(low(&Machine::default()), Vec::<&str>::new());
    }
}
