//! The JSON Schema (draft 2020-12) of a configuration, for editors: it completes keys, shows what they mean, and marks
//! what a node would not read.

use serde_json::{Map, Value as Json, json};
use touchline_engine::setting::{Key, ValueKind};

use crate::keys::{KEYS, NAMESPACES, OPTIONS, SCOPE_OPTIONS, SCOPES, WITHOUT_NAMESPACE};
use crate::load::environment::variable;
use crate::unsupported::{Disposition, UNSUPPORTED, UNSUPPORTED_OPTIONS, UnsupportedKey};

/// A whole number as text.
const DIGITS: &str = r"^\+?[0-9]+$";
/// A duration as text: seconds, or numbers with units. One below zero is left out with a warning.
const DURATION: &str = r"^-?(\+?[0-9]+|(([0-9]+\.?[0-9]*|\.[0-9]+)(d|h|m|s|ms|us|µs))+)$";

/// The schema of a whole configuration. What it accepts has known keys and values of the right kind; values that do not
/// go together only `touchline check` finds.
pub fn json_schema() -> Json {
    let mut root = table();
    for key in KEYS.iter() {
        insert(&mut root, &key.path, value(key, Some(&key.path)));
    }
    for unsupported in UNSUPPORTED {
        insert(&mut root, unsupported.path, left_out(unsupported));
    }
    insert(&mut root, WITHOUT_NAMESPACE, options(Some(WITHOUT_NAMESPACE)));
    insert(&mut root, NAMESPACES, named(options(None), "Namespaces of channels: a name, and options of its channels."));
    let mut scope = table();
    for key in SCOPE_OPTIONS.iter() {
        insert(&mut scope, &key.path, value(key, None));
    }
    insert(&mut root, SCOPES, named(scope, "Scopes of the registry: a name, and options."));
    let Json::Object(mut fields) = root else { return root };
    // Editors look for it at the top.
    fields.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    fields.insert("title".into(), json!("Touchline's configuration"));
    insert_field(&mut fields, "$schema", json!({ "type": "string" }));
    Json::Object(fields)
}

/// A table without keys; others are refused.
fn table() -> Json {
    json!({ "type": "object", "additionalProperties": false, "properties": {} })
}

/// The options of a channel. `section`: the table that they are in, if it has variables.
fn options(section: Option<&str>) -> Json {
    let mut table = table();
    for key in OPTIONS.iter() {
        let path = section.map(|section| format!("{section}.{}", key.path));
        insert(&mut table, &key.path, value(key, path.as_deref()));
    }
    for unsupported in UNSUPPORTED_OPTIONS {
        insert(&mut table, unsupported.path, left_out(unsupported));
    }
    table
}

/// A list of tables that have names.
fn named(mut item: Json, meaning: &str) -> Json {
    insert(&mut item, "name", json!({ "type": "string", "description": "Its name." }));
    item["required"] = json!(["name"]);
    json!({ "type": "array", "items": item, "description": meaning })
}

/// Puts the schema of a key below a table; makes the tables on the way.
fn insert(table: &mut Json, path: &str, schema: Json) {
    let Some(fields) = table.as_object_mut() else { return };
    match path.split_once('.') {
        None => insert_field(fields, path, schema),
        Some((section, rest)) => {
            let properties = fields.entry("properties").or_insert_with(|| json!({}));
            let inner = properties.as_object_mut().map(|all| all.entry(section).or_insert_with(self::table));
            inner.into_iter().for_each(|inner| insert(inner, rest, schema.clone()));
        }
    }
}

fn insert_field(fields: &mut Map<String, Json>, name: &str, schema: Json) {
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    properties[name] = schema;
}

/// What a key accepts. Text that says a thing is as good as the thing.
fn value(key: &Key, path: Option<&str>) -> Json {
    let mut schema = match key.kind {
        ValueKind::Boolean => json!({ "anyOf": [
            { "type": "boolean" },
            { "enum": ["1", "t", "T", "true", "True", "TRUE", "0", "f", "F", "false", "False", "FALSE"] },
        ] }),
        ValueKind::Integer(least, most) => number(least, most, &json!({ "type": "string", "pattern": DIGITS })),
        ValueKind::Optional(least, most) => {
            number(least, most, &json!({ "anyOf": [{ "const": "" }, { "type": "string", "pattern": DIGITS }] }))
        }
        ValueKind::Duration => json!({ "anyOf": [
            { "type": "integer", "minimum": 0 },
            { "type": "string", "pattern": DURATION },
        ] }),
        ValueKind::Text | ValueKind::Path | ValueKind::Pem => json!({ "type": "string" }),
        ValueKind::Secret => json!({ "type": "string", "writeOnly": true }),
        ValueKind::Pattern => json!({ "type": "string", "format": "regex" }),
        ValueKind::Choice(words) => json!({ "enum": words }),
        ValueKind::Texts => {
            json!({ "anyOf": [{ "type": "array", "items": { "type": "string" } }, { "type": "string" }] })
        }
    };
    schema["description"] = json!(key.meaning);
    if let Some(default) = default(key) {
        schema["default"] = default;
    }
    if let Some(path) = path {
        schema["x-environment"] = json!(format!("TOUCHLINE_{}", variable(path)));
    }
    schema
}

fn number(least: u64, most: u64, text: &Json) -> Json {
    json!({ "anyOf": [{ "type": "integer", "minimum": least, "maximum": most }, text] })
}

/// The default as a file would have it; `None` = it is absent.
fn default(key: &Key) -> Option<Json> {
    match key.kind {
        ValueKind::Boolean | ValueKind::Integer(..) => serde_json::from_str(&key.default).ok(),
        ValueKind::Optional(..) if key.default.is_empty() => None,
        ValueKind::Optional(..) => serde_json::from_str(&key.default).ok(),
        ValueKind::Texts if key.default.starts_with('[') => serde_json::from_str(&key.default).ok(),
        ValueKind::Texts => Some(key.default.split_whitespace().collect()),
        _ => Some(json!(key.default)),
    }
}

/// A key of Centrifugo that is not supported: crossed out, and only empty or off where the server would refuse it.
fn left_out(unsupported: &UnsupportedKey) -> Json {
    let (note, accepted) = match unsupported.disposition {
        Disposition::Ignored => ("It changes nothing here.".to_owned(), None),
        Disposition::LeftOut("") => ("Not supported yet, and left out.".to_owned(), None),
        Disposition::LeftOut(consequence) => (format!("Not supported yet, and left out: {consequence}."), None),
        Disposition::Refused(reason) => {
            let off = json!([{ "enum": ["", "false", false, []] }, { "type": "object" }]);
            (format!("Not supported yet, and refused: {reason}."), Some(off))
        }
    };
    let mut schema = json!({ "deprecated": true, "description": note });
    if let Some(accepted) = accepted {
        schema["anyOf"] = accepted;
    }
    schema
}
