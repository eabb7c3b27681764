//! The files that the rules read: sources, pages, and the metadata of cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate is two folders below the root")
        .to_owned()
}

/// The metadata that cargo has of all packages.
pub fn metadata() -> Value {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("metadata is JSON")
}

/// All files below a directory whose names have this extension, with their text. Folders of dependencies and of
/// generated files are left out.
pub fn walk(directory: &Path, extension: &str, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(directory).expect("the directory is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !["node_modules", "target", "generated"].iter().any(|name| path.ends_with(name)) {
                walk(&path, extension, found);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            let text = std::fs::read_to_string(&path).expect("sources are text");
            found.push((path, text));
        }
    }
}

/// All Rust files of the workspace.
pub fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(&root().join("crates"), "rs", &mut found);
    ["tests/attacks", "tests/house"].iter().for_each(|name| walk(&root().join(name), "rs", &mut found));
    found
}

/// All pages of the documentation.
pub fn pages() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "STYLE.md"] {
        let path = root().join(name);
        let text = std::fs::read_to_string(&path).expect("the page is there");
        found.push((path, text));
    }
    ["docs", "examples", "crates"].iter().for_each(|name| walk(&root().join(name), "md", &mut found));
    found
}

/// Fails with the list of broken places, if there are any.
pub fn report(what: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{what}:\n  {}", broken.join("\n  "));
}
