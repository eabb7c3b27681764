//! Reads a configuration file. This module checks its syntax only, not its keys and values.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::json;
use super::tree::{ConfigNode, ConfigValue, Location};
use super::yaml;
use crate::finding::Finding;
use crate::regular_file::read_regular_text;

/// Maximum size of a configuration file, bytes.
const CONFIG_FILE_MAX: u64 = 4 * 1024 * 1024;

/// Reads a configuration file. Faults become findings, and a file that cannot be read gives an empty table.
pub(crate) fn read(path: &Path, findings: &mut Vec<Finding>) -> ConfigNode {
    let name: Arc<str> = path.to_string_lossy().into();
    let whole = Location::File(name.clone(), None);
    let empty = ConfigNode::empty_table(whole.clone());
    let text = match read_regular_text(path, CONFIG_FILE_MAX) {
        Ok(text) => text,
        Err(error) => {
            findings.push(Finding::error(format!("cannot be read: {error}"), Some(&whole)));
            return empty;
        }
    };
    let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let read = match extension.as_str() {
        "toml" => from_toml(&text, &name),
        "json" => from_json(&text, &name),
        "yaml" | "yml" => yaml::tree(&text, &name),
        _ => Err(Finding::error("the name of a configuration must end in .toml, .yaml, .yml or .json", Some(&whole))),
    };
    read.unwrap_or_else(|finding| {
        findings.push(finding);
        empty
    })
}

fn from_json(text: &str, name: &Arc<str>) -> Result<ConfigNode, Finding> {
    let whole = Location::File(name.clone(), None);
    serde_json::from_str::<serde_json::Value>(text).map_err(|error| {
        let location = Location::File(name.clone(), Some((error.line(), error.column())));
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default();
        Finding::error(format!("is not JSON: {reason}"), Some(&location))
    })?;
    match json::tree(text, name)? {
        Some(node) if matches!(node.value, ConfigValue::Table(_)) => Ok(node),
        _ => Err(Finding::error("must be a JSON object", Some(&whole))),
    }
}

fn from_toml(text: &str, name: &Arc<str>) -> Result<ConfigNode, Finding> {
    let locations = Locations { name, text };
    match DeTable::parse(text) {
        Ok(table) => Ok(locations.table(table.get_ref(), Location::File(name.clone(), None))),
        Err(error) => {
            let location = error.span().map_or(Location::File(name.clone(), None), |span| locations.at(span.start));
            let twice =
                error.span().filter(|_| error.message() == "duplicate key").and_then(|span| twice(text, span.start));
            let text = twice.unwrap_or_else(|| format!("is not TOML: {}", error.message()));
            Err(Finding::error(text, Some(&location)))
        }
    }
}

/// What is wrong with a section or a key that a TOML text has twice, and where the first one is. `at`: the byte where
/// the second one begins. `None` = it is not at the beginning of a line.
fn twice(text: &str, at: usize) -> Option<String> {
    let line = text.get(..at)?.matches('\n').count();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let second = *lines.get(line)?;
    if second.starts_with('[') {
        let header = second.split(']').next()?;
        let first = lines[..line].iter().position(|first| first.split(']').next() == Some(header))? + 1;
        return Some(format!("{header}] is in line {first} already: write these keys there"));
    }
    let name = |line: &str| line.split_once('=').map(|(name, _)| name.trim().to_owned());
    let key = name(second)?;
    let section = lines[..line].iter().rposition(|line| line.starts_with('[')).map_or(0, |header| header + 1);
    let first = section + lines[section..line].iter().position(|first| name(first).as_ref() == Some(&key))? + 1;
    Some(format!("{key} is in line {first} already: write it once"))
}

/// Turns byte positions of one text into locations.
struct Locations<'a> {
    name: &'a Arc<str>,
    text: &'a str,
}

impl Locations<'_> {
    fn at(&self, position: usize) -> Location {
        let before = self.text.get(..position).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        Location::File(self.name.clone(), Some((line, column)))
    }

    fn table(&self, table: &DeTable<'_>, location: Location) -> ConfigNode {
        let fields: BTreeMap<String, ConfigNode> = table
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), self.node(value, self.at(key.span().start))))
            .collect();
        ConfigNode { location, value: ConfigValue::Table(fields) }
    }

    /// Converts a value. The location of a field is that of its key, where an operator looks for it.
    fn node(&self, value: &Spanned<DeValue<'_>>, location: Location) -> ConfigNode {
        let value = match value.get_ref() {
            DeValue::Table(table) => return self.table(table, location),
            DeValue::Array(items) => {
                ConfigValue::List(items.iter().map(|item| self.node(item, self.at(item.span().start))).collect())
            }
            DeValue::String(text) => ConfigValue::Text(text.to_string()),
            DeValue::Boolean(value) => ConfigValue::Boolean(*value),
            DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
                Ok(number) => ConfigValue::Integer(number),
                Err(_) => ConfigValue::Float(f64::MAX),
            },
            DeValue::Float(digits) => ConfigValue::Float(digits.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Datetime(_) => ConfigValue::Date,
        };
        ConfigNode { location, value }
    }
}
