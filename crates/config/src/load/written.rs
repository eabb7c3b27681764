//! Which keys were written, with which value, and where: for people who ask where a value comes from, and to tell what
//! differs between two readings.

use touchline_engine::setting::{Key, ValueKind};

use super::environment::needs_secrets;
use super::tree::{ConfigNode, ConfigValue, Location};
use crate::item_path::item_path;
use crate::keys::{self, KEYS, LISTS, OPTIONS, WITHOUT_NAMESPACE};
use crate::pem::is_inline_pem;

/// What is shown in place of a secret.
const HIDDEN: &str = "(hidden)";

/// A key that was written, its value and its place.
#[derive(Clone, PartialEq)]
pub struct WrittenKey {
    /// The key, as `channel.namespaces[news].history_size`.
    pub path: String,
    /// The place of the value.
    pub location: Location,
    /// The value as JSON. It can be a secret.
    value: String,
    is_hidden: bool,
}

impl WrittenKey {
    /// The value as JSON; of a secret, and of a key that this version does not know, only that there is one.
    pub fn shown(&self) -> &str {
        if self.is_hidden { HIDDEN } else { &self.value }
    }
}

/// The keys whose values differ between two readings, in the order of their paths. It does not matter where a value was
/// written, so one that moved from the file into the environment does not differ.
pub fn changed_keys(before: &[WrittenKey], after: &[WrittenKey]) -> Vec<String> {
    let differs = |one: &&WrittenKey, others: &[WrittenKey]| {
        !others.iter().any(|other| other.path == one.path && other.value == one.value)
    };
    let gone = before.iter().filter(|key| differs(key, after));
    let new = after.iter().filter(|key| differs(key, before));
    let mut paths: Vec<String> = gone.chain(new).map(|key| key.path.clone()).collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// All keys of a tree, in the order of their paths.
pub(super) fn all(tree: &ConfigNode) -> Vec<WrittenKey> {
    let mut written = Vec::new();
    walk(tree, "", &KEYS, &mut written);
    written
}

/// Adds the keys of one table. `known`: the keys of the table, by their path within `table`.
fn walk(node: &ConfigNode, path: &str, known: &[Key], written: &mut Vec<WrittenKey>) {
    let ConfigValue::Table(table) = &node.value else { return written.push(key(node, path, None)) };
    for (name, node) in table {
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

/// Adds the keys of one table of a list. `within`: the path within that table.
fn walk_item(node: &ConfigNode, path: &str, within: &str, known: &[Key], written: &mut Vec<WrittenKey>) {
    let ConfigValue::Table(table) = &node.value else { return written.push(key(node, path, None)) };
    for (name, node) in table {
        let (path, within) = (format!("{path}.{name}"), join(within, name));
        match keys::find(known, &within) {
            Some(found) => written.push(key(node, &path, Some(found))),
            // The path has it, unless it may be a secret in the wrong place.
            None if within == "name" => {
                let value = format!("{:?}", path.split(['[', ']']).nth(1).unwrap_or_default());
                written.push(WrittenKey { path, location: node.location.clone(), value, is_hidden: false });
            }
            None => walk_item(node, &path, &within, known, written),
        }
    }
}

/// An item of a list: by its name, or by its number where the name may be a secret in the wrong place.
fn path_of_item(list: &str, index: usize, item: &ConfigNode) -> String {
    match item.text("name") {
        Some(name) if needs_secrets(list) => item_path(list, index, name),
        Some(name) => format!("{list}[{name}]"),
        None => format!("{list}[{index}]"),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// `known`: the key of this path, if this version has one.
fn key(node: &ConfigNode, path: &str, known: Option<&Key>) -> WrittenKey {
    let kind = known.map(|key| key.kind);
    let is_bare = matches!(kind, Some(ValueKind::Boolean | ValueKind::Integer(..)));
    let value = match &node.value {
        ConfigValue::Text(text) if is_bare => text.clone(),
        ConfigValue::Text(text) => serde_json::Value::from(without_passwords(text)).to_string(),
        value => value.json().map_or_else(|| value.name().to_owned(), |json| without_passwords(&json.to_string())),
    };
    let is_key = matches!(&node.value, ConfigValue::Text(text) if is_inline_pem(text));
    let hides = |kind: ValueKind| match kind {
        // Of the address of a database all but the password is good to know.
        ValueKind::Secret => !path.ends_with("url"),
        ValueKind::StringMap => true,
        _ => is_key,
    };
    WrittenKey { path: path.to_owned(), location: node.location.clone(), value, is_hidden: kind.is_none_or(hides) }
}

/// The text with `***` for what is between `://` and `@`, behind the first colon, and for the parameters behind `?`:
/// passwords of databases and servers.
fn without_passwords(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = behind.find(['/', '?', '#', '"', ' ', ',']).unwrap_or(behind.len());
        rest = match behind[..end].rfind('@') {
            Some(at) => {
                let user = behind[..at].split(':').next().unwrap_or_default();
                shown.push_str(user);
                if user.len() < at {
                    shown.push_str(":***");
                }
                &behind[at..]
            }
            None => behind,
        };
    }
    match rest.split_once('?') {
        Some((address, parameters)) if text.contains("://") && !parameters.is_empty() => shown + address + "?***",
        _ => shown + rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_addresses_are_not_shown() {
        for (text, expected) in [
            ("postgres://app:s3cret@db:5432/x", "postgres://app:***@db:5432/x"),
            ("postgres://app@db/x", "postgres://app@db/x"),
            ("nats://a:b@h1,nats://c:d:e@h2", "nats://a:***@h1,nats://c:***@h2"),
            ("nats://token@h", "nats://token@h"),
            ("https://h/p?x=a@b", "https://h/p?***"),
            ("postgres://h/x?user=a&password=b", "postgres://h/x?***"),
            ("a://:p@h", "a://:***@h"),
            ("no address", "no address"),
        ] {
            assert_eq!(without_passwords(text), expected);
        }
    }
}
