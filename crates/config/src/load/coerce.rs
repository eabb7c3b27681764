//! From what was written to the type that a key wants.

use serde_json::{Value as Json, json};
use touchline_engine::ChannelOptions;

use super::tree::ConfigValue;
use crate::keys::ValueKind;

/// Brings a value to its key's kind. Text that says it is as good as the thing itself: the environment knows nothing
/// else.
///
/// # Errors
/// What was found instead, without the value of a secret.
pub(crate) fn coerce(kind: ValueKind, value: &ConfigValue) -> Result<Json, String> {
    let good = match (kind, value) {
        (ValueKind::Boolean, ConfigValue::Boolean(value)) => Some(json!(value)),
        (ValueKind::Boolean, ConfigValue::Text(text)) => match text.as_str() {
            "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(json!(true)),
            "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(json!(false)),
            _ => None,
        },
        (ValueKind::Integer(least, most), ConfigValue::Integer(number)) => {
            within(u64::try_from(*number).ok(), least, most)
        }
        (ValueKind::Integer(least, most), ConfigValue::Text(text)) => within(text.parse().ok(), least, most),
        (ValueKind::Optional(..), ConfigValue::Text(text)) if text.is_empty() => Some(Json::Null),
        (ValueKind::Optional(least, most), value) => {
            return coerce(ValueKind::Integer(least, most), value).map_err(|_| found(kind, value));
        }
        (ValueKind::Duration, ConfigValue::Integer(seconds)) => {
            u64::try_from(*seconds).ok().map(|seconds| json!(format!("{seconds}s")))
        }
        (ValueKind::Duration, ConfigValue::Text(text)) => touchline_engine::duration::parse(text).map(|_| json!(text)),
        (ValueKind::Text | ValueKind::Secret | ValueKind::Pem, ConfigValue::Text(text)) => Some(json!(text)),
        (ValueKind::Pattern, ConfigValue::Text(text)) => {
            let compiled: Result<ChannelOptions, _> = serde_json::from_value(json!({ "channel_regex": text }));
            return compiled.map(|_| json!(text)).map_err(|error| reason_of(&error.to_string()));
        }
        (ValueKind::Choice(words), ConfigValue::Text(text)) => words.contains(&text.as_str()).then(|| json!(text)),
        (ValueKind::Texts, ConfigValue::Text(text)) => texts(text),
        (ValueKind::Texts, ConfigValue::List(items)) => {
            let items: Option<Vec<&str>> = items
                .iter()
                .map(|item| if let ConfigValue::Text(text) = &item.value { Some(text.as_str()) } else { None })
                .collect();
            items.map(|items| json!(items))
        }
        _ => None,
    };
    good.ok_or_else(|| found(kind, value))
}

fn within(number: Option<u64>, least: u64, most: u64) -> Option<Json> {
    number.filter(|number| (least..=most).contains(number)).map(|number| json!(number))
}

/// A JSON list, or words separated by spaces. PEM is neither: its words apart would no longer be known for a secret.
fn texts(text: &str) -> Option<Json> {
    if crate::is_inline_pem(text) {
        return None;
    }
    if text.trim_start().starts_with('[') {
        let items: Vec<String> = serde_json::from_str(text).ok()?;
        return Some(json!(items));
    }
    Some(json!(text.split_whitespace().collect::<Vec<_>>()))
}

fn found(kind: ValueKind, value: &ConfigValue) -> String {
    if matches!(kind, ValueKind::Secret | ValueKind::Pem) {
        return value.name().to_owned();
    }
    match value {
        ConfigValue::Text(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        ConfigValue::Integer(number) => number.to_string(),
        ConfigValue::Boolean(value) => value.to_string(),
        other => other.name().to_owned(),
    }
}

/// The last line of a regular expression's fault, which is the reason.
fn reason_of(error: &str) -> String {
    let reason = error.lines().last().unwrap_or_default().trim();
    format!("a faulty one ({})", reason.strip_prefix("error: ").unwrap_or(reason))
}
