//! The written values as one tree. Each value has the location at which it was written.
//!
//! The tree does not implement `Debug`, because it contains secrets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use touchline_engine::setting::{SettingValue as _, ValueKind, WrittenValue};

/// The location at which a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file, with line and column (from 1) if they are known.
    File(Arc<str>, Option<(usize, usize)>),
    /// An environment variable, or a key on the command line.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
    /// No source: a value that `--dev` sets, or the empty tree.
    Defaults,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File(name, Some((line, column))) => write!(f, "{name}:{line}:{column}"),
            Location::File(name, None) => f.write_str(name),
            Location::Variable(name) => f.write_str(name),
            Location::Flag(name) => f.write_str(name),
            Location::Defaults => f.write_str("defaults"),
        }
    }
}

/// A value and its location.
#[derive(Clone)]
pub(crate) struct ConfigNode {
    /// The location at which the value was written.
    pub(crate) location: Location,
    /// The value as it was written.
    pub(crate) value: ConfigValue,
}

/// A value of TOML, YAML, JSON, a variable or a flag.
#[derive(Clone)]
pub(crate) enum ConfigValue {
    /// Keys and values.
    Table(BTreeMap<String, ConfigNode>),
    /// Values in order.
    List(Vec<ConfigNode>),
    /// A text. Every value of an environment variable is text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Boolean(bool),
    /// A date or a time, which no key accepts.
    Date,
}

impl ConfigValue {
    /// The kind of the value, for an error message.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            ConfigValue::Table(_) => "a table",
            ConfigValue::List(_) => "a list",
            ConfigValue::Text(_) => "text",
            ConfigValue::Integer(_) => "a number",
            ConfigValue::Float(_) => "a number with a fraction",
            ConfigValue::Boolean(_) => "true or false",
            ConfigValue::Date => "a date",
        }
    }
}

impl ConfigValue {
    /// The value in the form in which settings are read.
    pub(crate) fn written(&self) -> WrittenValue<'_> {
        match self {
            ConfigValue::Text(text) => WrittenValue::Text(text),
            ConfigValue::Integer(number) => WrittenValue::Integer(*number),
            ConfigValue::Boolean(value) => WrittenValue::Boolean(*value),
            ConfigValue::List(items) => {
                let texts = items.iter().map(|item| match &item.value {
                    ConfigValue::Text(text) => Some(text.as_str()),
                    _ => None,
                });
                let nested = || self.json().map_or(WrittenValue::Other, WrittenValue::Nested);
                texts.collect::<Option<Vec<_>>>().map_or_else(nested, WrittenValue::Texts)
            }
            ConfigValue::Table(_) => self.json().map_or(WrittenValue::Other, WrittenValue::Nested),
            ConfigValue::Float(_) | ConfigValue::Date => WrittenValue::Other,
        }
    }

    /// The value as JSON. `None` = it contains a date or a number with a fraction.
    pub(crate) fn json(&self) -> Option<serde_json::Value> {
        Some(match self {
            ConfigValue::Table(table) => serde_json::Value::Object(
                table.iter().map(|(key, node)| Some((key.clone(), node.value.json()?))).collect::<Option<_>>()?,
            ),
            ConfigValue::List(items) => items.iter().map(|item| item.value.json()).collect::<Option<_>>()?,
            ConfigValue::Text(text) => text.as_str().into(),
            ConfigValue::Integer(number) => (*number).into(),
            ConfigValue::Boolean(value) => (*value).into(),
            ConfigValue::Float(_) | ConfigValue::Date => return None,
        })
    }

    /// Whether the value means `false`, in any notation of a boolean.
    pub(crate) fn is_off(&self) -> bool {
        bool::read(ValueKind::Boolean, &self.written()) == Ok(false)
    }

    /// The found value or its kind, for an error message. It never contains a secret.
    pub(crate) fn found(&self, kind: ValueKind) -> String {
        if matches!(kind, ValueKind::Secret | ValueKind::Pem) {
            return self.name().to_owned();
        }
        match self {
            ConfigValue::Text(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
            ConfigValue::Integer(number) => number.to_string(),
            ConfigValue::Boolean(value) => value.to_string(),
            other => other.name().to_owned(),
        }
    }
}

impl ConfigNode {
    /// An empty table.
    pub(crate) fn empty_table(location: Location) -> Self {
        ConfigNode { location, value: ConfigValue::Table(BTreeMap::new()) }
    }

    /// The value at a dotted path. `None` = the path does not exist.
    pub(crate) fn get(&self, path: &str) -> Option<&ConfigNode> {
        path.split('.').try_fold(self, |node, key| match &node.value {
            ConfigValue::Table(table) => table.get(key),
            _ => None,
        })
    }

    /// The location of the key at the beginning of a text such as `channel.namespaces[news].durable: …`, or of the
    /// nearest table around it. `None` = no part of the path exists.
    pub(crate) fn location_of(&self, text: &str) -> Option<Location> {
        let key = text.split(": ").next().unwrap_or_default();
        let (mut node, mut location) = (self, None);
        for part in key.split('.') {
            let (name, item) = part.split_once('[').map_or((part, None), |(name, item)| (name, item.strip_suffix(']')));
            let Some(found) = node.get(name) else { break };
            node = found;
            if let (Some(item), ConfigValue::List(items)) = (item, &node.value) {
                // Of two items with one name, the second is the duplicate.
                let named = items.iter().rev().find(|found| found.text("name") == Some(item));
                let numbered = || items.get(item.parse::<usize>().ok()?);
                let Some(found) = named.or_else(numbered) else { break };
                node = found;
            }
            location = Some(node.location.clone());
        }
        location
    }

    /// Sets the value at a dotted path and creates the tables on the path. It replaces a value on the path that is not
    /// a table.
    pub(crate) fn set(&mut self, path: &str, node: ConfigNode) {
        let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
        if !matches!(self.value, ConfigValue::Table(_)) {
            *self = ConfigNode::empty_table(node.location.clone());
        }
        let ConfigValue::Table(table) = &mut self.value else { return };
        match rest {
            None => {
                table.insert(key.to_owned(), node);
            }
            Some(rest) => {
                let inner =
                    table.entry(key.to_owned()).or_insert_with(|| ConfigNode::empty_table(node.location.clone()));
                inner.set(rest, node);
            }
        }
    }

    /// Removes and returns the value at a dotted path. The tables on the path stay.
    pub(crate) fn take(&mut self, path: &str) -> Option<ConfigNode> {
        let ConfigValue::Table(table) = &mut self.value else { return None };
        match path.split_once('.') {
            None => table.remove(path),
            Some((key, rest)) => table.get_mut(key)?.take(rest),
        }
    }

    /// The items of the list at a dotted path. `None` = there is no list.
    pub(crate) fn list_mut(&mut self, path: &str) -> Option<&mut Vec<ConfigNode>> {
        let mut node = self;
        for key in path.split('.') {
            let ConfigValue::Table(table) = &mut node.value else { return None };
            node = table.get_mut(key)?;
        }
        match &mut node.value {
            ConfigValue::List(items) => Some(items),
            _ => None,
        }
    }

    /// The text at a key of this table. `None` = there is no text.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.value {
            ConfigValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The tree of a JSON value. `None` = the value is null, which stands for absence.
    pub(crate) fn from_json(json: serde_json::Value, location: &Location) -> Option<ConfigNode> {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => return None,
            Json::Bool(value) => ConfigValue::Boolean(value),
            Json::Number(number) => match number.as_i64() {
                Some(value) => ConfigValue::Integer(value),
                None => ConfigValue::Float(number.as_f64().unwrap_or(f64::MAX)),
            },
            Json::String(text) => ConfigValue::Text(text),
            Json::Array(items) => {
                ConfigValue::List(items.into_iter().filter_map(|item| ConfigNode::from_json(item, location)).collect())
            }
            Json::Object(fields) => ConfigValue::Table(
                fields
                    .into_iter()
                    .filter_map(|(key, value)| Some((key, ConfigNode::from_json(value, location)?)))
                    .collect(),
            ),
        };
        Some(ConfigNode { location: location.clone(), value })
    }
}
