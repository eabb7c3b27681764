//! Operations of the server API and methods of the registry: their names, fields and errors.

use std::collections::BTreeSet;

use serde_json::Value;
use touchline_engine::directory::RegistryMethod;
use touchline_server::{BATCH, COMMON_ERRORS, DOCUMENTS, OperationDescription, operations};

use super::{Mention, judge, made_up, page, present_pages};
use touchline_house::files::report;
use touchline_house::markdown::{Page, Part, PartKind, Row, parts, rows, words};

fn operation(name: &str) -> Option<&'static OperationDescription> {
    operations().find(|operation| operation.name == name)
}

/// The name at the beginning of a path.
fn operation_name(rest: &str) -> &str {
    rest.split(|c: char| c != '_' && !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// The names of operations on a page: in paths, in tables of operations, and behind the word `operation`.
fn mentions(page: &Page) -> Vec<Mention> {
    let mut found = Vec::new();
    for part in parts(&page.text) {
        // Source files of the server have `src/api/` in their paths.
        let paths = part.text.split_whitespace().filter(|word| !word.contains("src/api/"));
        let names = paths.filter_map(|path| path.split_once("/api/")).map(|(_, rest)| operation_name(rest));
        let names = names.filter(|name| !name.is_empty());
        found.extend(names.map(|name| Mention::new(page, &part, name)));
    }
    for (number, line) in page.text.lines().enumerate() {
        let called = line.split("operation `").skip(1).filter_map(|rest| rest.split('`').next());
        let names = called.filter(|name| operation_name(name) == *name);
        let place = format!("{}:{}", page.name, number + 1);
        found.extend(names.map(|name| Mention { place: place.clone(), name: name.to_owned() }));
    }
    for row in rows(&page.text).iter().filter(|row| row.head[0] == "operation") {
        let place = format!("{}:{}", page.name, row.line);
        let names = Row::code_words(row.cells[0]).into_iter();
        found.extend(names.map(|name| Mention { place: place.clone(), name: name.to_owned() }));
    }
    found
}

#[test]
fn every_operation_in_the_documentation_exists() {
    let mentions: Vec<Mention> = present_pages().iter().flat_map(mentions).collect();
    assert!(mentions.len() > 40, "operations are found: {}", mentions.len());
    let is_document = |name: &str| DOCUMENTS.iter().any(|document| operation_name(document) == name);
    let is_known = |name: &str| name == BATCH || is_document(name) || operation(name).is_some();
    judge("operations that do not exist", &mentions, is_known, &[]);
}

/// The places where a table or a request on a page has other fields or errors than the operation.
fn differing(page: &Page) -> Vec<String> {
    let mut broken = Vec::new();
    for row in rows(&page.text).iter().filter(|row| row.head[0] == "operation") {
        for operation in Row::code_words(row.cells[0]).into_iter().filter_map(operation) {
            let place = format!("{}:{} {}", page.name, row.line, operation.name);
            let told: BTreeSet<&str> = Row::code_words(row.cell("request").unwrap_or_default()).into_iter().collect();
            let fields: BTreeSet<&str> = (operation.request_fields)().into_iter().collect();
            broken.extend(told.symmetric_difference(&fields).map(|field| format!("{place}: {field}")));
            let Some(cell) = row.cell("errors") else { continue };
            let common: BTreeSet<u32> = COMMON_ERRORS.iter().map(|error| error.code).collect();
            let told = cell.split([',', ' ', ';']).filter_map(|word| word.parse().ok());
            let told: BTreeSet<u32> = told.filter(|code| !common.contains(code)).collect();
            let errors: BTreeSet<u32> = operation.errors.iter().map(|error| error.code).collect();
            broken.extend(told.symmetric_difference(&errors).map(|code| format!("{place}: {code}")));
        }
    }
    for part in parts(&page.text).iter().filter(|part| matches!(part.kind, PartKind::Block(_))) {
        broken.extend(part.text.lines().flat_map(unknown_fields).map(|name| {
            let Mention { place, name } = Mention::new(page, part, name);
            format!("{place}: {name}")
        }));
    }
    broken
}

/// The fields of a curl request that its operation does not have.
fn unknown_fields(line: &str) -> Vec<String> {
    let Some((_, rest)) = line.split_once("/api/") else { return Vec::new() };
    let name = operation_name(rest);
    let body = rest.split_once("-d '").and_then(|(_, body)| body.split('\'').next());
    let (Some(operation), Some(body)) = (operation(name), body) else { return Vec::new() };
    let fields = (operation.request_fields)();
    match serde_json::from_str(body) {
        Ok(Value::Object(body)) => {
            body.keys().filter(|key| !fields.contains(&key.as_str())).map(|key| format!("{name}: {key}")).collect()
        }
        _ => vec![format!("{name}: the body is not a JSON object: {body}")],
    }
}

#[test]
fn every_operation_has_the_fields_and_errors_that_the_documentation_names() {
    report("operations against the code", &present_pages().iter().flat_map(differing).collect::<Vec<_>>());
}

#[test]
fn what_an_operation_does_not_have_is_found() {
    let unknown = |text: &str| mentions(&made_up(text)).iter().any(|mention| operation(&mention.name).is_none());
    assert!(unknown("`POST /api/publsh`") && unknown("```\ncurl localhost/api/publsh -d '{}'\n```"));
    assert!(unknown("The operation `publsh` does it.") && !unknown("the operation `publish`"));
    assert!(unknown("| operation |\n|---|\n| `publsh` |") && !unknown("`POST /api/<name>`, `/api`, `/api/publish`"));
    let head = "| operation | request | errors |\n|---|---|---|\n";
    for text in [
        "| `lookup` | `scope` | 4002, 4003, 4009 |",
        "| `lookup` | `scope`, `name`, `more` | 4002, 4003, 4009 |",
        "| `lookup` | `scope`, `name` | 107, 4002, 4003 |",
        "| `lookup` | `scope`, `name` | 103, 4002, 4003, 4009 |",
    ] {
        assert_eq!(differing(&made_up(&format!("{head}{text}"))).len(), 1, "{text}");
    }
    let whole = format!("{head}| `lookup` | `scope` (of `x`), `name` | 107, 4002, 4003, 4009 |");
    assert_eq!(differing(&made_up(&whole)), Vec::<String>::new());
    let request = |body: &str| differing(&made_up(&format!("```sh\ncurl localhost/api/publish -d '{body}'\n```")));
    assert_eq!(request(r#"{"channel": "a", "data": 1}"#), Vec::<String>::new());
    assert_eq!(request(r#"{"chanel": "a", "data": 1}"#), ["page.md:2: publish: chanel"]);
    assert_eq!(request("[]").len(), 1);
}

/// The methods of the registry on a page, written as a client calls them.
fn methods(page: &Page) -> Vec<Mention> {
    let is_code = |part: &&Part<'_>| part.kind != PartKind::Prose;
    let mut found = Vec::new();
    for part in parts(&page.text).iter().filter(is_code) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let called = part.text.split("rpc('").skip(1).filter_map(|rest| rest.split('\'').next());
        let named = words(&part.text, is_part).filter(|word| word.starts_with("registry.") && !word.ends_with(".md"));
        // This is a section of the configuration. Another rule checks its keys.
        let named = named.filter(|word| !word.starts_with("registry.proxy."));
        found.extend(called.chain(named).map(|name| Mention::new(page, part, name)));
    }
    found
}

/// Names that look like methods of the registry and are not.
const NO_METHODS: &[(&str, &str)] = &[
    ("stats.track", "the session's own, of the statistics"),
    ("registry.scopes", "a key of the configuration"),
    ("message", "an RPC of the example for users of Socket.IO, which a backend answers"),
    ("registry.", "stands before the name of a method"),
];

#[test]
fn every_method_of_the_registry_exists_and_is_told_of() {
    let mentions: Vec<Mention> = present_pages().iter().flat_map(methods).collect();
    let is_known = |name: &str| matches!(RegistryMethod::from_rpc(name), Some(Some(_)));
    judge("methods of the registry that do not exist", &mentions, is_known, NO_METHODS);
    let text = page("docs/guides/registry.md").text + &page("docs/reference/server-api.md").text;
    let is_told = |name: &str| text.contains(&format!("`{name}`")) || text.contains(&format!("rpc('{name}'"));
    let missing = RegistryMethod::ALL.iter().map(|method| method.name()).filter(|name| !is_told(name));
    report("methods that no page tells of", &missing.map(str::to_owned).collect::<Vec<_>>());
}

#[test]
fn a_method_that_does_not_exist_is_found() {
    let unknown = |text: &str| {
        let methods = methods(&made_up(text));
        methods.iter().any(|method| !matches!(RegistryMethod::from_rpc(&method.name), Some(Some(_))))
    };
    assert!(
        unknown("`rpc('registry.find', {})`") && unknown("`registry.find`") && unknown("```\nrpc('inbox.take')\n```")
    );
    assert!(!unknown("`rpc('registry.lookup', {})`, `rpc('reply', {call})`, [registry.find](registry.md)"));
}
