//! Imports have one direction: no crate has a circle of files, crates and modules of `server` keep their order, and
//! modules have one style.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::imports::graph::{Arrow, FileGraph};
use touchline_house::files::{metadata, report, root, sources};

/// The crates, lowest first. A crate may depend on crates of its own row and of the rows before it.
const CRATES: &[&[&str]] = &[
    &["touchline-lock"],
    &["touchline-clock", "touchline-testkit"],
    &["touchline-protocol", "touchline-registry"],
    &["touchline-engine"],
    &["touchline-config"],
    &["touchline-store", "touchline-cluster"],
    &["touchline-server"],
    &["touchline-lab"],
    &["touchline", "embed", "touchline-house"],
];

/// The modules of `server`, lowest first. A module may import from the modules before it.
const FLOORS: &[&str] = &[
    "proto",
    "tls",
    "outbound",
    "net",
    "start_error",
    "auth",
    "runtime",
    "traces",
    "console",
    "web",
    "drain",
    "node",
    "draining",
    "backend",
    "registry",
    "hooks",
    "reactions",
    "events",
    "transport",
    "shard",
    "api",
    "consumers",
    "trial",
    "action_trial",
    "connecting",
    "preparation",
    "listening",
    "handle",
    "making",
    "reloading",
    "server",
    "builder",
];

/// The files of each crate, starting at its root file.
pub(crate) fn graphs() -> Vec<(String, FileGraph)> {
    let sources: BTreeMap<PathBuf, String> = sources().into_iter().collect();
    let mut graphs = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).expect("the crates are there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let files = ["lib.rs", "main.rs"].map(|file| root().join("crates").join(&name).join("src").join(file));
        for file in files.iter().filter(|file| sources.contains_key(*file)) {
            graphs.push((name.clone(), FileGraph::read(file, &sources)));
        }
    }
    graphs
}

fn told(arrow: &Arrow) -> String {
    let short = |path: &Path| path.strip_prefix(root()).unwrap_or(path).display().to_string();
    format!("{}:{} {} -> {}", short(&arrow.from), arrow.line, arrow.written, short(&arrow.to))
}

#[test]
fn no_circle_of_files() {
    let graphs = graphs();
    let arrows: usize = graphs.iter().map(|(_, graph)| graph.arrows().len()).sum();
    assert!(arrows > 500, "imports are found: {arrows}");
    let mut broken = Vec::new();
    for (name, graph) in graphs {
        for circle in graph.circles() {
            let files: BTreeSet<&Path> = circle.iter().map(|arrow| arrow.from.as_path()).collect();
            broken.push(format!("{name}: a circle of {} files", files.len()));
            broken.extend(circle.iter().map(|arrow| format!("  {}", told(arrow))));
        }
    }
    report("circles of imports", &broken);
}

#[test]
fn every_module_is_read() {
    let missing: Vec<String> = graphs().iter().flat_map(|(_, graph)| graph.missing().to_vec()).collect();
    report("modules without a file", &missing);
}

#[test]
fn crates_depend_downwards() {
    let metadata = metadata();
    let floor = |name: &str| CRATES.iter().position(|row| row.contains(&name));
    let mut broken = Vec::new();
    let mut found = 0;
    for package in metadata["packages"].as_array().expect("a list").iter().filter(|p| p["source"].is_null()) {
        let name = package["name"].as_str().expect("a name");
        let Some(own) = floor(name) else {
            broken.push(format!("{name} has no place in the order"));
            continue;
        };
        for dependency in package["dependencies"].as_array().expect("a list") {
            let on = dependency["name"].as_str().expect("a name");
            let Some(other) = floor(on) else { continue };
            found += 1;
            if other > own || on == name {
                broken.push(format!("{name} depends on {on}"));
            }
        }
    }
    assert!(found > 10, "dependencies are found");
    report("crates against the order", &broken);
}

#[test]
fn only_tests_and_the_lab_use_the_test_kit() {
    let metadata = metadata();
    let mut users = 0;
    let mut broken = Vec::new();
    for package in metadata["packages"].as_array().expect("a list") {
        for dependency in package["dependencies"].as_array().expect("a list") {
            if dependency["name"] == "touchline-testkit" {
                users += 1;
                if dependency["kind"] != "dev" && package["name"] != "touchline-lab" {
                    broken.push(format!("{} depends on touchline-testkit", package["name"]));
                }
            }
        }
    }
    assert!(users > 3, "the users of the test kit are found");
    report("the test kit outside of dev-dependencies", &broken);
}

/// The imports of a crate that break the order, and the modules that the order does not name. The root may import from
/// all.
fn against(floors: &[&str], graph: &FileGraph) -> Vec<String> {
    let mut broken = Vec::new();
    let mut places: BTreeMap<&Path, usize> = BTreeMap::new();
    for (file, module) in graph.files() {
        let place = module.first().map_or(Some(floors.len()), |first| floors.iter().position(|floor| floor == first));
        match place {
            Some(place) => {
                places.insert(file, place);
            }
            None => broken.push(format!("{} has no place in the order", module.join("::"))),
        }
    }
    for arrow in graph.arrows() {
        if let (Some(from), Some(to)) = (places.get(arrow.from.as_path()), places.get(arrow.to.as_path()))
            && to > from
        {
            broken.push(told(&arrow));
        }
    }
    broken
}

#[test]
fn the_modules_of_the_server_import_downwards() {
    let (_, graph) = graphs().into_iter().find(|(name, _)| name == "server").expect("the server is there");
    report("modules of `server` against the order", &against(FLOORS, &graph));
}

#[test]
fn an_arrow_upwards_and_a_module_without_a_place_are_found() {
    let sources = [
        ("lib.rs", "mod low; mod high; mod other; pub use low::L;"),
        ("low.rs", "use crate::high::H; pub struct L;"),
        ("high/mod.rs", "mod child; use crate::low::L;"),
        ("high/child.rs", "use crate::L;"),
        ("other.rs", ""),
    ];
    let sources = sources.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
    let broken = against(&["low", "high"], &FileGraph::read(Path::new("lib.rs"), &sources));
    let expected = [
        "other has no place in the order",
        "high/child.rs:1 crate::L -> lib.rs",
        "low.rs:1 crate::high::H -> high/mod.rs",
    ];
    assert_eq!(broken, expected);
}

#[test]
fn one_module_style() {
    let sources = sources();
    let folders: BTreeSet<&Path> = sources.iter().filter_map(|(path, _)| path.parent()).collect();
    let beside = sources.iter().filter(|(path, _)| folders.contains(path.with_extension("").as_path()));
    let broken: Vec<String> = beside.map(|(path, _)| format!("{} stands beside its folder", path.display())).collect();
    report("modules with children are x/mod.rs", &broken);
}
