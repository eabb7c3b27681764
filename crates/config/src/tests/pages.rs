//! Pages of the documentation that are made from tables. The prose of a page is a file in `pages/`.

use std::path::Path;

/// Tells the tests that compare a page of the documentation to write it instead.
const WRITE_DOCS: &str = "TOUCHLINE_WRITE_DOCS";

/// Compares a page of the documentation with what its tables say. It is written only where that is asked for.
pub(super) fn is_up_to_date(page: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    if std::env::var_os(WRITE_DOCS).is_some() {
        return std::fs::write(&path, expected).expect("the page is writable");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let line = 1 + found.lines().zip(expected.lines()).take_while(|(found, expected)| found == expected).count();
    assert!(
        found == expected,
        "{page} is stale from line {line} on: run `{WRITE_DOCS}=1 cargo test --locked -p touchline-config up_to_date`, \
         look at the page and commit it"
    );
}

/// Puts tables and lists into the prose of a page. Each part is the name of a place, as `@keys@`, and its text. The
/// page must have each place exactly once.
pub(super) fn fill(prose: &str, parts: &[(&str, String)]) -> String {
    let mut page = prose.to_owned();
    for (place, text) in parts {
        assert_eq!(page.matches(place).count(), 1, "{place} stands once in the page");
        page = page.replace(place, text.trim_matches('\n'));
    }
    page
}
