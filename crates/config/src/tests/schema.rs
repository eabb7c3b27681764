//! The JSON Schema compared with the reader: both accept the same configurations.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{File, Severity};
use crate::json_schema;
use crate::keys::{KEYS, Key, LISTS, ValueKind};

/// Configurations, each with whether its keys and types are valid.
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
    (r#"{"client": {"token": {"issuer_regex": "^x"}}}"#, true),
    (r#"{"client": {"token": {"meta_from_claim": [{"key": "a", "value": "b.c"}]}}}"#, true),
    (r#"{"client": {"token": {"meta_from_claim": [{"key": "a-b", "value": "b.c"}]}}}"#, false),
    (r#"{"client": {"token": {"meta_from_claim": [{"key": "a", "value": "b..c"}]}}}"#, false),
    (r#"{"client": {"token": {"meta_from_claim": [{"key": "a"}]}}}"#, false),
    (r#"{"client": {"token": {"jwks": {"providers": [{"name": "kc", "tls": {"enabled": true}}]}}}}"#, true),
    (r#"{"client": {"token": {"jwks": {"providers": [{"name": "k c"}]}}}}"#, false),
    (r#"{"http_api": {"keys": [{"name": "a-b"}]}}"#, false),
    (r#"{"http_api": {"keyfile": "x"}}"#, false),
    (r#"{"channel": {"proxy": {"subscribe_stream": 1}}}"#, false),
    (r#"{"channel": {"proxy": {"subscribe_stream": ""}}}"#, true),
    (r#"{"shutdown": {"timeout": "4294967295"}}"#, true),
    (r#"{"shutdown": {"timeout": "4294967296"}}"#, false),
    (r#"{"shutdown": {"timeout": 9223372036854775807}}"#, true),
    (r#"{"shutdown": {"timeout": 9223372036854775808}}"#, false),
    (r#"{"shutdown": {"timeout": "999999999999999999999s"}}"#, false),
    (r#"{"http_server": {"port": "65535"}}"#, true),
    (r#"{"http_server": {"port": "65536"}}"#, false),
    (r#"{"http_server": {"port": null}}"#, true),
    (r#"{"http_server": null}"#, true),
    (r#"{"channel": {"namespaces": null, "without_namespace": {"presence": null}}}"#, true),
    (r#"{"channel": {"namespaces": [null, {"name": "news", "presence": null}]}}"#, true),
    (r#"{"channel": {"namespaces": [{"name": null}]}}"#, false),
    (r#"{"client": {"allowed_origins": [null]}}"#, true),
    (r#"{"channel": {"namespaces": [{"name": "n"}]}}"#, false),
    (r#"{"channel": {"namespaces": [{"name": "a:b"}]}}"#, false),
    (r#"{"channel": {"namespaces": [{"name": "чат"}]}}"#, false),
    (r#"{"channel": {"namespaces": [{"name": "a.b-c_1"}]}}"#, true),
    (r#"{"registry": {"scopes": [{"name": "$mine"}]}}"#, false),
    (r#"{"registry": {"scopes": [{"name": ""}]}}"#, true),
    ("null", false),
    ("[]", false),
];

/// A program that reads the schema and the documents, and prints whether each document is valid.
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

/// The results of an independent validator for the documents. `None`: this machine does not have the validator.
fn validated(documents: &[Json]) -> Option<Vec<bool>> {
    let mut python =
        Command::new("python3").args(["-c", VALIDATOR]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let asked = json!({ "schema": json_schema(), "documents": documents });
    write!(python.stdin.take()?, "{asked}").ok()?;
    let output = python.wait_with_output().expect("it ends");
    if output.status.code() == Some(3) {
        return None;
    }
    assert!(output.status.success(), "the schema itself is valid");
    Some(serde_json::from_slice(&output.stdout).expect("a list of answers"))
}

/// Whether the schema accepts a document. It implements only the parts of JSON Schema that this schema uses.
fn accepts(schema: &Json, document: &Json) -> bool {
    let any = schema.get("anyOf").and_then(Json::as_array);
    let listed = schema.get("enum").and_then(Json::as_array);
    let is_of = |kind: &Json| match kind.as_str() {
        Some("object") => document.is_object(),
        Some("array") => document.is_array(),
        Some("string") => document.is_string(),
        Some("null") => document.is_null(),
        Some("boolean") => document.is_boolean(),
        Some("integer") => document.is_i64() || document.is_u64(),
        other => panic!("no document is {other:?}"),
    };
    let is_type = match schema.get("type") {
        Some(Json::Array(kinds)) => kinds.iter().any(is_of),
        Some(kind) => is_of(kind),
        None => true,
    };
    let whole = |number: &Json| number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
    let is_within = |bound: &str, holds: fn(i128, i128) -> bool| {
        let both = schema.get(bound).and_then(whole).zip(whole(document));
        both.is_none_or(|(bound, number)| holds(bound, number))
    };
    let within =
        is_within("minimum", |least, number| least <= number) && is_within("maximum", |most, number| number <= most);
    let matches = schema.get("pattern").and_then(Json::as_str).is_none_or(|pattern| {
        document.as_str().is_none_or(|text| regex::Regex::new(pattern).expect("it is one").is_match(text))
    });
    let fields = document.as_object().into_iter().flatten();
    let has_fields = schema.get("properties").is_none_or(|known| {
        fields.into_iter().all(|(name, value)| known.get(name).is_some_and(|schema| accepts(schema, value)))
    });
    let required = schema.get("required").and_then(Json::as_array).into_iter().flatten();
    let has_required =
        !document.is_object() || required.into_iter().filter_map(Json::as_str).all(|name| document.get(name).is_some());
    let items = document.as_array().into_iter().flatten();
    let mut others = document.as_object().into_iter().flatten();
    let has_others = schema
        .get("additionalProperties")
        .filter(|schema| schema.is_object())
        .is_none_or(|schema| others.all(|(_, value)| accepts(schema, value)));
    let is_one = schema
        .get("oneOf")
        .and_then(Json::as_array)
        .is_none_or(|all| all.iter().filter(|schema| accepts(schema, document)).count() == 1);
    is_type
        && has_others
        && is_one
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
    let of_list = |list: &str| at(&schema, list).unwrap_or_else(|| panic!("{list} is missing"))["items"].clone();
    let lists = LISTS.map(|(list, keys)| (of_list(list), keys));
    for (schema, keys) in lists.iter().map(|(schema, keys)| (schema, *keys)).chain([(&schema, &KEYS)]) {
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

static SCHEMA: LazyLock<Json> = LazyLock::new(json_schema);

/// The bounds of all kinds of numbers, and the numbers next to them.
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    9,
    10,
    65_535,
    65_536,
    u32::MAX as u64,
    u32::MAX as u64 + 1,
    i64::MAX as u64,
    i64::MAX as u64 + 1,
    u64::MAX,
];

/// Numbers as text, some with a prefix.
fn number_text() -> impl Strategy<Value = String> {
    let number = prop_oneof![prop::sample::select(NUMBERS), any::<u64>(), 0_u64..100_000];
    (prop::sample::select(vec!["", "", "+", "0", "+00", "-", " "]), number)
        .prop_map(|(before, number)| format!("{before}{number}"))
}

/// Texts that are durations, and texts that are almost durations.
fn duration_text() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        "[0-9]{1,14}",
        "0{0,9}[0-9]{1,6}\\.?[0-9]{0,3}",
        "\\.[0-9]{0,3}",
        "[0-9]\\.[0-9]\\.[0-9]",
        // Numbers that are too large in any unit.
        "[1-9][0-9]{26,30}",
    ];
    let unit = prop::sample::select(vec!["d", "h", "m", "s", "ms", "us", "µs", "", "w", "D"]);
    let parts = prop::collection::vec((number, unit), 1..3);
    (prop::sample::select(vec!["", "", "-", "+"]), parts).prop_map(|(before, parts)| {
        parts.iter().fold(before.to_owned(), |text, (number, unit)| format!("{text}{number}{unit}"))
    })
}

/// Lists of rates, and lists that are almost lists of rates.
fn rates() -> impl Strategy<Value = Json> {
    let interval = prop_oneof![
        duration_text().prop_map(Json::from),
        prop::sample::select(NUMBERS).prop_map(Json::from),
        Just(Json::Null)
    ];
    let rate = prop_oneof![prop::sample::select(NUMBERS).prop_map(Json::from), Just(json!("1")), Just(json!(0))];
    let bucket = prop_oneof![
        9 => (interval, rate).prop_map(|(interval, rate)| json!({ "interval": interval, "rate": rate })),
        1 => Just(json!({ "rate": 1 })),
        1 => Just(json!({ "interval": "1s", "rate": 1, "burst": 1 })),
    ];
    prop::collection::vec(bucket, 0..2).prop_map(Json::from)
}

/// Values of all types. Values that fit the key are more frequent.
fn written(kind: ValueKind) -> BoxedStrategy<Json> {
    let words: Vec<&str> = match kind {
        ValueKind::Choice(words) => words.to_vec(),
        _ => vec!["", "true", "FALSE", "yes", "1", "word"],
    };
    let number = prop_oneof![prop::sample::select(NUMBERS).prop_map(Json::from), any::<i64>().prop_map(Json::from)];
    let item = prop_oneof![4 => Just(json!("a")), 1 => Just(Json::Null), 1 => Just(json!(1)), 1 => Just(json!([]))];
    prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        number,
        Just(json!(0.5)),
        Just(json!({})),
        Just(json!({"a": "b"})),
        Just(json!({"a": 1})),
        Just(json!([{"status_code": 404, "to_error": {"code": 404}}])),
        Just(json!([{"status_code": 404, "to_disconnect": {"code": 404}}])),
        rates(),
        (prop::sample::select(vec!["namespace_name", "method", "name"]), rates())
            .prop_map(|(name, rates)| json!([{ name: "one", "enabled": true, "buckets": rates }])),
        rates().prop_map(|rates| json!({ "one": { "buckets": rates } })),
        Just(json!([{"method": 1}])),
        Just(json!([{"method": "one", "enabled": "yes"}])),
        Just(json!([{"method": "one", "bucket": []}])),
        prop::collection::vec(item, 0..3).prop_map(Json::from),
        prop::sample::select(words).prop_map(Json::from),
        number_text().prop_map(Json::from),
        duration_text().prop_map(Json::from),
    ]
    .boxed()
}

/// A key, the path that errors use for it, and its places in the schema and in the document.
#[derive(Debug, Clone)]
struct Placed {
    key: Key,
    named: String,
    is_in_list: Option<&'static str>,
}

fn placed() -> impl Strategy<Value = Placed> {
    let at = |key: &Key, list: &str| format!("{list}[news].{}", key.path);
    let mut all: Vec<Placed> =
        KEYS.iter().map(|key| Placed { key: key.clone(), named: key.path.clone(), is_in_list: None }).collect();
    for (list, keys) in LISTS {
        let in_list = |key: &Key| Placed { key: key.clone(), named: at(key, list), is_in_list: Some(list) };
        all.extend(keys.iter().map(in_list));
    }
    prop::sample::select(all)
}

/// The document that has a value at a path.
fn document(path: &str, value: Json) -> Json {
    path.rsplit('.').fold(value, |value, name| json!({ name: value }))
}

/// Whether the reader accepts the value for its key. Rules over several keys are not checked.
fn is_read(placed: &Placed, document: &Json) -> bool {
    let reading = File::new("c.json", &document.to_string()).read(&[]);
    let fault = format!("{}: expected ", placed.named);
    !reading.findings.iter().any(|finding| finding.severity == Severity::Error && finding.text.starts_with(&fault))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn the_schema_accepts_a_value_exactly_if_the_reader_does(
        (placed, value) in placed().prop_flat_map(|placed| {
            let kind = placed.key.kind;
            (Just(placed), written(kind))
        }),
    ) {
        let inner = document(&placed.key.path, value.clone());
        let whole = match placed.is_in_list {
            None => inner,
            Some(list) => {
                let mut item = inner;
                item["name"] = json!("news");
                document(list, json!([item]))
            }
        };
        // For a key in PEM, a pattern or JSON text, the reader also checks the content of the text.
        let is_looked_into = matches!(
            placed.key.kind,
            ValueKind::Pem
                | ValueKind::Pattern
                | ValueKind::StringMap
                | ValueKind::Transforms
                | ValueKind::ClaimPaths
                | ValueKind::Buckets
                | ValueKind::Overrides(_)
                | ValueKind::OverrideTable
        );
        prop_assume!(!is_looked_into || !value.is_string());
        // In such a list, `null` means absence, and an empty list means no value.
        let is_absent = |items: &Vec<Json>| items.is_empty() || items.iter().any(Json::is_null);
        prop_assume!(!is_looked_into || !value.as_array().is_some_and(is_absent));
        prop_assert_eq!(accepts(&SCHEMA, &whole), is_read(&placed, &whole), "{}", whole);
    }

    #[test]
    fn names_are_refused_by_both_or_by_none(name in "[$a-zA-Z0-9_.:é -]{0,4}") {
        let plain = ["channel.namespaces", "registry.scopes", "proxies", "rpc.namespaces"];
        for list in plain.into_iter().chain(["client.token.jwks.providers"]) {
            let whole = document(list, json!([{ "name": name }]));
            let reading = File::new("c.json", &whole.to_string()).read(&[]);
            let is_read = !reading.findings.iter().any(|finding| finding.severity == Severity::Error);
            prop_assert_eq!(accepts(&SCHEMA, &whole), is_read, "{}", whole);
        }
    }
}
