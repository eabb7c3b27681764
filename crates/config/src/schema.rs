//! The JSON Schema (draft 2020-12) of a configuration. Editors use it to complete keys, show their meanings, and mark
//! what a node would refuse.

use serde_json::{Map, Value as Json, json};
use touchline_engine::duration::WHOLE_DIGITS;
use touchline_engine::setting::{Key, ValueKind};

use crate::keys::{
    API_KEY_OPTIONS, API_KEYS, CONSUMER_OPTIONS, CONSUMERS, EVENT_OPTIONS, EVENTS, KEYS, NAMESPACES, OPTIONS,
    PROVIDER_OPTIONS, PROXIES, PROXY_OPTIONS, RPC_NAMESPACES, RPC_OPTIONS, SCOPE_OPTIONS, SCOPES,
    SUBSCRIPTION_TOKEN_PROVIDERS, TOKEN_PROVIDERS, WITHOUT_NAMESPACE,
};
use crate::load::environment::variable;
use crate::load::secrets::{file_key, may_be_in_file};
use crate::unsupported::{Disposition, UNSUPPORTED, UNSUPPORTED_OPTIONS, UnsupportedKey};

/// The pattern of one part of a duration: a number with its unit.
fn duration_part() -> String {
    format!(r"(0*[0-9]{{1,{WHOLE_DIGITS}}}(\.[0-9]*)?|\.[0-9]+)(d|h|m|s|ms|us|µs)")
}
/// The pattern of a namespace's name, as the rules require.
const NAMESPACE_NAME: &str = r"^[-0-9A-Z_a-z.]{2,}$";
/// The pattern of a scope's name. Names that begin with $ are reserved for the server.
const SCOPE_NAME: &str = r"^([^$]|$)";
/// The pattern of the name of a key of the server API, an issuer, a consumer or an endpoint of events.
const KEY_NAME: &str = r"^[0-9A-Z_a-z]{2,}$";
/// The greatest whole number in a file, because TOML has no greater one.
const GREATEST_INTEGER: u64 = i64::MAX as u64;

/// The schema of a whole configuration. It accepts known keys with values of the right kind. Only `touchline check`
/// finds values that contradict each other, and faults within the text of a list, a key or a regular expression. A null
/// stands for absence everywhere except in a name.
pub fn json_schema() -> Json {
    let mut root = table();
    for key in KEYS.iter() {
        insert_with_file(&mut root, key, Some(&key.path));
    }
    for unsupported in UNSUPPORTED {
        insert(&mut root, unsupported.path, left_out(unsupported));
    }
    insert(&mut root, WITHOUT_NAMESPACE, options(Some(WITHOUT_NAMESPACE)));
    let meaning = "Namespaces of channels, each with a name and the options of its channels.";
    insert(&mut root, NAMESPACES, named(options(None), NAMESPACE_NAME, meaning));
    for (list, keys, pattern, meaning) in [
        (SCOPES, &SCOPE_OPTIONS, SCOPE_NAME, "Scopes of the registry, each with a name and options."),
        (PROXIES, &PROXY_OPTIONS, NAMESPACE_NAME, "Backends with a name, for hooks."),
        (RPC_NAMESPACES, &RPC_OPTIONS, NAMESPACE_NAME, "Namespaces of RPC methods, each with a name and options."),
        (EVENTS, &EVENT_OPTIONS, KEY_NAME, "Backends that receive lifecycle events."),
        (API_KEYS, &API_KEY_OPTIONS, KEY_NAME, "Keys of the server API, each with a name and permissions."),
        (CONSUMERS, &CONSUMER_OPTIONS, KEY_NAME, "Consumers: sources of commands besides requests."),
        (TOKEN_PROVIDERS, &PROVIDER_OPTIONS, KEY_NAME, "Issuers of connection tokens."),
        (SUBSCRIPTION_TOKEN_PROVIDERS, &PROVIDER_OPTIONS, KEY_NAME, "Issuers of subscription tokens."),
    ] {
        let mut item = table();
        keys.iter().for_each(|key| insert_with_file(&mut item, key, None));
        insert(&mut root, list, named(item, pattern, meaning));
    }
    let Json::Object(mut fields) = root else { return root };
    // A configuration is a table; the tables within it may be absent.
    fields.insert("type".into(), json!("object"));
    // Editors look for this field at the top.
    fields.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    fields.insert("title".into(), json!("Touchline's configuration"));
    insert_field(&mut fields, "$schema", json!({}));
    Json::Object(fields)
}

/// The schema of a table without keys. It refuses keys that are not added later.
fn table() -> Json {
    json!({ "type": ["object", "null"], "additionalProperties": false, "properties": {} })
}

/// The schema of channel options. `section` is the path of their table, if its keys have environment variables.
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

/// The schema of a list of tables whose names match this pattern.
fn named(mut item: Json, pattern: &str, meaning: &str) -> Json {
    insert(
        &mut item,
        "name",
        json!({ "type": "string", "pattern": pattern, "description": "The name of this entry." }),
    );
    item["required"] = json!(["name"]);
    json!({ "type": ["array", "null"], "items": item, "description": meaning })
}

/// Inserts the schema of a key into a table, and creates the tables on the path.
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

/// Inserts the schema of a key into a table, and that of its `_file` form if the value may be in a file. `path` is the
/// whole path of the key, if it has an environment variable.
fn insert_with_file(table: &mut Json, key: &Key, path: Option<&str>) {
    insert(table, &key.path, value(key, path));
    if may_be_in_file(key) {
        let mut schema = json!({ "type": ["string", "null"] });
        schema["description"] = json!(format!("The path of a file with the value of `{}`.", key.path));
        if let Some(path) = path {
            schema["x-environment"] = json!(format!("TOUCHLINE_{}", variable(&file_key(path))));
        }
        insert(table, &file_key(&key.path), schema);
    }
}

fn insert_field(fields: &mut Map<String, Json>, name: &str, schema: Json) {
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    properties[name] = schema;
}

/// The schema of the values that a key accepts. A value written as text is accepted too.
fn value(key: &Key, path: Option<&str>) -> Json {
    let mut schema = match key.kind {
        ValueKind::Boolean => json!({ "enum": [
            true, false, "1", "t", "T", "true", "True", "TRUE", "0", "f", "F", "false", "False", "FALSE", null,
        ] }),
        ValueKind::Integer(least, most) => number(least, most, None),
        ValueKind::Optional(least, most) => number(least, most, Some("")),
        ValueKind::Duration => json!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": GREATEST_INTEGER },
            // A negative duration is ignored with a warning.
            { "type": "string", "pattern": duration_pattern("-?") },
            { "type": "null" },
        ] }),
        ValueKind::Text | ValueKind::Path | ValueKind::Pem => json!({ "type": ["string", "null"] }),
        ValueKind::Secret => json!({ "type": ["string", "null"], "writeOnly": true }),
        ValueKind::Pattern => json!({ "type": ["string", "null"], "format": "regex" }),
        ValueKind::Choice(words) => {
            json!({ "enum": words.iter().map(|word| json!(word)).chain([Json::Null]).collect::<Vec<_>>() })
        }
        ValueKind::StringMap => json!({ "anyOf": [
            { "type": "object", "additionalProperties": { "type": "string" } },
            { "type": ["string", "null"] },
        ] }),
        ValueKind::Transforms => json!({ "anyOf": [
            { "type": "array", "items": transform() },
            { "type": ["string", "null"] },
        ] }),
        ValueKind::ClaimPaths => json!({ "anyOf": [
            { "type": "array", "items": claim_path() },
            { "type": ["string", "null"] },
        ] }),
        ValueKind::Buckets => buckets(),
        ValueKind::Overrides(name) => {
            let mut item = rate_override();
            item["properties"][name] = json!({ "type": "string" });
            item["required"] = json!([name]);
            json!({ "anyOf": [{ "type": "array", "items": item }, { "type": ["string", "null"] }] })
        }
        ValueKind::OverrideTable => json!({ "anyOf": [
            { "type": "object", "additionalProperties": rate_override() },
            { "type": ["string", "null"] },
        ] }),
        ValueKind::Texts => {
            json!({ "anyOf": [
                { "type": "array", "items": { "type": ["string", "null"] } },
                { "type": ["string", "null"] },
            ] })
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

/// The pattern of a duration as text, with an optional prefix.
fn duration_pattern(before: &str) -> String {
    format!("^{before}({}|({})+)$", number_pattern(0, u32::MAX.into()), duration_part())
}

/// The schema of a list of rates.
fn buckets() -> Json {
    let interval = json!({ "anyOf": [
        { "type": "integer", "minimum": 0, "maximum": u32::MAX },
        { "type": "string", "pattern": duration_pattern("") },
    ] });
    let item = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["interval", "rate"],
        "properties": { "interval": interval, "rate": { "type": "integer", "minimum": 1, "maximum": u32::MAX } },
    });
    json!({ "anyOf": [{ "type": "array", "items": item }, { "type": ["string", "null"] }] })
}

/// The schema of an override of a list of rates.
fn rate_override() -> Json {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": { "enabled": { "type": "boolean" }, "buckets": buckets() },
    })
}

/// The schema of a whole number within bounds, as a number or as text. `word` is a text that is accepted too.
fn number(least: u64, most: u64, word: Option<&str>) -> Json {
    let mut accepted = vec![
        json!({ "type": "integer", "minimum": least, "maximum": most.min(GREATEST_INTEGER) }),
        json!({ "type": "string", "pattern": format!("^{}$", number_pattern(least, most)) }),
        json!({ "type": "null" }),
    ];
    accepted.extend(word.map(|word| json!({ "const": word })));
    json!({ "anyOf": accepted })
}

/// The pattern of a whole number within bounds as text. Leading zeros and a plus sign are allowed.
fn number_pattern(least: u64, most: u64) -> String {
    let mut parts = Vec::new();
    // One part for each number of digits, beginning with that of the least number.
    let (mut from, most) = (u128::from(least.max(1)), u128::from(most));
    while from <= most {
        let of_length = 10_u128.pow(from.ilog10() + 1) - 1;
        let to = of_length.min(most);
        parts.push(digits_pattern(from.to_string().as_bytes(), to.to_string().as_bytes()));
        from = to + 1;
    }
    let numbers = format!("0*({})", parts.join("|"));
    if least == 0 { format!(r"\+?(0+|{numbers})") } else { format!(r"\+?{numbers}") }
}

/// The pattern of the numbers between two numbers with the same number of digits.
fn digits_pattern(from: &[u8], to: &[u8]) -> String {
    let ([low, lower @ ..], [high, higher @ ..]) = (from, to) else { return String::new() };
    let digit = |digit: u8| char::from(digit);
    if low == high {
        return format!("{}{}", digit(*low), digits_pattern(lower, higher));
    }
    let rest = match lower.len() {
        0 => String::new(),
        length => format!("[0-9]{{{length}}}"),
    };
    let (mut first, mut last) = (*low, *high);
    let mut parts = Vec::new();
    if lower.iter().any(|digit| *digit != b'0') {
        parts.push(format!("{}{}", digit(first), digits_pattern(lower, &vec![b'9'; lower.len()])));
        first += 1;
    }
    let end = higher.iter().any(|digit| *digit != b'9').then(|| {
        let end = format!("{}{}", digit(last), digits_pattern(&vec![b'0'; higher.len()], higher));
        last -= 1;
        end
    });
    if first <= last {
        parts.push(format!("[{}-{}]{rest}", digit(first), digit(last)));
    }
    parts.extend(end);
    format!("({})", parts.join("|"))
}

/// The default as a file would contain it. `None` = the key is absent by default.
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

/// The schema of an entry that copies a claim into a field.
fn claim_path() -> Json {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["key", "value"],
        "properties": {
            "key": { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
            "value": { "type": "string", "pattern": r"^[^.]+(\.[^.]+)*$" },
        },
    })
}

/// The schema of an entry that turns an HTTP status into a refusal.
fn transform() -> Json {
    let text = json!({ "type": "string", "pattern": "^[\\x00-\\x7F]{0,123}$" });
    let refusal = |least: u64, most: u64, text_name: &str| {
        let mut fields = json!({ "code": { "type": "integer", "minimum": least, "maximum": most } });
        fields[text_name] = text.clone();
        json!({ "type": "object", "additionalProperties": false, "required": ["code"], "properties": fields })
    };
    let mut error = refusal(400, 1_999, "message");
    error["properties"]["temporary"] = json!({ "type": "boolean" });
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["status_code"],
        "properties": {
            "status_code": { "type": "integer", "minimum": 0, "maximum": u16::MAX },
            "to_error": error,
            "to_disconnect": refusal(4_000, 4_999, "reason"),
        },
        "oneOf": [{ "required": ["to_error"] }, { "required": ["to_disconnect"] }],
    })
}

/// The schema of an unsupported key of Centrifugo: deprecated, and restricted to empty or off where the server would
/// refuse it.
fn left_out(unsupported: &UnsupportedKey) -> Json {
    let (note, accepted) = match unsupported.disposition {
        Disposition::Ignored => ("It has no effect here.".to_owned(), None),
        Disposition::LeftOut("") => ("Not supported yet, and ignored.".to_owned(), None),
        Disposition::LeftOut(consequence) => (format!("Not supported yet, and ignored: {consequence}."), None),
        Disposition::Refused(reason) => {
            let off = json!([{ "enum": ["", "false", false, [], null] }, { "type": "object" }]);
            (format!("Not supported yet, and refused: {reason}."), Some(off))
        }
    };
    let mut schema = json!({ "deprecated": true, "description": note });
    if let Some(accepted) = accepted {
        schema["anyOf"] = accepted;
    }
    schema
}
