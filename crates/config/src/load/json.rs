//! The tree of a JSON text, with the location of every key. serde_json has validated the text before, but it reports no
//! locations of keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::tree::{ConfigNode, ConfigValue, Location};
use crate::finding::Finding;

/// The tree of a valid JSON text. `None` = the text is a null.
///
/// # Errors
/// When an object has a key twice.
pub(super) fn tree(text: &str, name: &Arc<str>) -> Result<Option<ConfigNode>, Finding> {
    let mut scanner = Scanner { text, at: 0, name, seen: 0, line: 1, column: 1, twice: None };
    let root = scanner.value(Location::File(Arc::clone(name), None));
    scanner.twice.map_or(Ok(root), Err)
}

struct Scanner<'a> {
    text: &'a str,
    /// The number of bytes read so far.
    at: usize,
    name: &'a Arc<str>,
    /// The number of bytes whose lines are counted; `line` and `column` are the place after them.
    seen: usize,
    line: usize,
    column: usize,
    /// The first key that an object has twice.
    twice: Option<Finding>,
}

impl Scanner<'_> {
    /// The next byte that is not white space; 0 at the end.
    fn peek(&mut self) -> u8 {
        let rest = self.text[self.at..].trim_start_matches([' ', '\t', '\r', '\n']);
        self.at = self.text.len() - rest.len();
        rest.bytes().next().unwrap_or_default()
    }

    fn here(&mut self) -> Location {
        self.peek();
        for c in self.text[self.seen..self.at].chars() {
            (self.line, self.column) = if c == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        self.seen = self.at;
        Location::File(Arc::clone(self.name), Some((self.line, self.column)))
    }

    /// The next value. `location` is that of its key, if it has one. `None` = the value is a null.
    fn value(&mut self, location: Location) -> Option<ConfigNode> {
        let value = match self.peek() {
            b'{' => self.table(),
            b'[' => self.list(),
            _ => return ConfigNode::from_json(serde_json::from_str(self.scalar()).ok()?, &location),
        };
        Some(ConfigNode { location, value })
    }

    fn table(&mut self) -> ConfigValue {
        let mut fields = BTreeMap::new();
        self.at += 1;
        while !matches!(self.peek(), b'}' | 0) {
            let location = self.here();
            let key: Json = serde_json::from_str(self.scalar()).unwrap_or_default();
            // Skip the colon.
            self.peek();
            self.at += 1;
            let value = self.value(location.clone());
            if let (Json::String(key), Some(value)) = (key, value) {
                let text = fields.get(&key).map(|first: &ConfigNode| {
                    format!("{key:?} is in the same object already, at {}: write it once", first.location)
                });
                self.twice = self.twice.take().or(text.map(|text| Finding::error(text, Some(&location))));
                fields.insert(key, value);
            }
            self.pass_comma();
        }
        self.at += 1;
        ConfigValue::Table(fields)
    }

    fn list(&mut self) -> ConfigValue {
        let mut items = Vec::new();
        self.at += 1;
        while !matches!(self.peek(), b']' | 0) {
            let location = self.here();
            items.extend(self.value(location));
            self.pass_comma();
        }
        self.at += 1;
        ConfigValue::List(items)
    }

    fn pass_comma(&mut self) {
        if self.peek() == b',' {
            self.at += 1;
        }
    }

    /// The text of the next string, number or word.
    fn scalar(&mut self) -> &str {
        self.peek();
        let rest = &self.text[self.at..];
        let mut is_escaped = false;
        let is_end = |(at, byte): &(usize, u8)| {
            let is_quote = *byte == b'"' && *at > 0 && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            is_quote
        };
        let length = if rest.starts_with('"') {
            rest.bytes().enumerate().find(is_end).map_or(rest.len(), |(at, _)| at + 1)
        } else {
            rest.find([',', ':', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(rest.len()).max(1).min(rest.len())
        };
        self.at += length;
        &rest[..length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_place() {
        let text = "{\n  \"a\": {\"b\\\"c\": [1, {\"d\": null, \"e\": -2.5e1}]},\n\t\"f\" : \"x,}\\\\\"\n, \"g\":true}";
        let json: Json = serde_json::from_str(text).expect("it is JSON");
        let name: Arc<str> = "x.json".into();
        let tree = tree(text, &name).expect("no key is there twice").expect("it is a table");
        let location = |path: &str| tree.get(path).map(|node| node.location.to_string());
        assert_eq!(location("a").as_deref(), Some("x.json:2:3"));
        assert_eq!(location("a.b\"c").as_deref(), Some("x.json:2:9"));
        assert_eq!(location("f").as_deref(), Some("x.json:3:2"));
        assert_eq!(location("g").as_deref(), Some("x.json:4:3"));
        assert_eq!(tree.text("f"), json["f"].as_str());
        let Some(ConfigNode { value: ConfigValue::List(items), .. }) = tree.get("a.b\"c") else { panic!("a list") };
        assert_eq!(items[1].location.to_string(), "x.json:2:21");
        assert!(
            matches!(items[1].get("e").map(|node| &node.value), Some(ConfigValue::Float(number)) if *number == -25.0)
        );
        assert!(items[1].get("d").is_none());
    }

    #[test]
    fn a_key_that_an_object_has_twice_is_refused() {
        let text = "{\"a\": {\"b\": 1},\n \"c\": {\"b\": 2},\n \"a\": {\"d\": 3}}";
        let refused = tree(text, &"x.json".into()).err().expect("a is there twice").to_string();
        assert!(refused.contains(r#""a" is in the same object already, at x.json:1:2: write it once"#), "{refused}");
        assert!(refused.contains("x.json:3:2"), "{refused}");
    }
}
