//! Codes of errors, of ended subscriptions and of ended connections.

use std::collections::BTreeSet;

use touchline_protocol::{Disconnect, Error, Unsubscribe};

use super::{Mention, Page, judge, made_up, page, present_pages};
use touchline_house::files::report;
use touchline_house::markdown::{PartKind, parts, rows};

/// Numbers that look like codes and mean something else.
const EXCEPTIONS: &[(&str, &str)] =
    &[("2014", "the year of a paper"), ("4501", "a code that the backend of an example chooses")];

/// If one of these words is before a number, the number is not a code.
const OTHERS: &[&str] = &[
    "RFC",
    "port",
    "ports",
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// If one of these words is directly before a number, the number is a code.
const NAMES: &[&str] = &["error", "errors", "disconnect", "code", "codes"];

fn catalogue() -> BTreeSet<u32> {
    let errors = Error::ALL.iter().map(|error| error.code);
    let disconnects = Disconnect::ALL.iter().map(|why| u32::from(why.code));
    errors.chain(disconnects).chain(Unsubscribe::ALL.iter().map(|why| why.code)).collect()
}

/// The numbers of a page that are written like codes.
fn mentions(page: &Page) -> Vec<Mention> {
    let mut found = Vec::new();
    for part in parts(&page.text) {
        let numbers = match part.kind {
            // The rows of tables are handled below.
            PartKind::Prose if part.text.starts_with('|') => part.text.split('|').flat_map(of_cell).collect(),
            PartKind::Prose => of_prose(&part.text),
            PartKind::Span | PartKind::Block(_) => of_code(&part.text),
        };
        found.extend(numbers.into_iter().map(|number| Mention::new(page, &part, number)));
    }
    for row in rows(&page.text) {
        let columns = row.head.iter().zip(&row.cells).filter(|(head, _)| head.starts_with("error") || **head == "code");
        let place = format!("{}:{}", page.name, row.line);
        for (_, cell) in columns {
            let numbers = cell.split([',', ' ', ';']).filter(|word| is_number(word));
            found.extend(numbers.map(|number| Mention { place: place.clone(), name: number.to_owned() }));
        }
    }
    found
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The codes in a cell. A cell with only a number is a figure, unless the head of its column says that it is a code.
fn of_cell(cell: &str) -> Vec<String> {
    if is_number(cell.trim()) { Vec::new() } else { of_prose(cell) }
}

/// The codes in prose: numbers behind a word such as `error`, numbers from 2000 to 4999 without a comma, and numbers
/// from 100 to 119 that no word follows directly.
fn of_prose(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let bare = word.trim_start_matches(['(', '"', '*']).trim_end_matches(['.', ',', ';', ':', ')', '"', '*', '?']);
        let is_last = at + 1 == words.len() || *word != bare;
        let is_called = at > 0 && NAMES.contains(&words[at - 1].to_lowercase().as_str());
        let is_code = match bare.parse::<u32>() {
            Ok(100..=9_999) if is_called => is_number(bare) && !is_status(bare),
            Ok(2_000..=4_999) => bare.len() == 4,
            Ok(100..=119) => bare.len() == 3 && is_last && word.starts_with(bare),
            _ => false,
        };
        let before = &words[at.saturating_sub(3)..at];
        if is_code && !before.iter().any(|word| OTHERS.contains(word)) {
            found.push(bare.to_owned());
        }
    }
    found
}

/// The numbers behind `code` in JSON and in log lines.
fn of_code(text: &str) -> Vec<String> {
    let behind = ["\"code\":", "code="].iter().flat_map(|name| text.split(name).skip(1));
    let number = |rest: &str| rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>();
    let of_error = text.split("\"error\":{\"code\":").skip(1).map(number).filter(|number| !number.is_empty());
    let shaped = behind.map(number).filter(|number| (3..=4).contains(&number.len()) && !is_status(number));
    shaped.chain(of_error).collect()
}

/// Whether a number is an HTTP status.
fn is_status(number: &str) -> bool {
    matches!(number.parse::<u32>(), Ok(200..=599))
}

#[test]
fn every_code_in_the_documentation_exists() {
    let mentions: Vec<Mention> = present_pages().iter().flat_map(mentions).collect();
    assert!(mentions.len() > 300, "codes are found: {}", mentions.len());
    let catalogue = catalogue();
    let is_known = |number: &str| number.parse().is_ok_and(|number| catalogue.contains(&number));
    judge("codes that do not exist", &mentions, is_known, EXCEPTIONS);
}

#[test]
fn a_code_that_does_not_exist_is_found() {
    let found = |text: &str| mentions(&made_up(text)).into_iter().map(|mention| mention.name).collect::<Vec<_>>();
    for (text, number) in [
        ("It is refused with 4099.", "4099"),
        ("subscriptions end (2600) then", "2600"),
        ("error 113", "113"),
        ("error 150, or not", "150"),
        ("disconnect 5000", "5000"),
        ("`{\"error\":{\"code\":250}}`", "250"),
        ("answered with 113, or not", "113"),
        ("`{\"code\":3999}`", "3999"),
        ("```\nINFO refused code=199 address\n```", "199"),
        ("| a | errors |\n|---|---|\n| x | 107, 4099 |", "4099"),
        ("| a | b |\n|---|---|\n| x | refused with 4099 meanwhile |", "4099"),
    ] {
        assert!(found(text).contains(&number.to_owned()), "{text}: {:?}", found(text));
    }
    for text in
        ["113 bytes", "2,600 names", "3500–3999 are final", "21 November 2026", "ports 4222 and 6222", "RFC 2600"]
    {
        assert_eq!(found(text), Vec::<String>::new(), "{text}");
    }
    assert_eq!(found("| a | b |\n|---|---|\n| x | 4096 |"), Vec::<String>::new());
}

/// The rows of the tables of codes: number, text, and for errors whether they are temporary.
fn told(page: &Page) -> BTreeSet<(u32, String, Option<bool>)> {
    let rows = rows(&page.text);
    let coded = rows.iter().filter(|row| row.head[0] == "code");
    coded
        .map(|row| {
            let number = row.cells[0].parse().unwrap_or_else(|_| panic!("{}:{} has no number", page.name, row.line));
            (number, row.cells[1].to_owned(), row.cell("temporary").map(|cell| cell == "yes"))
        })
        .collect()
}

/// The rows that the tables of codes must have.
fn to_tell() -> BTreeSet<(u32, String, Option<bool>)> {
    let errors = Error::ALL.iter().map(|error| (error.code, error.message.to_owned(), Some(error.temporary)));
    let unsubscribes = Unsubscribe::ALL.iter().map(|why| (why.code, why.reason.to_owned(), None));
    let disconnects = Disconnect::ALL.iter().map(|why| (why.code.into(), why.reason.clone().into_owned(), None));
    errors.chain(unsubscribes).chain(disconnects).collect()
}

#[test]
fn the_page_of_the_protocol_has_every_code_and_no_other() {
    let (told, to_tell) = (told(&page("docs/reference/protocol.md")), to_tell());
    let differing = told.symmetric_difference(&to_tell);
    let differing: Vec<String> = differing.map(|row| format!("{row:?}")).collect();
    report("codes of docs/reference/protocol.md against the code", &differing);
}

#[test]
fn a_row_of_another_text_is_found() {
    let page = made_up("| code | message | temporary | meaning |\n|---|---|---|---|\n| 111 | too many | yes | x |\n");
    assert!(told(&page).is_disjoint(&to_tell()));
    let page = made_up("| code | reason | meaning |\n|---|---|---|\n| 3008 | slow | x |\n");
    assert!(told(&page).is_subset(&to_tell()));
}
