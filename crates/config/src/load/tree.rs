//! Exactly what was written, as one tree: each value remembers where it came from.
//!
//! The tree has no `Debug`: it holds secrets.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use touchline_engine::setting::{SettingValue as _, ValueKind, WrittenValue};

/// The location at which a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file, with line and column where its format tells them.
    File(Arc<str>, Option<(usize, usize)>),
    /// An environment variable, or a key that was typed.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
    /// Nowhere: what `--dev` fills in, or the empty beginning.
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
    /// The location at which it was written.
    pub(crate) location: Location,
    /// What was written.
    pub(crate) value: ConfigValue,
}

/// What TOML, JSON and the environment can say.
#[derive(Clone)]
pub(crate) enum ConfigValue {
    /// Keys and values.
    Table(BTreeMap<String, ConfigNode>),
    /// Values in order.
    List(Vec<ConfigNode>),
    /// Text; everything in the environment is.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Float(f64),
    /// True or false.
    Boolean(bool),
    /// A date or a time, which no key wants.
    Date,
}

impl ConfigValue {
    /// What it is, for an error.
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
    /// The value as a setting is made of it.
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

    /// The value as JSON; `None` = a date or a fraction is in it.
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

    /// Whether it says no, in any of the ways in which a switch can.
    pub(crate) fn is_off(&self) -> bool {
        bool::read(ValueKind::Boolean, &self.written()) == Ok(false)
    }

    /// What was found where something else is wanted, for an error; never the value of a secret.
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
    /// A table with nothing in it.
    pub(crate) fn empty_table(location: Location) -> Self {
        ConfigNode { location, value: ConfigValue::Table(BTreeMap::new()) }
    }

    /// The value at a dotted path, if every table on the way exists.
    pub(crate) fn get(&self, path: &str) -> Option<&ConfigNode> {
        path.split('.').try_fold(self, |node, key| match &node.value {
            ConfigValue::Table(table) => table.get(key),
            _ => None,
        })
    }

    /// Where the key stands that a text begins with, as `channel.namespaces[news].durable: …`, or the nearest table
    /// around it.
    pub(crate) fn location_of(&self, text: &str) -> Option<Location> {
        let key = text.split(": ").next().unwrap_or_default();
        let (mut node, mut location) = (self, None);
        for part in key.split('.') {
            let (name, item) = part.split_once('[').map_or((part, None), |(name, item)| (name, item.strip_suffix(']')));
            let Some(found) = node.get(name) else { break };
            node = found;
            if let (Some(item), ConfigValue::List(items)) = (item, &node.value) {
                // Of two with one name, the second is the one too many.
                let named = items.iter().rev().find(|found| found.text("name") == Some(item));
                let numbered = || items.get(item.parse::<usize>().ok()?);
                let Some(found) = named.or_else(numbered) else { break };
                node = found;
            }
            location = Some(node.location.clone());
        }
        location
    }

    /// Writes a value at a dotted path over what is there; makes the tables on the way. A value that is in the way
    /// gives way.
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

    /// Takes the value at a dotted path out; the tables on the way stay.
    pub(crate) fn take(&mut self, path: &str) -> Option<ConfigNode> {
        let ConfigValue::Table(table) = &mut self.value else { return None };
        match path.split_once('.') {
            None => table.remove(path),
            Some((key, rest)) => table.get_mut(key)?.take(rest),
        }
    }

    /// The items of the list at a dotted path.
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

    /// The text at a key of this table.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.value {
            ConfigValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The tree of a JSON value. None = it is null, which stands for absence.
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
