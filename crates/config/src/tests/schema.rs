//! The JSON Schema against the reader: what one accepts the other does.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use super::{File, Severity};
use crate::json_schema;
use crate::keys::{KEYS, OPTIONS, SCOPE_OPTIONS};

/// Configurations, and whether their keys and types are right.
const CASES: &[(&str, bool)] = &[
    ("{}", true),
    (r#"{"http_server": {"port": 8000}}"#, true),
    (r#"{"http_server": {"port": "8000"}}"#, true),
    (r#"{"http_server": {"port": 70000}}"#, false),
    (r#"{"http_server": {"port": "http"}}"#, false),
    (r#"{"http_server": {"port": true}}"#, false),
    (r#"{"http_server": {"internal_port": ""}}"#, true),
    (r#"{"http_server": 8000}"#, false),
    (r#"{"$schema": "https://touchline.example/schema.json"}"#, true),
    (r#"{"client": {"insecure": "yes"}}"#, false),
    (r#"{"client": {"insecure": "true"}}"#, true),
    (r#"{"client": {"chanel_limit": 3}}"#, false),
    (r#"{"cleint": {}}"#, false),
    (r#"{"client": {"allowed_origins": ["https://a.example"]}}"#, true),
    (r#"{"client": {"allowed_origins": [1]}}"#, false),
    (r#"{"shutdown": {"timeout": "1h30m"}}"#, true),
    (r#"{"shutdown": {"timeout": "0.5s"}}"#, true),
    (r#"{"shutdown": {"timeout": 30}}"#, true),
    (r#"{"shutdown": {"timeout": "-5s"}}"#, true),
    (r#"{"shutdown": {"timeout": "soon"}}"#, false),
    (r#"{"shutdown": {"timeout": -1}}"#, false),
    (r#"{"log": {"level": "loud"}}"#, false),
    (r#"{"http_api": {"key": 1}}"#, false),
    (r#"{"channel": {"namespaces": [{"name": "news", "presence": true}]}}"#, true),
    (r#"{"channel": {"namespaces": [{"presence": true}]}}"#, false),
    (r#"{"channel": {"namespaces": [{"name": "news", "presense": true}]}}"#, false),
    (r#"{"channel": {"namespaces": "news"}}"#, false),
    (r#"{"channel": {"without_namespace": {"history_size": 1000000}}}"#, false),
    (r#"{"registry": {"scopes": [{"name": "devices", "conflict_policy": "reject"}]}}"#, true),
    (r#"{"registry": {"scopes": [{"name": "devices", "conflict_policy": "mine"}]}}"#, false),
    (r#"{"opentelemetry": {"enabled": true}}"#, true),
    (r#"{"client": {"token": {"issuer_regex": "^x"}}}"#, false),
    (r#"{"client": {"token": {"issuer_regex": ""}}}"#, true),
];

/// Reads the schema and the documents, and says of each whether it is valid.
const VALIDATOR: &str = "
import json, sys
try:
    import jsonschema
except ImportError:
    sys.exit(3)
asked = json.load(sys.stdin)
jsonschema.Draft202012Validator.check_schema(asked['schema'])
validator = jsonschema.Draft202012Validator(asked['schema'])
print(json.dumps([validator.is_valid(document) for document in asked['documents']]))
";

/// What a validator that others have made says of the documents; `None` = there is none on this machine.
fn validated(documents: &[Json]) -> Option<Vec<bool>> {
    let mut python =
        Command::new("python3").args(["-c", VALIDATOR]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let asked = json!({ "schema": json_schema(), "documents": documents });
    write!(python.stdin.take()?, "{asked}").ok()?;
    let output = python.wait_with_output().expect("it ends");
    if output.status.code() == Some(3) {
        return None;
    }
    assert!(output.status.success(), "the schema itself is good");
    Some(serde_json::from_slice(&output.stdout).expect("a list of answers"))
}

/// Whether the schema accepts a document, as far as this schema goes.
fn accepts(schema: &Json, document: &Json) -> bool {
    let any = schema.get("anyOf").and_then(Json::as_array);
    let listed = schema.get("enum").and_then(Json::as_array);
    let is_type = match schema.get("type").and_then(Json::as_str) {
        Some("object") => document.is_object(),
        Some("array") => document.is_array(),
        Some("string") => document.is_string(),
        Some("boolean") => document.is_boolean(),
        Some("integer") => document.is_i64() || document.is_u64(),
        Some(other) => panic!("no document is {other}"),
        None => true,
    };
    let number = document.as_f64().unwrap_or_default();
    let within = schema.get("minimum").is_none_or(|least| least.as_f64() <= Some(number))
        && schema.get("maximum").is_none_or(|most| most.as_f64() >= Some(number));
    let matches = schema.get("pattern").and_then(Json::as_str).is_none_or(|pattern| {
        document.as_str().is_some_and(|text| regex::Regex::new(pattern).expect("it is one").is_match(text))
    });
    let fields = document.as_object().into_iter().flatten();
    let has_fields = schema.get("properties").is_none_or(|known| {
        fields.into_iter().all(|(name, value)| known.get(name).is_some_and(|schema| accepts(schema, value)))
    });
    let required = schema.get("required").and_then(Json::as_array).into_iter().flatten();
    let has_required = required.into_iter().filter_map(Json::as_str).all(|name| document.get(name).is_some());
    let items = document.as_array().into_iter().flatten();
    is_type
        && within
        && matches
        && has_fields
        && has_required
        && any.is_none_or(|any| any.iter().any(|schema| accepts(schema, document)))
        && listed.is_none_or(|listed| listed.contains(document))
        && schema.get("const").is_none_or(|only| only == document)
        && schema.get("items").is_none_or(|schema| items.into_iter().all(|item| accepts(schema, item)))
}

#[test]
fn the_schema_refuses_what_the_reader_refuses_for_its_key_or_type() {
    let schema = json_schema();
    let documents: Vec<Json> = CASES.iter().map(|(text, _)| serde_json::from_str(text).expect("it is JSON")).collect();
    let others = validated(&documents);
    for (index, (text, expected)) in CASES.iter().enumerate() {
        let reading = File::new("c.json", text).read(&[]);
        let errors = reading.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
        assert_eq!((errors == 0, accepts(&schema, &documents[index])), (*expected, *expected), "{text}");
        assert!(others.as_ref().is_none_or(|others| others[index] == *expected), "{text}");
    }
}

#[test]
fn every_key_of_the_tables_is_in_the_schema_and_its_default_is_accepted() {
    let schema = json_schema();
    let at = |schema: &Json, path: &str| {
        path.split('.').try_fold(schema.clone(), |schema, name| schema["properties"].get(name).cloned())
    };
    let options = at(&schema, "channel.namespaces").expect("there are namespaces")["items"].clone();
    let scopes = at(&schema, "registry.scopes").expect("there are scopes")["items"].clone();
    for (schema, keys) in [(&schema, &KEYS), (&options, &OPTIONS), (&scopes, &SCOPE_OPTIONS)] {
        for key in keys.iter() {
            let found = at(schema, &key.path).unwrap_or_else(|| panic!("{} is missing", key.path));
            assert_eq!(found["description"], json!(key.meaning), "{}", key.path);
            let default = found.get("default").cloned().unwrap_or(json!(""));
            assert!(accepts(&found, &default), "{}: {default}", key.path);
        }
    }
    let port = at(&schema, "http_server.port").expect("it is there");
    assert_eq!(port["x-environment"], "TOUCHLINE_HTTP_SERVER_PORT");
}
