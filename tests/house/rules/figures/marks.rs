//! Finds the figures of a page that nothing accounts for.
//!
//! A figure needs no mark in a region, in a block of code and between back quotes, or if the generated reference has
//! the same value. Else one of these accounts for it:
//!
//! - The section says how and when it was measured: it has a command, between back quotes or in a block, and a date.
//! - `<!-- not measured: WHY -->` before its paragraph, list or table, or behind its line: the value is an example, or
//!   a constant of the code. WHY may name the file between back quotes.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::quantities::{Quantity, quantities};
use super::regions::END;

/// How a command begins that a reader can run.
const COMMANDS: [&str; 7] =
    ["`touchline ", "`touchline-lab ", "`./x ", "`cargo ", "`python3 ", "`node ", "`packaging/"];

/// Whether a mark accounts for the current line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockMark {
    Absent,
    /// The block of the mark has not begun.
    Announced,
    Inside,
}

const NOT_MEASURED: &str = "<!-- not measured: ";

/// A date such as 28 November 2026.
static DATE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b[0-3]?\d [A-Z][a-z]+ 20\d\d\b").expect("it is a valid expression"));

static ADDRESS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\([^)]*\)").expect("it is a valid expression"));

/// The figures that nothing accounts for, each with its line. `may_measure`: sections may have figures of their own.
pub(super) fn unaccounted(page: &str, settings: &BTreeSet<Quantity>, may_measure: bool) -> Vec<String> {
    let lines: Vec<&str> = page.lines().collect();
    let mut found = Vec::new();
    let mut judge = |index: usize, line: &str| {
        let words = quantities(&plain(line)).into_iter().filter(|(_, quantity)| !settings.contains(quantity));
        found.extend(words.map(|(words, _)| format!("{}: {words}", index + 1)));
    };
    let (mut is_code, mut is_comment, mut is_region) = (false, false, false);
    let (mut mark, mut is_measured) = (BlockMark::Absent, false);
    for (index, line) in lines.iter().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
        } else if is_comment || start.starts_with("<!--") {
            is_region |= *line == "<!-- figures";
            is_region &= *line != END;
            if start.starts_with(NOT_MEASURED) {
                mark = BlockMark::Announced;
            }
            is_comment = !line.contains("-->");
        } else if start.is_empty() {
            if mark == BlockMark::Inside {
                mark = BlockMark::Absent;
            }
        } else if start.starts_with('#') {
            // A mark ends with its section.
            mark = BlockMark::Absent;
            is_measured = may_measure && is_measured_section(&lines[index + 1..]);
            if !is_measured {
                judge(index, line);
            }
        } else if mark != BlockMark::Absent {
            mark = BlockMark::Inside;
        } else if !(is_region || is_measured || line.contains(NOT_MEASURED)) {
            judge(index, line);
        }
    }
    if is_code || is_comment || is_region {
        found.push(format!("{}: a block, a comment or a region is not closed", lines.len()));
    }
    found
}

/// A line without the text between back quotes and without addresses.
fn plain(line: &str) -> String {
    let pieces = line.split('`').enumerate();
    let text: String = pieces.map(|(at, piece)| if at % 2 == 0 { piece } else { "`" }).collect();
    ADDRESS.replace_all(&text, "]").into_owned()
}

/// Whether the lines up to the next heading have a command and a date.
fn is_measured_section(lines: &[&str]) -> bool {
    let mut is_code = false;
    let is_end = |line: &str| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code && line.starts_with('#')
    };
    let mut is_end = is_end;
    let section: Vec<&str> = lines.iter().copied().take_while(|line| !is_end(line)).collect();
    let is_command = |line: &&str| line.starts_with("```sh") || COMMANDS.iter().any(|command| line.contains(command));
    let has_command = section.iter().any(is_command);
    has_command && section.iter().any(|line| DATE.is_match(line))
}

/// The files that marks name.
pub(super) fn files(page: &str) -> Vec<&str> {
    let marks = page.lines().filter_map(|line| line.split_once(NOT_MEASURED));
    marks.flat_map(|(_, why)| why.split('`').skip(1).step_by(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let settings = quantities("25s 64 KiB").into_iter().map(|(_, quantity)| quantity).collect();
        unaccounted(page, &settings, true)
    }

    #[test]
    fn a_figure_needs_a_region_a_setting_or_a_mark() {
        assert_eq!(found("# A\n\nIt takes 5.2 ms.\n"), ["3: 5.2 ms"]);
        assert_eq!(found("It takes 25 s, 65,536 bytes, `5.2 ms` or [5](x.md#5 ms).\n"), [""; 0]);
        assert_eq!(found("```\n5.2 ms\n```\n<!-- 5.2 ms\n6 ms\n-->\n"), [""; 0]);
        assert_eq!(found("<!-- figures\nx\n-->\n\n5.2 ms\n\n7 ms\n\n<!-- end of figures -->\n9 ms\n"), ["10: 9 ms"]);
        assert_eq!(found("<!-- not measured: an example -->\n\n| 5.2 ms |\n| 7 ms |\n\n9 ms\n"), ["6: 9 ms"]);
        assert_eq!(found("- It waits 9 s. <!-- not measured: an example -->\n- and 8 s.\n"), ["2: 8 s"]);
    }

    #[test]
    fn a_heading_is_judged_and_ends_a_mark() {
        assert_eq!(found("## In 5.2 ms\n\nText.\n"), ["1: 5.2 ms"]);
        assert_eq!(found("<!-- not measured: an example -->\n\n## A\n\n9 ms\n"), ["5: 9 ms"]);
        assert_eq!(found("```\n5 ms\n").len(), 1, "a block without an end");
    }

    #[test]
    fn a_section_that_says_how_and_when_may_have_figures() {
        let said = "`touchline-lab walkie` ran on 26 November 2026.";
        assert_eq!(found(&format!("## A\n\n{said}\nIt took 5.2 ms.\n\n## B\n\nIt took 7 ms.\n")), ["8: 7 ms"]);
        assert_eq!(found("## A\n\nIt ran on 26 November 2026 and took 5.2 ms.\n").len(), 1, "without a command");
        assert_eq!(found("## A\n\n`touchline-lab walkie` says 5.2 ms.\n").len(), 1, "without a date");
        let page = format!("## A\n\n{said}\nIt took 5.2 ms.\n");
        assert_eq!(unaccounted(&page, &BTreeSet::new(), false), ["4: 5.2 ms"], "README has figures of the run only");
    }

    #[test]
    fn the_files_of_a_mark_are_found() {
        assert_eq!(files("<!-- not measured: `crates/a.rs`, `b.rs` -->\ntext `c.rs`\n"), ["crates/a.rs", "b.rs"]);
        assert_eq!(files("- `c.rs` waits 9 s. <!-- not measured: `d.rs` -->\n"), ["d.rs"]);
    }
}
