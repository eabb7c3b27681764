//! The tables of `docs/server-api.md` that are made from the table of operations and the table of errors.

use std::fmt::Write as _;
use std::path::Path;

use touchline_protocol::Error;
use touchline_server::{COMMON_ERRORS, OperationDescription, operation_groups, operations};

/// Tells this test to write the page instead of comparing it.
const WRITE_DOCS: &str = "TOUCHLINE_WRITE_DOCS";

#[test]
fn the_tables_of_the_server_api_are_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/server-api.md");
    let found = std::fs::read_to_string(&path).expect("the page is there");
    let page = [("operations", operations_table()), ("groups", groups_table()), ("statuses", statuses_table())]
        .into_iter()
        .fold(found.clone(), |page, (place, table)| with_table(&page, place, &table));
    if std::env::var_os(WRITE_DOCS).is_some() {
        return std::fs::write(&path, page).expect("the page is writable");
    }
    assert!(
        found == page,
        "docs/server-api.md is stale: run `{WRITE_DOCS}=1 cargo test --locked -p touchline-server up_to_date`, \
         look at the page and commit it"
    );
}

/// The page with another table between the two comments of a place.
fn with_table(page: &str, place: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- table of {place}: begin -->\n"), format!("<!-- table of {place}: end -->\n"));
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page has a place for {place}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("the place for {place} ends"));
    format!("{before}{begin}\n{table}\n{end}{after}")
}

fn codes<'a>(errors: impl IntoIterator<Item = &'a Error>) -> String {
    let mut codes: Vec<u32> = errors.into_iter().map(|error| error.code).collect();
    codes.sort_unstable();
    codes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn operations_table() -> String {
    let common = codes(COMMON_ERRORS);
    let mut table = format!(
        "| operation | what it does | request | result | errors beside {common} | runs on | may be repeated |\n\
         |---|---|---|---|---|---|---|\n"
    );
    for operation in operations() {
        let OperationDescription { name, summary, result, .. } = operation;
        let fields: Vec<String> = (operation.request_fields)().iter().map(|field| format!("`{field}`")).collect();
        let (fields, errors) = (fields.join(", "), codes(operation.errors));
        let (scope, repeated) = (operation.scope.text(), if operation.is_idempotent { "yes" } else { "no" });
        let row = [*summary, &fields, *result, &errors, scope, repeated];
        let row = row.map(|cell| if cell.is_empty() { String::new() } else { format!(" {cell}") });
        let _ = writeln!(table, "| `{name}` |{} |", row.join(" |"));
    }
    table
}

fn groups_table() -> String {
    let mut table = String::from("| group | operations |\n|---|---|\n");
    for (group, operations) in operation_groups() {
        let operations: Vec<String> = operations.iter().map(|operation| format!("`{operation}`")).collect();
        let _ = writeln!(table, "| `{group}` | {} |", operations.join(", "));
    }
    table
}

fn statuses_table() -> String {
    let mut table = String::from("| error | status | may succeed later |\n|---|---|---|\n");
    for Error { code, message, temporary, http_status, .. } in Error::ALL {
        // What stands behind a colon is help for a person at a terminal.
        let message = message.split(':').next().unwrap_or_default();
        let _ = writeln!(table, "| {code} {message} | {http_status} | {} |", if *temporary { "yes" } else { "no" });
    }
    table
}
