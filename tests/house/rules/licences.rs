//! The licences and crates that the binary may contain.

use std::process::Command;

use touchline_house::files::{metadata, report, root};

/// Licences that may be linked into the binary.
const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "0BSD",
    "CC0-1.0",
    "OpenSSL",
    "Unlicense",
    "MIT-0",
    "CDLA-Permissive-2.0",
    "Apache-2.0 WITH LLVM-exception",
];
/// Crates that have a better replacement in the graph, or an open advisory.
const BANNED: &[&str] = &["ring", "openssl", "native-tls", "rsa", "chrono", "async-std", "rand_core_06"];

#[test]
fn every_dependency_has_a_licence_that_we_may_link() {
    let mut broken = Vec::new();
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("a list");
    assert!(packages.iter().any(|package| package["name"] == "tokio"), "dependencies are looked at");
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        let is_good = |term: &str| LICENCES.contains(&term.trim_matches(['(', ')', ' ']));
        // One of several alternatives is enough; every part of a conjunction is needed.
        let any = licence.replace('/', " OR ").split(" OR ").any(|choice| choice.split(" AND ").all(is_good));
        let all = licence.split(" AND ").all(|part| part.split(" OR ").any(is_good));
        if !any && !all {
            broken.push(format!("{}: {licence}", package["name"]));
        }
    }
    report("licences to be looked at", &broken);
}

#[test]
fn banned_crates_are_absent() {
    // The command reads the tree and not the metadata: the metadata contains optional crates that no build uses.
    let arguments = [
        "tree",
        "--locked",
        "--workspace",
        "--target",
        "x86_64-unknown-linux-gnu",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    let tree = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && tree.contains("tokio v"), "{tree}");
    let broken = tree.lines().filter(|line| line.split(' ').next().is_some_and(|name| BANNED.contains(&name)));
    report("banned crates", &broken.map(str::to_owned).collect::<Vec<_>>());
}
