//! The rules of the house: licences, what pure crates may not know, sizes, one sentence a line, leftovers. A rule that
//! is broken names the place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

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
/// Crates with a better one in the graph, or with an open advisory.
const BANNED: &[&str] = &["ring", "openssl", "native-tls", "rsa", "chrono", "async-std", "rand_core_06"];
/// What a pure crate may not use: runtimes, clocks, randomness, sockets, threads.
const IMPURE: &[&str] =
    &["tokio", "mio::", "std::net", "Instant::now", "SystemTime", "thread::spawn", "rand::", "std::fs"];
const PURE: &[&str] = &["protocol", "registry", "engine"];
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 120;
/// Files whose rows may be longer, and why. The path ends so.
const WIDE: &[(&str, &str)] = &[
    ("config/src/keys.rs", "a table: each key with its meaning is one row of docs/configuration.md"),
    ("config/src/limits.rs", "a table: each limit with what it protects is one row of docs/reference/limits.md"),
];
/// What ends with a full stop and does not end a sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "vs.", "cf.", "al.", "No.", "approx.", "resp."];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn metadata() -> Value {
    let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("metadata is JSON")
}

/// All files below a directory whose names end so, with their text. What others have made is left out.
fn walk(directory: &Path, extension: &str, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(directory).expect("the directory is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("node_modules") && !path.ends_with("target") {
                walk(&path, extension, found);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            let text = std::fs::read_to_string(&path).expect("sources are text");
            found.push((path, text));
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(&root().join("crates"), "rs", &mut found);
    walk(&root().join("tests/attacks"), "rs", &mut found);
    found
}

/// All pages of the documentation.
fn pages() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
        let path = root().join(name);
        let text = std::fs::read_to_string(&path).expect("the page is there");
        found.push((path, text));
    }
    ["docs", "examples", "crates"].iter().for_each(|name| walk(&root().join(name), "md", &mut found));
    found
}

fn report(what: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{what}:\n  {}", broken.join("\n  "));
}

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
    // Not the metadata: its graph holds optional crates that nothing builds.
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

#[test]
fn pure_crates_know_no_runtime_no_clock_no_socket() {
    let mut broken = Vec::new();
    for name in PURE {
        let directory = root().join("crates").join(name).join("src");
        assert!(directory.join("lib.rs").is_file(), "{name} is not there");
    }
    for (path, text) in sources() {
        let is_pure = PURE.iter().any(|name| path.components().any(|c| c.as_os_str() == *name))
            && path.components().any(|c| c.as_os_str() == "src");
        for (number, line) in text.lines().enumerate().filter(|_| is_pure) {
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
fn files_and_functions_fit_their_reader() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            broken.push(format!("{}: {lines} lines", path.display()));
        }
        for (start, length) in functions(&text) {
            if length > FUNCTION_LINES_MAX {
                broken.push(format!("{}:{start} a function of {length} lines", path.display()));
            }
        }
    }
    report("too long", &broken);
}

/// First line and length of each function, by the indentation that the formatter guarantees.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let mut open: BTreeMap<usize, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let code = line.trim_start();
        // Qualifiers, then the word: `pub(crate) const fn`, `unsafe fn`, `extern "C" fn`.
        let qualifiers = code.split("fn ").next().filter(|qualifiers| qualifiers.len() < code.len());
        let is_function = qualifiers.is_some_and(|qualifiers| {
            let known = ["pub", "pub(crate)", "pub(super)", "async", "const", "unsafe", "extern", "\"C\""];
            qualifiers.is_empty()
                || qualifiers.ends_with(' ') && qualifiers.split_whitespace().all(|word| known.contains(&word))
        });
        if is_function && !code.ends_with(';') && !code.ends_with('}') {
            open.insert(indent, number);
        }
        if code == "}"
            && let Some(start) = open.remove(&indent)
        {
            found.push((start + 1, number - start + 1));
        }
    }
    found
}

#[test]
fn no_rust_line_is_longer_than_120_columns() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let is_wide = WIDE.iter().any(|(end, _)| path.ends_with(end));
        for (number, line) in text.lines().enumerate().filter(|_| !is_wide) {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                broken.push(format!("{}:{} {columns} columns", path.display(), number + 1));
            }
        }
    }
    report("too wide", &broken);
}

#[test]
fn no_markdown_line_holds_two_sentences() {
    let mut broken = Vec::new();
    for (path, text) in pages() {
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            let start = line.trim_start();
            let is_fence = start.starts_with("```");
            is_code ^= is_fence;
            let is_prose = !is_code && !is_fence && !start.starts_with(['|', '#', '<']);
            if is_prose && let Some(second) = second_sentence(start) {
                broken.push(format!("{}:{} … {second}", path.display(), number + 1));
            }
        }
    }
    report("more than one sentence on a line", &broken);
}

/// The beginning of the second sentence on a line of Markdown, if there is one.
fn second_sentence(line: &str) -> Option<String> {
    // A span of code is one word that may begin a sentence; an address is not read.
    let spans = line.split('`').enumerate().map(|(index, part)| if index % 2 == 1 { "C" } else { part });
    let text: String = spans.collect();
    let mut links = text.split("](");
    let mut plain = links.next().unwrap_or_default().to_owned();
    for link in links {
        plain.push(']');
        plain.push_str(link.split_once(')').map_or("", |(_, rest)| rest));
    }
    let words: Vec<&str> = plain.split_whitespace().collect();
    // The number of an item of a list ends with a full stop too.
    let is_number = |word: &str| word.strip_suffix('.').is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit()));
    let first = usize::from(words.first().is_some_and(|word| is_number(word)));
    let ends = |word: &str| {
        let bare = word.trim_end_matches([')', ']', '"', '*', '_', '”', '’']);
        let known = bare.trim_start_matches(['(', '[', '"', '*', '_', '“']);
        bare.ends_with(['.', '!', '?']) && !ABBREVIATIONS.contains(&known)
    };
    let begins = |word: &str| {
        let bare = word.trim_start_matches(['(', '"', '*', '_', '“']);
        bare.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit() || c == '[')
    };
    words[first..].windows(2).find(|pair| ends(pair[0]) && begins(pair[1])).map(|pair| pair.join(" "))
}

#[test]
fn two_sentences_are_told_from_one() {
    for line in ["One. Two", "**One.** Two", "(One.) *Two*", "Is it? [two](x.md)", "1. One. `two`", "See [one](a). Two"]
    {
        assert!(second_sentence(line).is_some(), "{line}");
    }
    for line in ["1. One", "- One: `a. B`", "Version 1.5 of e.g. Node", "One ([x](y. Z)) two", "One, two …", "One. "]
    {
        assert_eq!(second_sentence(line), None, "{line}");
    }
}

#[test]
fn a_type_name_means_one_thing() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        for name in product_lines(&text).filter(|_| !is_test).filter_map(defined_type) {
            places.entry(name.to_owned()).or_default().push(path.display().to_string());
        }
    }
    assert!(places.len() > 500, "types are found");
    let many = places.iter().filter(|(_, paths)| paths.len() > 1);
    report(
        "one name, several types",
        &many.map(|(name, paths)| format!("{name}: {}", paths.join(", "))).collect::<Vec<_>>(),
    );
}

/// The lines of a file up to its module of tests.
fn product_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test_attribute = false;
    text.lines().take_while(move |line| {
        let is_module = is_test_attribute && line.starts_with("mod ") && line.ends_with('{');
        is_test_attribute = *line == "#[cfg(test)]";
        !is_module
    })
}

/// The type that a line of a file defines at its top level.
fn defined_type(line: &str) -> Option<&str> {
    let rest = match line.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches("(crate)").trim_start_matches("(super)").trim_start(),
        None => line.trim_start_matches("unsafe "),
    };
    let rest = ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|word| rest.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn every_word_of_the_glossary_has_its_type() {
    let glossary = std::fs::read_to_string(root().join("docs/GLOSSARY.md")).expect("the glossary is there");
    let rows: Vec<Vec<&str>> = glossary
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    assert!(rows.len() > 30, "rows are found");
    let mut broken = Vec::new();
    for row in rows {
        let [_, word, _, name, file, _] = row[..] else { panic!("{row:?}") };
        match std::fs::read_to_string(root().join("crates").join(file)) {
            Err(error) => broken.push(format!("{word}: {file}: {error}")),
            // A macro makes the types of names: there the name stands alone on its line.
            Ok(text) if text.lines().all(|line| defined_type(line) != Some(name) && line.trim() != name) => {
                broken.push(format!("{word}: {file} does not define {name}"));
            }
            Ok(_) => {}
        }
    }
    report("the glossary", &broken);
}

#[test]
fn nothing_is_left_for_later() {
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|word| word.concat());
    let mut broken = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word.as_str())) {
                broken.push(format!("{}:{} {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    report("left for later", &broken);
}
