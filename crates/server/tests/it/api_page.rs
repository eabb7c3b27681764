//! `docs/reference/api.md`: every operation of the server API with its fields. It is generated from the OpenAPI
//! document of a node.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value};
use touchline_protocol::Error;
use touchline_server::{COMMON_ERRORS, OperationDescription, OperationScope, operation_groups, operations};

use crate::pages::WRITE_DOCS;
use crate::support::{KEY, TestServer};

const INTRODUCTION: &str = "# Operations of the server API\n\n\
    *Made from the OpenAPI document of a node.*\n\
    *Edit the types of the operations in `crates/server/src/api/`, then run \
    `TOUCHLINE_WRITE_DOCS=1 cargo test --workspace up_to_date`.*\n\n\
    [server-api.md](server-api.md) says how a request is sent, how it is answered, and who may send it.\n\
    `GET /api/openapi.json` returns the same description in a form for programs.\n\
    Every operation is a method of [gRPC](../guides/grpc.md) too, and a subcommand of `touchline api`.\n\
    A field that is not marked \"required\" may be left out.\n";

#[test]
fn the_page_of_operations_is_up_to_date() {
    let (_, document) = TestServer::start().http("GET", "/api/openapi.json", &format!("X-API-Key: {KEY}\r\n"), "");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let page = OperationsPage::of(&document).text;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/api.md");
    if std::env::var_os(WRITE_DOCS).is_some() {
        return std::fs::write(&path, page).expect("the page is writable");
    }
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|found| found == page),
        "docs/reference/api.md is stale: run `{WRITE_DOCS}=1 cargo test --workspace --test it up_to_date`"
    );
}

/// The page under construction.
struct OperationsPage<'d> {
    schemas: &'d Map<String, Value>,
    text: String,
    /// Types that the page has named, and those of them that have no table yet.
    named: BTreeSet<&'d str>,
    waiting: VecDeque<&'d str>,
}

impl<'d> OperationsPage<'d> {
    fn of(document: &'d Value) -> Self {
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let mut page =
            OperationsPage { schemas, text: INTRODUCTION.to_owned(), named: BTreeSet::new(), waiting: VecDeque::new() };
        for (group, names) in operation_groups() {
            let _ = write!(page.text, "\n## Group `{group}`\n");
            for operation in operations().filter(|operation| names.contains(&operation.name)) {
                page.operation(operation);
            }
        }
        page.text.push_str(
            "\n## In no group\n\nNo group contains these operations.\n\
             To allow one of them for a key, write its name into the key's `operations`.\n",
        );
        let is_grouped = |name| operation_groups().any(|(_, names)| names.contains(&name));
        for operation in operations().filter(|operation| !is_grouped(operation.name)) {
            page.operation(operation);
        }
        page.text.push_str("\n## Types\n");
        while let Some(name) = page.waiting.pop_front() {
            let _ = write!(page.text, "\n### {name}\n\n");
            page.about(&page.schemas[name]);
            page.fields(&page.schemas[name]);
        }
        page
    }

    fn operation(&mut self, operation: &OperationDescription) {
        let OperationDescription { name, summary, .. } = operation;
        let camel = name.split('_').map(|word| word[..1].to_ascii_uppercase() + &word[1..]).collect::<String>();
        let (place, again) = (place(operation.scope), again(operation));
        let _ = write!(self.text, "\n### `{name}`\n\n{summary}.\n{place}\n{again}\n\n");
        let [request, reply] = ["Request", "Reply"].map(|of| &self.schemas[&format!("{camel}{of}")]);
        self.example(&format!("POST /api/{name}"), &request["examples"][0]);
        self.fields(request);
        self.text.push_str("\nThe result:\n\n");
        self.example("", &reply["examples"][0]);
        self.fields(reply);
        let errors: BTreeSet<(u32, &str)> = COMMON_ERRORS.iter().chain(operation.errors).map(told).collect();
        let errors: Vec<String> = errors.iter().map(|(code, message)| format!("{code} ({message})")).collect();
        let _ = write!(self.text, "\n[Errors](errors.md): {}.\n", errors.join(", "));
    }

    fn example(&mut self, head: &str, json: &Value) {
        let head = if head.is_empty() { String::new() } else { format!("{head}\n") };
        let _ = write!(self.text, "```\n{head}{json}\n```\n\n");
    }

    fn about(&mut self, schema: &Value) {
        if let Some(description) = schema["description"].as_str() {
            let _ = write!(self.text, "{}\n\n", description.replace(['\n', '\r'], " "));
        }
    }

    /// Writes a table of the forms that a value may have: what each means, and its fields or its text.
    fn forms(&mut self, forms: &'d [Value]) {
        self.text.push_str("One of these:\n\n| form | meaning |\n|---|---|\n");
        for form in forms {
            let about = form["description"].as_str().unwrap_or_default().replace(['\n', '\r'], " ");
            let shape = match (form["properties"].as_object(), form.get("const")) {
                (Some(properties), _) => {
                    let fields = properties.iter().map(|(name, of)| format!("`{name}` ({})", self.type_text(of)));
                    format!("an object with {}", fields.collect::<Vec<_>>().join(", "))
                }
                (None, Some(value)) => format!("`{value}`"),
                (None, None) => self.type_text(form),
            };
            let _ = writeln!(self.text, "| {shape} | {} |", about.replace('|', "\\|"));
        }
    }

    /// Writes a table of the fields of an object, a table of the forms of a value, or the text of another type.
    fn fields(&mut self, schema: &'d Value) {
        let Some(properties) = schema["properties"].as_object().filter(|properties| !properties.is_empty()) else {
            if let Some(forms) = ["anyOf", "oneOf"].iter().find_map(|of| schema[of].as_array()) {
                return self.forms(forms);
            }
            let text = if schema["type"] == "object" { "No fields.".to_owned() } else { self.type_text(schema) };
            let _ = writeln!(self.text, "{text}");
            return;
        };
        let required = schema["required"].as_array();
        self.text.push_str("| field | type | meaning |\n|---|---|---|\n");
        for (name, property) in properties {
            let is_required = required.is_some_and(|required| required.contains(&name.as_str().into()));
            let mark = if is_required { ", required" } else { "" };
            let (kind, bounds) = (self.type_text(property), bounds(property));
            let meaning = property["description"].as_str().unwrap_or_default().replace(['\n', '|'], " ");
            let _ = writeln!(self.text, "| `{name}` | {kind}{bounds}{mark} | {meaning} |");
        }
    }

    fn type_text(&mut self, schema: &'d Value) -> String {
        if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
            let (name, _) = self.schemas.get_key_value(name).expect("a known type");
            if self.named.insert(name) {
                self.waiting.push_back(name);
            }
            return format!("[{name}](#{})", name.to_lowercase());
        }
        if let Some(values) = schema["enum"].as_array() {
            return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
        }
        if let Some(choices) = ["anyOf", "oneOf", "allOf"].iter().find_map(|of| schema[of].as_array())
            && schema.get("type").is_none()
        {
            let choices = choices.iter().filter(|choice| choice["type"] != "null");
            return choices.map(|choice| self.type_text(choice)).collect::<Vec<_>>().join(" or ");
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect(),
            _ => Vec::new(),
        };
        match kinds.as_slice() {
            ["array"] => match schema.get("items") {
                Some(items) => format!("list of {}", self.type_text(items)),
                None => "list".to_owned(),
            },
            ["object"] => match schema.get("additionalProperties").filter(|value| value.is_object()) {
                Some(value) => format!("object of {}", self.type_text(value)),
                None => "object".to_owned(),
            },
            [kind] => (*kind).to_owned(),
            _ => "any JSON".to_owned(),
        }
    }
}

/// Where an operation runs, as a sentence.
fn place(scope: OperationScope) -> &'static str {
    match scope {
        OperationScope::AnyNode => "The node that receives the request runs it.",
        OperationScope::Broadcast => "Every node runs it.",
        OperationScope::Gather => "Every node runs it, and their answers are merged.",
        OperationScope::ClientNode => "The node that the client is connected to runs it.",
    }
}

/// Whether a request that got no answer can be sent again, as a sentence.
fn again(operation: &OperationDescription) -> &'static str {
    let has_key = (operation.request_fields)().contains(&"idempotency_key");
    match (operation.is_idempotent, has_key) {
        (true, _) => "If a request gets no answer, you can send it again.",
        (false, true) => "If a request gets no answer, send it again only if it has an `idempotency_key`.",
        (false, false) => "If a request gets no answer, do not send it again: it may have been carried out.",
    }
}

/// The number and the message of an error. The text after a colon is help for a person at a terminal.
fn told(error: &Error) -> (u32, &'static str) {
    (error.code, error.message.split(':').next().unwrap_or_default())
}

/// The bounds in a schema, as the end of a sentence.
fn bounds(schema: &Value) -> String {
    let number = |key: &str| schema.get(key).filter(|bound| **bound != 0).map(Value::to_string);
    let range = |low: Option<String>, high: Option<String>, unit: &str| match (low, high) {
        (Some(low), Some(high)) => format!(", {low}–{high}{unit}"),
        (Some(low), None) if low == "1" && !unit.is_empty() => ", not empty".to_owned(),
        (Some(low), None) => format!(", at least {low}{unit}"),
        (None, Some(high)) => format!(", at most {high}{unit}"),
        (None, None) => String::new(),
    };
    [("minimum", "maximum", ""), ("minLength", "maxLength", " characters"), ("minItems", "maxItems", " entries")]
        .map(|(low, high, unit)| range(number(low), number(high), unit))
        .concat()
}
