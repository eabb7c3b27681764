//! The pages that are generated from the table of operations and the table of errors: `docs/reference/server-api.md`
//! and `docs/reference/errors.md`.

use std::fmt::Write as _;
use std::path::Path;

use touchline_protocol::{Disconnect, Error, Unsubscribe};
use touchline_server::{COMMON_ERRORS, OperationDescription, operation_groups, operations};

/// If this variable is set, the test writes the page instead of comparing it.
pub(crate) const WRITE_DOCS: &str = "TOUCHLINE_WRITE_DOCS";

#[test]
fn the_tables_of_the_server_api_are_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/server-api.md");
    let found = std::fs::read_to_string(&path).expect("the page is there");
    let page = [("operations", operations_table()), ("groups", groups_table())]
        .into_iter()
        .fold(found.clone(), |page, (place, table)| with_table(&page, place, &table));
    if std::env::var_os(WRITE_DOCS).is_some() {
        return std::fs::write(&path, page).expect("the page is writable");
    }
    assert!(
        found == page,
        "docs/reference/server-api.md is stale: run `{WRITE_DOCS}=1 cargo test --locked -p touchline-server \
         up_to_date`, look at the page and commit it"
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

#[test]
fn the_page_of_errors_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors.md");
    let page = errors_page();
    if std::env::var_os(WRITE_DOCS).is_some() {
        return std::fs::write(&path, page).expect("the page is writable");
    }
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|found| found == page),
        "docs/reference/errors.md is stale: run `{WRITE_DOCS}=1 cargo test --workspace --test it up_to_date`"
    );
}

fn errors_page() -> String {
    let answer = |is_yes: bool| if is_yes { "yes" } else { "no" };
    let mut page = String::from(
        "# Errors\n\n\
         *Made from the tables in `crates/protocol/src/code.rs`; edit those, then run \
         `TOUCHLINE_WRITE_DOCS=1 cargo test --workspace up_to_date`.*\n\n\
         `GET /api/errors` returns the same list as JSON.\n\
         [protocol.md](protocol.md) says when a client gets each code.\n\n\
         ## Errors of commands and operations\n\n\
         A caller of the server API can ask for errors as statuses, with `X-Centrifugo-Error-Mode: transport`.\n\
         The columns HTTP and gRPC have the status that such a caller gets.\n\
         If \"may succeed later\" is yes, the client or caller can send the same request again.\n\n\
         | number | name | message | HTTP | gRPC | may succeed later | what to do |\n|---|---|---|---|---|---|---|\n",
    );
    for entry in Error::CATALOGUE {
        let Error { code, message, temporary, http_status, grpc_status } = entry.error;
        let (name, remedy) = (entry.name, entry.remedy);
        // The text after a colon is help for a person at a terminal.
        let message = message.split(':').next().unwrap_or_default();
        let later = answer(temporary);
        let _ =
            writeln!(page, "| {code} | `{name}` | {message} | {http_status} | {grpc_status} | {later} | {remedy} |");
    }
    page.push_str("\n## Ends of connections\n\n| code | reason | the client connects again |\n|---|---|---|\n");
    for known in Disconnect::ALL {
        let _ = writeln!(page, "| {} | {} | {} |", known.code, known.reason, answer(known.is_reconnect()));
    }
    page.push_str("\n## Ends of subscriptions\n\n| code | reason | the client subscribes again |\n|---|---|---|\n");
    for known in Unsubscribe::ALL {
        let _ = writeln!(page, "| {} | {} | {} |", known.code, known.reason, answer(known.is_resubscribe()));
    }
    page
}
