//! The crates and modules that pure crates may not use.

use std::collections::BTreeSet;
use std::path::Path;

use crate::directions::graphs;
use crate::names::product_lines;
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
