//! The tree of a YAML text (version 1.2, core schema), with the location of every key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use super::tree::{ConfigNode, ConfigValue, Location};
use crate::finding::Finding;

/// Maximum nesting of tables and lists. The deepest key of the configuration has six levels.
const YAML_DEPTH_MAX: usize = 32;
/// Maximum content of a file, bytes, including the values that aliases repeat. Without it, aliases of aliases could
/// grow without a limit. Each key and value counts as its text plus [`VALUE_COST`].
const YAML_CONTENT_MAX: usize = 16 * 1024 * 1024;
/// The cost of a key or a value besides its text, bytes.
const VALUE_COST: usize = 64;
/// Maximum bytes of a key that an error shows. A longer one may be a secret in the wrong place.
const KEY_SHOWN_MAX: usize = 64;

/// The tree of a YAML text. An empty text gives an empty table.
///
/// # Errors
/// A finding with the place. The text is not YAML, or contains something that a configuration must not have: two
/// documents, tags, merge keys, a duplicate key, a key that is not text, too many levels or too much content.
pub(super) fn tree(text: &str, name: &Arc<str>) -> Result<ConfigNode, Finding> {
    let mut reader =
        Reader { parser: Parser::new_from_str(text), name, anchors: BTreeMap::new(), content_left: YAML_CONTENT_MAX };
    let mut root = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if root.is_some() => return Err(reader.fault(span, "expected one document, found a second one")),
            event => root = Some(reader.value(event, span, Location::File(Arc::clone(name), None), 0)?),
        }
    }
    match root.flatten() {
        None => Ok(ConfigNode::empty_table(Location::File(Arc::clone(name), None))),
        Some(node) if matches!(node.value, ConfigValue::Table(_)) => Ok(node),
        Some(_) => Err(Finding::error("must be a YAML mapping", Some(&Location::File(Arc::clone(name), None)))),
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    name: &'a Arc<str>,
    /// Values that aliases may repeat, by the number of their anchor, with the bytes of content of each. An anchor is
    /// added after the end of its value, so a value cannot contain itself.
    anchors: BTreeMap<usize, (Option<ConfigNode>, usize)>,
    /// Bytes of content that the file may still have.
    content_left: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Finding> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let mark = *error.marker();
                Err(self.fault(Span::empty(mark), &format!("is not YAML: {}", error.info())))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// The location at which a span begins. The parser counts columns from 0.
    fn at(&self, span: Span) -> Location {
        Location::File(Arc::clone(self.name), Some((span.start.line(), span.start.col() + 1)))
    }

    fn fault(&self, span: Span, text: &str) -> Finding {
        Finding::error(text, Some(&self.at(span)))
    }

    /// The value that begins with this event. `None` = the value is a null, which stands for absence. `location` is
    /// that of its key, if it has one.
    fn value(
        &mut self,
        event: Event<'a>,
        span: Span,
        location: Location,
        depth: usize,
    ) -> Result<Option<ConfigNode>, Finding> {
        if depth > YAML_DEPTH_MAX {
            return Err(self.fault(span, "tables and lists are nested too deeply"));
        }
        let before = self.content_left;
        self.charge(VALUE_COST, span)?;
        let (anchor, node) = match event {
            Event::Alias(anchor) => return self.repeated(anchor, span, location),
            Event::Scalar(text, style, anchor, tag) => {
                self.charge(text.len(), span)?;
                let value = self.scalar(&text, style, tag.as_deref(), span)?;
                (anchor, value.map(|value| ConfigNode { location, value }))
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span)?;
                (anchor, Some(ConfigNode { location, value: self.list(depth)? }))
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), span)?;
                (anchor, Some(ConfigNode { location, value: self.table(depth)? }))
            }
            _ => return Err(self.fault(span, "is not YAML: expected a value")),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), before - self.content_left));
        }
        Ok(node)
    }

    /// Subtracts bytes from the remaining content, before they are copied.
    fn charge(&mut self, bytes: usize, span: Span) -> Result<(), Finding> {
        match self.content_left.checked_sub(bytes) {
            Some(left) => {
                self.content_left = left;
                Ok(())
            }
            None => {
                let text = format!("the file has more than {YAML_CONTENT_MAX} bytes of content, including aliases");
                Err(self.fault(span, &text))
            }
        }
    }

    fn repeated(&mut self, anchor: usize, span: Span, location: Location) -> Result<Option<ConfigNode>, Finding> {
        let Some(bytes) = self.anchors.get(&anchor).map(|(_, bytes)| *bytes) else {
            return Err(self.fault(span, "an alias is within the value that it repeats"));
        };
        self.charge(bytes, span)?;
        let node = self.anchors.get(&anchor).and_then(|(node, _)| node.clone());
        Ok(node.map(|node| ConfigNode { location, ..node }))
    }

    fn list(&mut self, depth: usize) -> Result<ConfigValue, Finding> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(ConfigValue::List(items)),
                (event, span) => items.extend(self.value(event, span, self.at(span), depth + 1)?),
            }
        }
    }

    fn table(&mut self, depth: usize) -> Result<ConfigValue, Finding> {
        let (mut fields, mut written) = (BTreeMap::new(), BTreeSet::new());
        loop {
            let (event, span) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(ConfigValue::Table(fields)),
                Event::Scalar(key, _, anchor, _) => {
                    self.charge(VALUE_COST + key.len(), span)?;
                    if anchor != 0 {
                        let value = ConfigValue::Text(key.to_string());
                        self.anchors.insert(anchor, (Some(ConfigNode { location: self.at(span), value }), key.len()));
                    }
                    key.into_owned()
                }
                _ => return Err(self.fault(span, "a key must be text")),
            };
            if key == "<<" {
                return Err(self.fault(span, "merge keys (<<) are not supported: write the keys"));
            }
            if !written.insert(key.clone()) {
                let is_shown =
                    key.len() <= KEY_SHOWN_MAX && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
                let shown = if is_shown { format!("{key:?}") } else { "a key".to_owned() };
                return Err(self.fault(span, &format!("{shown} is written twice in one mapping")));
            }
            let location = self.at(span);
            let (event, span) = self.next()?;
            if let Some(node) = self.value(event, span, location, depth + 1)? {
                fields.insert(key, node);
            }
        }
    }

    fn refuse_tag(&self, tag: Option<&Tag>, span: Span) -> Result<(), Finding> {
        match tag {
            // A secret may begin with an exclamation mark.
            Some(_) => Err(self.fault(span, "tags (!…) are not supported: put a text that begins with ! in quotes")),
            None => Ok(()),
        }
    }

    /// The value of a scalar. With `!!str` it is text even if it looks like a number.
    fn scalar(
        &self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        span: Span,
    ) -> Result<Option<ConfigValue>, Finding> {
        if tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str") {
            return Ok(Some(ConfigValue::Text(text.to_owned())));
        }
        self.refuse_tag(tag, span)?;
        Ok(if style == ScalarStyle::Plain { plain(text) } else { Some(ConfigValue::Text(text.to_owned())) })
    }
}

/// The value of a scalar without quotes (YAML 1.2.2, 10.3.2). `yes`, `on` and the like are text, which no boolean key
/// accepts.
fn plain(text: &str) -> Option<ConfigValue> {
    let number = |digits: &str, radix| match i64::from_str_radix(digits, radix) {
        Ok(number) => Some(ConfigValue::Integer(number)),
        Err(_) => Some(ConfigValue::Float(f64::MAX)),
    };
    let is_all = |digits: &str, radix| !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    match text {
        "" | "~" | "null" | "Null" | "NULL" => None,
        "true" | "True" | "TRUE" => Some(ConfigValue::Boolean(true)),
        "false" | "False" | "FALSE" => Some(ConfigValue::Boolean(false)),
        ".nan" | ".NaN" | ".NAN" => Some(ConfigValue::Float(f64::NAN)),
        _ if is_all(unsigned, 10) => number(text, 10),
        _ => {
            let based = |prefix, radix| text.strip_prefix(prefix).filter(|digits| is_all(digits, radix));
            if let Some(digits) = based("0o", 8) {
                return number(digits, 8);
            }
            if let Some(digits) = based("0x", 16) {
                return number(digits, 16);
            }
            Some(match fraction(text, unsigned) {
                Some(number) => ConfigValue::Float(number),
                None => ConfigValue::Text(text.to_owned()),
            })
        }
    }
}

/// A number with a fraction or an exponent.
fn fraction(text: &str, unsigned: &str) -> Option<f64> {
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    let is_number = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '-' | '+'));
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ConfigNode, String> {
        tree(text, &"x.yaml".into()).map_err(|finding| finding.to_string())
    }

    /// The value at a path as a short text.
    fn said(tree: &ConfigNode, path: &str) -> String {
        match tree.get(path).map(|node| &node.value) {
            None => "none".to_owned(),
            Some(ConfigValue::Text(text)) => format!("{text:?}"),
            Some(ConfigValue::Integer(number)) => number.to_string(),
            Some(ConfigValue::Float(number)) => format!("{number:?}"),
            Some(ConfigValue::Boolean(value)) => value.to_string(),
            Some(other) => other.name().to_owned(),
        }
    }

    #[test]
    fn every_key_has_its_place() {
        let tree = read("# first\na:\n  b: 1\n  c: [x, {d: 2}]\n\"e f\": |\n  two\n  lines\n").expect("it is YAML");
        let place = |path: &str| tree.get(path).map(|node| node.location.to_string());
        assert_eq!(place("a").as_deref(), Some("x.yaml:2:1"));
        assert_eq!(place("a.b").as_deref(), Some("x.yaml:3:3"));
        assert_eq!(place("e f").as_deref(), Some("x.yaml:5:1"));
        assert_eq!(said(&tree, "e f"), "\"two\\nlines\\n\"");
        let Some(ConfigNode { value: ConfigValue::List(items), .. }) = tree.get("a.c") else { panic!("a list") };
        assert_eq!(items[1].get("d").map(|node| node.location.to_string()).as_deref(), Some("x.yaml:4:11"));
    }

    #[test]
    fn scalars_mean_what_the_core_schema_says() {
        for (text, expected) in [
            ("", "none"),
            ("~", "none"),
            ("null", "none"),
            ("true", "true"),
            ("FALSE", "false"),
            ("yes", "\"yes\""),
            ("'true'", "\"true\""),
            ("!!str 12", "\"12\""),
            ("12", "12"),
            ("-3", "-3"),
            ("+3", "3"),
            ("007", "7"),
            ("0x1F", "31"),
            ("0o17", "15"),
            ("0x", "\"0x\""),
            ("99999999999999999999", &format!("{:?}", f64::MAX)),
            ("1.5", "1.5"),
            ("-.5", "-0.5"),
            ("1e3", "1000.0"),
            ("-.inf", "-inf"),
            ("1.2.3", "\"1.2.3\""),
            ("30s", "\"30s\""),
            ("2026-01-02", "\"2026-01-02\""),
            ("-", "a list"),
            (".", "\".\""),
            ("inf", "\"inf\""),
        ] {
            let read = read(&format!("k: {text}")).or_else(|_| read(&format!("k:\n  {text}"))).expect("it is YAML");
            assert_eq!(said(&read, "k"), expected, "{text}");
        }
        assert!(matches!(read("").expect("nothing").value, ConfigValue::Table(table) if table.is_empty()));
        assert!(matches!(read("---\n").expect("nothing").value, ConfigValue::Table(table) if table.is_empty()));
    }

    #[test]
    fn an_alias_repeats_a_value_with_its_own_place() {
        let tree = read("a: &x {b: 1}\nc: *x\nd:\n  e: *x\n").expect("it is YAML");
        assert_eq!((said(&tree, "c.b"), said(&tree, "d.e.b")), ("1".to_owned(), "1".to_owned()));
        let of_key = read("&k a: 1\nb: *k\n").expect("it is YAML");
        assert_eq!(said(&of_key, "b"), "\"a\"");
        assert_eq!(tree.get("d.e").map(|node| node.location.to_string()).as_deref(), Some("x.yaml:4:3"));
    }

    #[test]
    fn what_a_configuration_cannot_have_is_an_error_with_its_place() {
        let lol: String =
            (1..12).map(|n| format!("l{n}: &l{n} [{}]\n", vec![format!("*l{}", n - 1); 9].join(", "))).collect();
        let large = format!("x: &a \"{}\"\ny: [{}]\n", "x".repeat(1_000_000), vec!["*a"; 100].join(", "));
        let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
        for (text, expected) in [
            ("a: 1\na: 2\n", "x.yaml:2:1: \"a\" is written twice in one mapping"),
            ("a: ~\na: ~\n", "x.yaml:2:1: \"a\" is written twice in one mapping"),
            ("- 1\n", "x.yaml: must be a YAML mapping"),
            ("just text", "x.yaml: must be a YAML mapping"),
            ("a: 1\n---\nb: 2\n", "x.yaml:3:1: expected one document, found a second one"),
            ("a: !new 1\n", "x.yaml:1:4: tags (!…) are not supported: put a text"),
            ("a: &x {b: 1}\nc:\n  <<: *x\n", "x.yaml:3:3: merge keys (<<) are not supported: write the keys"),
            ("? [1]\n: 2\n", "x.yaml:1:3: a key must be text"),
            ("a: &x [*x]\n", "x.yaml:1:8: an alias is within the value that it repeats"),
            (&format!("l0: &l0 x\n{lol}"), "bytes of content, including aliases"),
            (&large, "bytes of content, including aliases"),
            ("s3cret-key: 1\ns3cret-key: 2\n", "a key is written twice in one mapping"),
            (&deep, "tables and lists are nested too deeply"),
            ("a: [1\n", "is not YAML: "),
            ("a: *nobody\n", "is not YAML: "),
            ("a: {b: 1\nc: 2\n", "is not YAML: "),
        ] {
            let error = read(text).err().unwrap_or_default();
            assert!(error.contains(expected), "{text:?} gave {error:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "[a-c:{}\\[\\]&*!|>'\" \n\t,0-9.#?~-]{0,80}") {
            let _ = read(&text);
        }

        #[test]
        fn json_means_the_same(number in proptest::prelude::any::<i64>(), word in "[ -~]{0,20}", flag: bool) {
            let json = serde_json::json!({ "a": { "n": number, "w": word, "f": flag, "l": [1, "x"] } }).to_string();
            let (yaml, json) = (read(&json).expect("JSON is YAML"), super::super::json::tree(&json, &"x.json".into()));
            let json = json.expect("no key is there twice").expect("it is JSON");
            for path in ["a.n", "a.w", "a.f", "a.l"] {
                proptest::prop_assert_eq!(said(&yaml, path), said(&json, path));
            }
        }
    }
}
