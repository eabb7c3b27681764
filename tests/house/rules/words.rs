//! The parts of plain English that a test can check: lengths of lines, lengths of docstrings, and the words that the
//! glossary does not use.

use std::path::{Path, PathBuf};

use touchline_house::files::{pages, report, root, sources};

/// The most characters in a line of Markdown prose.
const PROSE_LINE_MAX: usize = 160;
/// The fewest words in a docstring.
const DOCSTRING_WORDS_MIN: usize = 3;
/// The heading of the glossary's table of words.
const HEADING: &str = "## Words that are not used";

#[test]
fn no_line_of_prose_is_too_long() {
    let mut broken = Vec::new();
    for (path, text) in pages() {
        for (number, line) in prose_lines(&text) {
            let length = without_addresses(line).chars().count();
            if length > PROSE_LINE_MAX {
                broken.push(format!("{}:{number} has {length} characters", path.display()));
            }
        }
    }
    report("lines of prose that are too long", &broken);
}

#[test]
fn no_docstring_is_too_short() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        for (number, docstring) in docstrings(&text) {
            let is_reference = docstring.starts_with("See [");
            if !is_reference && docstring.split_whitespace().count() < DOCSTRING_WORDS_MIN {
                broken.push(format!("{}:{number} {docstring}", path.display()));
            }
        }
    }
    report("docstrings that say too little", &broken);
}

#[test]
fn words_that_the_glossary_does_not_use_are_not_used() {
    let words = unused_words();
    assert!(words.len() > 10, "the table of the glossary is not read");
    let mut broken = Vec::new();
    for (path, text) in pages().into_iter().filter(|(path, _)| !path.ends_with("GLOSSARY.md")) {
        for (number, line) in prose_lines(&text).chain(table_lines(&text)) {
            note_words(&words, (&path, number), &without_code(line), &mut broken);
        }
    }
    for (path, text) in sources() {
        for (number, comment) in comments(&text) {
            note_words(&words, (&path, number), &without_code(&comment), &mut broken);
        }
    }
    report("words that the glossary does not use", &broken);
}

/// A word or phrase that is not used, and the longer phrases in which it is fine.
#[derive(Debug)]
struct UnusedWord {
    phrase: String,
    allowed: Vec<String>,
}

/// The rows of the glossary's table: phrases, replacements, and the longer phrases in which the phrase is fine.
fn unused_words() -> Vec<UnusedWord> {
    let glossary = std::fs::read_to_string(root().join("docs/GLOSSARY.md")).expect("the glossary is there");
    let (_, table) = glossary.split_once(HEADING).expect("the glossary has a table of words that are not used");
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let allowed: Vec<String> = phrases(cells[3]).collect();
        phrases(cells[1]).map(move |phrase| UnusedWord { phrase, allowed: allowed.clone() }).collect::<Vec<_>>()
    })
    .collect()
}

/// The phrases of a cell of the table.
fn phrases(cell: &str) -> impl Iterator<Item = String> {
    cell.split(',').map(|phrase| phrase.trim().to_lowercase()).filter(|phrase| !phrase.is_empty())
}

/// Adds a report to `broken` for each phrase of a text that is not used.
fn note_words(words: &[UnusedWord], (path, number): (&Path, usize), text: &str, broken: &mut Vec<String>) {
    let text = text.to_lowercase();
    for word in words {
        let mut rest = text.clone();
        for allowed in &word.allowed {
            rest = rest.replace(allowed.as_str(), " ");
        }
        if has_phrase(&rest, &word.phrase) {
            broken.push(format!("{}:{number} {:?}", path.display(), word.phrase));
        }
    }
}

/// Whether a text contains a phrase as whole words.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
    text.match_indices(phrase)
        .any(|(at, _)| !is_word(text[..at].chars().next_back()) && !is_word(text[at + phrase.len()..].chars().next()))
}

/// The prose lines of a page, with their numbers. Texts of pictures and lists of errors are left out.
fn prose_lines(page: &str) -> impl Iterator<Item = (usize, &str)> {
    lines_outside_code(page).filter(|(_, line)| {
        let start = line.trim_start();
        !start.starts_with(['|', '#', '<']) && !start.starts_with("![") && !start.starts_with("[Errors](")
    })
}

/// The rows of a page's tables, with their numbers.
fn table_lines(page: &str) -> impl Iterator<Item = (usize, &str)> {
    lines_outside_code(page).filter(|(_, line)| line.trim_start().starts_with('|'))
}

fn lines_outside_code(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    page.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// A line of Markdown without the addresses of its links and without a comment behind it.
fn without_addresses(line: &str) -> String {
    let line = line.split_once(" <!--").map_or(line, |(text, _)| text);
    let mut links = line.split("](");
    let mut plain = links.next().unwrap_or_default().to_owned();
    for link in links {
        plain.push(']');
        plain.push_str(link.split_once(')').map_or("", |(_, rest)| rest));
    }
    plain
}

/// A line without its spans of code and the addresses of its links.
fn without_code(line: &str) -> String {
    without_addresses(line).split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The docstrings of a file, each with the number of its first line.
fn docstrings(source: &str) -> Vec<(usize, String)> {
    blocks(source, |line| line.strip_prefix("///"))
}

/// The comments of a file on lines of their own, each with the number of its first line.
fn comments(source: &str) -> Vec<(usize, String)> {
    blocks(source, |line| line.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!'])))
}

/// Consecutive lines for which `text_of` returns a text, joined.
fn blocks<'a>(source: &'a str, text_of: impl Fn(&'a str) -> Option<&'a str>) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (index, line) in source.lines().enumerate() {
        match text_of(line.trim_start()) {
            Some(text) if is_open => {
                let (_, block) = found.last_mut().expect("a block is open");
                block.push(' ');
                block.push_str(text.trim());
            }
            Some(text) => found.push((index + 1, text.trim().to_owned())),
            None => {}
        }
        is_open = text_of(line.trim_start()).is_some();
    }
    found
}

#[test]
fn phrases_are_whole_words_outside_of_what_is_allowed() {
    let words = [UnusedWord { phrase: "is no".to_owned(), allowed: vec!["there is no".to_owned()] }];
    let place = PathBuf::from("page.md");
    let broken = |text: &str| {
        let mut broken = Vec::new();
        note_words(&words, (&place, 1), text, &mut broken);
        broken.len()
    };
    assert_eq!(broken("This is no channel"), 1);
    assert_eq!(broken("There is no channel, and this is not one"), 0);
    assert_eq!(broken("There is no channel, and this is no channel"), 1);
    assert_eq!(without_code("a `is no` b [c](d is no) e"), "a ` b [c] e");
}

#[test]
fn docstrings_are_read_with_all_their_lines() {
    let source = "/// One\n/// two.\nfn a() {}\n    /// They.\n    b: u8,\n// why\n";
    assert_eq!(docstrings(source), [(1, "One two.".to_owned()), (4, "They.".to_owned())]);
    assert_eq!(comments(source).len(), 3);
}
