//! The parts of a page of the documentation: prose, spans of code, blocks of code, rows of tables.

use std::path::{Path, PathBuf};

use crate::files::root;

/// A page of the documentation.
pub struct Page {
    /// Its path from the root of the repository.
    pub name: String,
    /// Its absolute path, or another one for a page without a file.
    pub path: PathBuf,
    /// Its whole text.
    pub text: String,
}

impl From<(PathBuf, String)> for Page {
    fn from((path, text): (PathBuf, String)) -> Self {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        Page { name, path, text }
    }
}

/// A page without a file, for tests of the rules.
pub fn made_up(text: &str) -> Page {
    Page::from((Path::new("page.md").to_owned(), text.to_owned()))
}

/// The kind of a part of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind<'a> {
    /// A line of prose. Each span of code is replaced by a back quote.
    Prose,
    /// The text between back quotes.
    Span,
    /// A fenced block, with its language.
    Block(&'a str),
}

/// A part of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a> {
    /// The number of its first line, counted from 1.
    pub line: usize,
    /// Prose, a span or a block.
    pub kind: PartKind<'a>,
    /// Its text, without the marks around it.
    pub text: String,
}

/// A name in a page. The code may have it or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// The page and the line.
    pub place: String,
    /// The name as the page has it.
    pub name: String,
}

impl Mention {
    /// The mention of a name in a part of a page.
    pub fn new(page: &Page, part: &Part<'_>, name: impl Into<String>) -> Self {
        Mention { place: format!("{}:{}", page.name, part.line), name: name.into() }
    }
}

/// The parts of a page, in order.
pub fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut is_block = false;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(language) = line.trim_start().strip_prefix("```") {
            is_block = !is_block;
            if is_block {
                parts.push(Part { line: number + 1, kind: PartKind::Block(language.trim()), text: String::new() });
            }
        } else if is_block {
            let block = parts.last_mut().expect("the fence has made a part");
            block.text.push_str(line);
            block.text.push('\n');
        } else {
            let pieces = || line.split('`').enumerate();
            let prose: String = pieces().map(|(at, piece)| if at % 2 == 0 { piece } else { "`" }).collect();
            parts.push(Part { line: number, kind: PartKind::Prose, text: prose });
            let spans = pieces().filter(|(at, _)| at % 2 == 1);
            parts.extend(spans.map(|(_, span)| Part { line: number, kind: PartKind::Span, text: span.to_owned() }));
        }
    }
    parts
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'a> {
    /// The number of its line, counted from 1.
    pub line: usize,
    /// The cells of the table's first row.
    pub head: Vec<&'a str>,
    /// Its cells, without the spaces around them.
    pub cells: Vec<&'a str>,
}

impl<'a> Row<'a> {
    /// The cell in the column whose head begins with a text.
    pub fn cell(&self, head: &str) -> Option<&'a str> {
        let at = self.head.iter().position(|found| found.starts_with(head))?;
        self.cells.get(at).copied()
    }

    /// The words in back quotes in a cell. Words in parentheses are explanations and are left out.
    pub fn code_words(cell: &str) -> Vec<&str> {
        let mut depth = 0_usize;
        let mut words = Vec::new();
        for (at, piece) in cell.split('`').enumerate() {
            if at % 2 == 1 {
                words.extend((depth == 0).then_some(piece));
            } else {
                depth += piece.matches('(').count();
                depth = depth.saturating_sub(piece.matches(')').count());
            }
        }
        words
    }
}

/// The rows of all tables of a page, without their first rows.
pub fn rows(text: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut head: Vec<&str> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(row) = line.strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            head.clear();
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if head.is_empty() {
            head = cells;
        } else if cells.iter().any(|cell| cell.chars().any(|c| !matches!(c, '-' | ':'))) {
            rows.push(Row { line: index + 1, head: head.clone(), cells });
        }
    }
    rows
}

/// The words of a text: the longest runs of characters for which `is_part` is true.
pub fn words(text: &str, is_part: impl Fn(char) -> bool) -> impl Iterator<Item = &str> {
    text.split(move |c| !is_part(c)).filter(|word| !word.is_empty())
}

/// Whether a text is a name of lower-case words, such as `history_size`.
pub fn is_snake(text: &str) -> bool {
    let is_part = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.split('_').all(|part| !part.is_empty() && is_part(part))
}

#[test]
fn a_page_is_taken_apart() {
    let text = "One `two` three\n\n```toml\na = 1\n```\n| a | b |\n|---|---|\n| `x` (`y`), `z` | 2 |\n";
    let parts = parts(text);
    let kinds: Vec<(usize, PartKind<'_>, &str)> =
        parts.iter().map(|part| (part.line, part.kind, part.text.as_str())).collect();
    assert_eq!(kinds[..2], [(1, PartKind::Prose, "One ` three"), (1, PartKind::Span, "two")]);
    assert_eq!(kinds[3], (4, PartKind::Block("toml"), "a = 1\n"));
    let rows = rows(text);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].line, rows[0].cell("b")), (8, Some("2")));
    assert_eq!(Row::code_words(rows[0].cells[0]), ["x", "z"]);
    assert!(is_snake("history_size") && is_snake("names") && !is_snake("a__b") && !is_snake("A_b"));
}
