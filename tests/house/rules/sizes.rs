//! The largest sizes of files, functions and lines.

use std::collections::BTreeMap;

use crate::imports::parse;
use touchline_house::files::{report, sources};

const FILE_LINES_MAX: usize = 600;
/// Lines of code of a `mod.rs`, without its tests: it describes a folder, and the other files contain the logic.
const MODULE_LINES_MAX: usize = 200;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 120;
/// Ends of the paths of files that may have longer lines, each with the reason.
const WIDE: &[(&str, &str)] = &[
    ("config/src/settings/transports.rs", "a table: a meaning that is another one in one section is one row"),
    ("config/src/limits.rs", "a table: each limit with what it protects is one row of docs/reference/limits.md"),
];

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

#[test]
fn the_page_of_a_folder_is_short() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        let lines = if path.ends_with("mod.rs") && !is_test { parse(&text).code_lines } else { 0 };
        if lines > MODULE_LINES_MAX {
            broken.push(format!("{}: {lines} lines of code", path.display()));
        }
    }
    report("a mod.rs that is too long", &broken);
}

/// First line and length of each function, found by the indentation that the formatter guarantees.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let mut open: BTreeMap<usize, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let code = line.trim_start();
        // The qualifiers are before the word: `pub(crate) const fn`, `unsafe fn`, `extern "C" fn`.
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
