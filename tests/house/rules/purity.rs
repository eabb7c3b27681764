//! The crates and modules that pure crates may not use.

use std::collections::BTreeSet;
use std::path::Path;

use crate::directions::graphs;
use crate::names::product_lines;
use crate::waits::closing;
use touchline_house::files::{metadata, report, root, sources};

/// Runtimes, clocks, randomness, sockets, threads and the state of the process, which a pure crate may not use.
const IMPURE: &[&str] = &[
    "tokio",
    "mio::",
    "rand::",
    "Instant",
    "SystemTime",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    // A list of imports would hide one of these.
    "std::{",
];
const PURE: &[&str] = &["protocol", "registry", "engine"];
/// The crates that the crate of settings may not depend on: it reads files and does no other I/O.
const NOT_FOR_SETTINGS: &[&str] = &["tokio", "hyper", "mio", "rusqlite", "tokio-postgres", "async-nats", "rustls"];

#[test]
fn pure_crates_know_no_runtime_no_clock_no_socket() {
    let graphs = graphs();
    let product: BTreeSet<&Path> = graphs.iter().flat_map(|(_, graph)| graph.files().map(|(file, _)| file)).collect();
    let mut broken = Vec::new();
    for name in PURE {
        let directory = root().join("crates").join(name).join("src");
        assert!(directory.join("lib.rs").is_file(), "{name} is not there");
    }
    for (path, text) in sources() {
        let is_pure = PURE.iter().any(|name| path.starts_with(root().join("crates").join(name).join("src")));
        let is_checked = is_pure && product.contains(path.as_path());
        for (number, line) in product_lines(&text).enumerate().filter(|_| is_checked) {
            let code = line.split("//").next().unwrap_or_default();
            broken.extend(
                IMPURE
                    .iter()
                    .filter(|word| code.contains(*word))
                    .map(|word| format!("{}:{} {word}", path.display(), number + 1)),
            );
        }
    }
    report("impure", &broken);
}

#[test]
fn the_crate_of_settings_reads_files_and_nothing_else() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("a list");
    let settings = packages.iter().find(|package| package["name"] == "touchline-config").expect("it is there");
    let names = settings["dependencies"].as_array().expect("a list").iter().filter_map(|other| other["name"].as_str());
    let broken: Vec<String> = names.filter(|name| NOT_FOR_SETTINGS.contains(name)).map(str::to_owned).collect();
    report("not for touchline-config", &broken);
}

/// The clocks of the system, and waits that follow them.
const CLOCKS: &[&str] = &["Instant::now", "SystemTime::now", "tokio::time::", "thread::sleep"];
/// The beginning of the comment of code that does not follow the node's clock.
const REAL_TIME: &str = "// real time:";

/// The lines of a file of the server that follow the system's clocks without a reason.
fn clock_readers(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = product_lines(text).collect();
    let is_broken = |at: &usize| {
        let code = lines[*at].split("//").next().unwrap_or_default();
        let has_reason = *at > 0 && lines[*at - 1].contains(REAL_TIME);
        CLOCKS.iter().any(|word| code.contains(word)) && !code.trim_start().starts_with("use ") && !has_reason
    };
    (0..lines.len()).filter(is_broken).map(|at| (at + 1, lines[at].trim())).collect()
}

#[test]
fn the_server_follows_the_clock_of_its_node() {
    let mut broken = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path.starts_with(root().join("crates/server/src"))) {
        broken.extend(clock_readers(&text).iter().map(|(line, code)| format!("{}:{line} {code}", path.display())));
    }
    report("the system's clock instead of the node's, without a comment `// real time: …`", &broken);
    let text = "let a = Instant::now();\n// real time: why\nlet b = Instant::now();\nnode.clock.elapsed_us();\n";
    assert_eq!(clock_readers(text), [(1, "let a = Instant::now();")]);
}

/// The beginning of the comment of a write that may wait without a limit.
const ONE_WAY: &str = "// one way:";

/// The writes of a file that wait without a time limit and without a reason.
fn endless_writers(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = product_lines(text).collect();
    let is_broken = |at: &usize| {
        let code = lines[*at].split("//").next().unwrap_or_default();
        let waits = code.contains("write_all(") && (code.contains(".await") || code.contains("timeout("));
        let has_reason = *at > 0 && lines[*at - 1].contains(ONE_WAY);
        waits && !code.contains("timeout(") && !has_reason
    };
    (0..lines.len()).filter(is_broken).map(|at| (at + 1, lines[at].trim())).collect()
}

#[test]
fn no_write_waits_without_a_limit() {
    let mut broken = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path.starts_with(root().join("crates/server/src"))) {
        broken.extend(endless_writers(&text).iter().map(|(line, code)| format!("{}:{line} {code}", path.display())));
    }
    report("a write without a time limit, and without a comment `// one way: …`", &broken);
    let text =
        "a.write_all(b).await;\nclock.timeout(t, a.write_all(b)).await;\n// one way: why\na.write_all(b).await;\n";
    assert_eq!(endless_writers(text), [(1, "a.write_all(b).await;")]);
}

/// The files of the cluster that may send with the client of NATS: the writer, and tasks of their own with a time
/// limit, which read for no other.
const SENDERS: &[&str] = &["nats/", "writer.rs", "gather.rs", "telling.rs", "bucket_follower.rs", "consumer/"];
const SENDING: &[&str] = &["client.publish", "client.subscribe", "client.flush"];
/// The files of the connection, whose methods run in the task that reads.
const READERS: &[&str] = &["connection.rs", "link.rs", "subscriptions.rs"];

#[test]
fn the_task_that_reads_from_nats_never_waits_for_its_writes() {
    let cluster = root().join("crates/cluster/src");
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let Ok(file) = path.strip_prefix(&cluster) else { continue };
        let file = file.to_string_lossy();
        for (number, line) in product_lines(&text).enumerate() {
            let sends =
                SENDING.iter().any(|word| line.contains(word)) && !SENDERS.iter().any(|of| file.starts_with(of));
            let waits = READERS.contains(&&*file) && line.contains("async fn ") && !line.contains("async fn run(");
            if sends || waits {
                broken.push(format!("{}:{} {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    report("a write to NATS outside of the writer", &broken);
}

/// State that may be static: it is of the process and not of a node.
const OF_THE_PROCESS: &[&str] = &[
    // Which parts are traced: the exporter is one for the process.
    "static PARTS:",
];
const SHARED: &[&str] = &["Atomic", " Lock<", "<Lock<", "SharedLock<", "Mutex<", "RwLock<", "RefCell<"];

#[test]
fn no_state_of_a_node_is_static() {
    let mut broken = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| {
        ["server", "engine", "cluster", "store", "registry"]
            .iter()
            .any(|name| path.starts_with(root().join("crates").join(name).join("src")))
    }) {
        let mut is_local_to_thread = false;
        for (number, line) in product_lines(&text).enumerate() {
            is_local_to_thread = line.contains("thread_local!") || (is_local_to_thread && !line.starts_with('}'));
            let code = line.trim_start().trim_start_matches("pub(crate) ");
            let is_state = code.starts_with("static ") && SHARED.iter().any(|kind| code.contains(kind));
            if is_state && !is_local_to_thread && !OF_THE_PROCESS.iter().any(|known| code.starts_with(known)) {
                broken.push(format!("{}:{} {code}", path.display(), number + 1));
            }
        }
    }
    report("state that two nodes of one process would share", &broken);
}

/// The crates that may use the locks of the standard library: `lock` is made of them, the others do not use `lock`.
const OF_OTHER_LOCKS: &[&str] = &["lock", "testkit", "lab"];
/// The locks of the standard library, and what they return.
const STD_LOCKS: &[&str] = &["Mutex", "MutexGuard", "RwLock", "RwLockReadGuard", "RwLockWriteGuard", "PoisonError"];

/// The names of the standard library's locks in the product code of a file, with their lines.
fn std_locks(text: &str) -> Vec<(usize, String)> {
    let code = product_lines(text).map(|line| line.split("//").next().unwrap_or_default());
    let code = code.collect::<Vec<_>>().join("\n");
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    for (at, word) in code.match_indices("sync::").filter(|(at, _)| !code[..*at].ends_with("tokio::")) {
        let start = at + word.len();
        let end = match code[start..].starts_with('{') {
            true => closing(&code, start),
            false => code[start..].find(|c| !is_name(c)).map_or(code.len(), |length| start + length),
        };
        let names = code[start..end].split(|c: char| !c.is_alphanumeric() && c != '_');
        let line = code[..at].lines().count();
        found.extend(names.filter(|name| STD_LOCKS.contains(name)).map(|name| (line, name.to_owned())));
    }
    found
}

#[test]
fn a_panic_under_a_lock_ends_the_process() {
    let graphs = graphs();
    let is_checked = |name: &String| !OF_OTHER_LOCKS.contains(&name.as_str());
    let checked = graphs.iter().filter(|(name, _)| is_checked(name)).flat_map(|(_, graph)| graph.files());
    let checked: BTreeSet<&Path> = checked.map(|(file, _)| file).collect();
    let mut broken = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| checked.contains(path.as_path())) {
        broken.extend(std_locks(&text).iter().map(|(line, name)| format!("{}:{line} {name}", path.display())));
    }
    report("a lock of the standard library instead of one of crates/lock", &broken);
    let text = "use std::sync::{Arc, atomic::{AtomicBool, AtomicU8}, Mutex};\n\
        use std::sync::Arc;\n// std::sync::Mutex\n\
        use std::{\n    sync::RwLock,\n};\nuse tokio::sync::{Mutex, Notify};\n\
        let a = std::sync::PoisonError::into_inner;\n\
        #[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}\n";
    let expected = [(1, "Mutex"), (5, "RwLock"), (8, "PoisonError")];
    assert_eq!(std_locks(text), expected.map(|(line, name)| (line, name.to_owned())));
}
