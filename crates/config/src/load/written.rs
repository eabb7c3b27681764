//! The keys that a configuration sets, with value and place. They show operators where a value comes from, and which
//! keys differ between two readings.

use std::collections::BTreeSet;

use touchline_engine::setting::{Key, ValueKind};

use super::environment::needs_secrets;
use super::tree::{ConfigNode, ConfigValue, Location};
use crate::item_path::item_path;
use crate::keys::{self, KEYS, LISTS, OPTIONS, WITHOUT_NAMESPACE};
use crate::pem::is_inline_pem;

/// The text that is shown instead of a secret.
const HIDDEN: &str = "(hidden)";

/// A key that a configuration sets, with its value and its place.
#[derive(Clone, PartialEq)]
pub struct WrittenKey {
    /// The path of the key, such as `channel.namespaces[news].history_size`.
    pub path: String,
    /// The location at which the value was written.
    pub location: Location,
    /// The value as JSON. It may be a secret.
    value: String,
    is_hidden: bool,
}

impl WrittenKey {
    /// Whether the value is not shown, because it is a secret or this version does not know the key.
    pub fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// The value as JSON. For a secret, and for a key that this version does not know, it is `(hidden)`.
    pub fn shown(&self) -> &str {
        if self.is_hidden { HIDDEN } else { &self.value }
    }

    /// The value as JSON. It may be a secret.
    pub(crate) fn value(&self) -> &str {
        &self.value
    }
}

/// The keys whose values differ between two readings, in the order of their paths. Only values count, not their places:
/// a value that moved from the file into the environment does not differ.
pub fn changed_keys(before: &[WrittenKey], after: &[WrittenKey]) -> Vec<String> {
    let values = |keys: &[WrittenKey]| -> BTreeSet<(String, String)> {
        keys.iter().map(|key| (key.path.clone(), key.value.clone())).collect()
    };
    let differing: BTreeSet<String> =
        values(before).symmetric_difference(&values(after)).map(|key| key.0.clone()).collect();
    differing.into_iter().collect()
}

/// All keys of a tree, in the order of their paths.
pub(super) fn all(tree: &ConfigNode) -> Vec<WrittenKey> {
    let mut written = Vec::new();
    walk(tree, "", &KEYS, &mut written);
    written
}

/// Adds the keys of one table. `known` are the known keys, by their path.
fn walk(node: &ConfigNode, path: &str, known: &[Key], written: &mut Vec<WrittenKey>) {
    let ConfigValue::Table(table) = &node.value else { return written.push(key(node, path, None)) };
    for (name, node) in table {
        let name = &shown_name(name);
        let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if inner == WITHOUT_NAMESPACE {
            walk_item(node, &inner, "", &OPTIONS, written);
        } else if let Some(found) = keys::find(known, &inner) {
            written.push(key(node, &inner, Some(found)));
        } else if let (Some((list, options)), ConfigValue::List(items)) =
            (LISTS.iter().find(|(list, _)| *list == inner), &node.value)
        {
            for (index, item) in items.iter().enumerate() {
                walk_item(item, &path_of_item(list, index, item), "", options, written);
            }
        } else {
            walk(node, &inner, known, written);
        }
    }
}

/// Adds the keys of one table of a list. `within` is the path within that table.
fn walk_item(node: &ConfigNode, path: &str, within: &str, known: &[Key], written: &mut Vec<WrittenKey>) {
    let ConfigValue::Table(table) = &node.value else { return written.push(key(node, path, None)) };
    for (name, node) in table {
        let name = &shown_name(name);
        let (path, within) = (format!("{path}.{name}"), join(within, name));
        match keys::find(known, &within) {
            Some(found) => written.push(key(node, &path, Some(found))),
            // The path contains the name, unless the name may be a secret in the wrong place.
            None if within == "name" => {
                let name = path.split(['[', ']']).nth(1).unwrap_or_default();
                let value = serde_json::Value::from(name).to_string();
                written.push(WrittenKey { path, location: node.location.clone(), value, is_hidden: false });
            }
            None => walk_item(node, &path, &within, known, written),
        }
    }
}

/// The path of a list item: with its name, or with its number if the name may be a secret in the wrong place.
fn path_of_item(list: &str, index: usize, item: &ConfigNode) -> String {
    match item.text("name") {
        Some(name) if needs_secrets(list) || !is_plain(name) => item_path(list, index, name),
        Some(name) => format!("{list}[{name}]"),
        None => format!("{list}[{index}]"),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Maximum bytes of the name of a key or an item that is shown. A longer one may be a secret in the wrong place.
const NAME_SHOWN_MAX: usize = 64;

/// Whether a name looks like that of a key or a namespace, and not like a secret in the wrong place (PEM, an address).
fn is_plain(name: &str) -> bool {
    name.len() <= NAME_SHOWN_MAX && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.$".contains(&b))
}

/// The name of a key, or a placeholder if the name cannot be that of a key.
fn shown_name(name: &str) -> String {
    if is_plain(name) { name.to_owned() } else { "(no key)".to_owned() }
}

/// The written key for a value. `known` is the key with this path, if this version has one.
fn key(node: &ConfigNode, path: &str, known: Option<&Key>) -> WrittenKey {
    let kind = known.map(|key| key.kind);
    let texts = texts_of(&node.value);
    let is_hidden = match kind {
        None | Some(ValueKind::StringMap) => true,
        // The address of a database is shown without user and password.
        Some(ValueKind::Secret) => !path.ends_with(".url") || !texts.iter().all(|text| is_database(text)),
        Some(ValueKind::Boolean) => texts.iter().any(|text| text.len() > NUMBER_LEN_MAX),
        Some(ValueKind::Integer(..)) => texts.iter().any(|text| text.parse::<u64>().is_err()),
        Some(_) => texts.iter().any(|text| is_inline_pem(text)),
    };
    let is_bare = matches!(kind, Some(ValueKind::Boolean | ValueKind::Integer(..)));
    let value = match &node.value {
        ConfigValue::Text(text) if is_bare && is_plain(text) => text.clone(),
        value => value.json().map_or_else(|| value.name().to_owned(), |json| without_users(json).to_string()),
    };
    WrittenKey { path: path.to_owned(), location: node.location.clone(), value, is_hidden }
}

/// Maximum bytes of the text of a boolean.
const NUMBER_LEN_MAX: usize = 5;

/// All texts within a value.
fn texts_of(value: &ConfigValue) -> Vec<&str> {
    match value {
        ConfigValue::Text(text) => vec![text],
        ConfigValue::List(items) => items.iter().flat_map(|item| texts_of(&item.value)).collect(),
        ConfigValue::Table(table) => table.values().flat_map(|node| texts_of(&node.value)).collect(),
        _ => Vec::new(),
    }
}

/// Whether a text is the address of a database, whose secret parts can be removed.
fn is_database(text: &str) -> bool {
    ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme))
}

/// The value without users, passwords and parameters of the addresses in it.
fn without_users(json: serde_json::Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match json {
        Json::String(text) => without_user(&text).into(),
        Json::Array(items) => items.into_iter().map(without_users).collect(),
        Json::Object(fields) => {
            Json::Object(fields.into_iter().map(|(key, value)| (key, without_users(value))).collect())
        }
        other => other,
    }
}

/// The text with `***` instead of everything between the scheme and the last `@`, and after `?` or `#`: users,
/// passwords, tokens and parameters. A text without these stays as it is.
fn without_user(text: &str) -> String {
    let (scheme, rest) = match text.find("://") {
        Some(at) => text.split_at(at + 3),
        None => ("", text),
    };
    let is_address = !scheme.is_empty() || rest.contains('@');
    if !is_address {
        return text.to_owned();
    }
    let (user, host) = rest
        .rsplit_once('@')
        .map_or(("", rest), |(user, host)| if user.is_empty() { ("@", host) } else { ("***@", host) });
    match host.find(['?', '#']) {
        Some(at) => format!("{scheme}{user}{}***", &host[..=at]),
        None => format!("{scheme}{user}{host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_passwords_in_addresses_are_not_shown() {
        for (text, expected) in [
            ("postgres://app:s3cret@db:5432/x", "postgres://***@db:5432/x"),
            ("postgres://app:s3c/ret@db/x", "postgres://***@db/x"),
            ("postgres://app:s3@cret@db/x", "postgres://***@db/x"),
            ("nats://a:b@h1,nats://c:d@h2", "nats://***@h2"),
            ("nats://token@h", "nats://***@h"),
            ("@read", "@read"),
            ("u:s3cret@127.0.0.1:4222", "***@127.0.0.1:4222"),
            ("https://user:S#x@h", "https://***@h"),
            ("https://h/p?x=a@b", "https://***@b"),
            ("https://h/p?t=s3cret", "https://h/p?***"),
            ("https://h/p#s3cret", "https://h/p#***"),
            ("https://app.example.com", "https://app.example.com"),
            ("^[a-z]+(?:x)?$", "^[a-z]+(?:x)?$"),
            ("sqlite:data/primary.db", "sqlite:data/primary.db"),
            ("no address", "no address"),
        ] {
            assert_eq!(without_user(text), expected, "{text}");
        }
    }

    #[test]
    fn what_may_be_a_secret_in_the_wrong_place_is_not_shown() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMIIEs3cret\n-----END PRIVATE KEY-----";
        let json = serde_json::json!({
            "channel": { "namespaces": [{ "name": pem, "history_size": 1 }, { "name": "u:s3cret@h" }] },
            "node": { "shards": "postgres://u:s3cret@h" },
            "http_api": { "disabled": "x\nfake = s3cret", "key": "s3cret" },
            "store": { "stats": { "url": "host=db password=s3cret" }, "primary": { "url": "sqlite:a.db" } },
            "events": [{ "name": "s3cret and more", "endpoint": "https://u:s3/cret@h/e" }],
            "s3cret\nkey": 1,
            "client": { "token": { "jwks_public_endpoint": "https://h/p?k=s3cret" } },
        });
        let tree = ConfigNode::from_json(json, &Location::Defaults).expect("a table");
        let all = all(&tree);
        for key in &all {
            let row = format!("{} = {}", key.path, key.shown());
            assert!(!row.contains("s3cret") && !row.contains("cret@") && !row.contains('\n'), "{row}");
        }
        assert!(all.iter().any(|key| key.path == "store.primary.url" && key.shown() == "\"sqlite:a.db\""));
    }
}
