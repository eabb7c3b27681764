//! Pages of the documentation that are generated from tables. The prose of a page is a file in `pages/`.

use std::path::Path;

/// If this variable is set, the tests write the pages of the documentation instead of comparing them.
const WRITE_DOCS: &str = "TOUCHLINE_WRITE_DOCS";

/// Compares a page of the documentation with the generated text. It writes the page only if `WRITE_DOCS` is set.
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

/// Inserts tables and lists into the prose of a page. Each part is a placeholder, such as `@keys@`, and its text. The
/// page must contain each placeholder exactly once.
pub(super) fn fill(prose: &str, parts: &[(&str, String)]) -> String {
    let mut page = prose.to_owned();
    for (place, text) in parts {
        assert_eq!(page.matches(place).count(), 1, "the page contains {place} once");
        page = page.replace(place, text.trim_matches('\n'));
    }
    page
}
