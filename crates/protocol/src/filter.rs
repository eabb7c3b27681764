//! Filters over the tags of publications. A subscriber with a filter receives only the publications that match it.

use serde::{Deserialize, Serialize};

use crate::data;
use crate::protobuf::{Malformed, fields};
use crate::publication::Tags;

/// The deepest nesting of a filter.
const DEPTH_MAX: usize = 32;
// A level of a filter is an object in a list. The deepest filter must not be refused because its JSON nests too deep.
const _: () = assert!(2 * DEPTH_MAX < data::DEPTH_MAX);

/// `FilterNode` as the client sent it. [`Filter::check`] turns it into a filter.
#[derive(Debug, Clone, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(default)]
pub struct FilterNode {
    /// The operator: `and`, `or`, `not`, or empty for a comparison.
    pub op: String,
    /// The name of the tag to compare.
    pub key: String,
    /// The comparison: `eq neq in nin ex nex sw ew ct lt lte gt gte`.
    pub cmp: String,
    /// The value to compare the tag with.
    pub val: String,
    /// The allowed values for `in`, or the excluded values for `nin`.
    pub vals: Vec<String>,
    /// The nodes that `and`, `or` or `not` combines.
    pub nodes: Vec<FilterNode>,
}

impl FilterNode {
    /// The size of the node and everything below it in memory, in bytes.
    pub fn size(&self) -> usize {
        let texts = self.op.len() + self.key.len() + self.cmp.len() + self.val.len();
        let vals = self.vals.iter().map(|val| size_of::<String>() + val.len()).sum::<usize>();
        size_of::<Self>() + texts + vals + self.nodes.iter().map(FilterNode::size).sum::<usize>()
    }
}

/// The maximum size of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterLimits {
    /// The maximum number of nodes and values together. They bound the comparisons for each publication.
    pub nodes: usize,
    /// The maximum length of all texts together in bytes: operators, keys, comparisons and values.
    pub size: usize,
}

impl FilterLimits {
    /// Subtracts a node and everything below it from the remaining budget. Returns `None` as soon as the budget is
    /// exceeded.
    fn take(&mut self, node: &FilterNode) -> Option<()> {
        self.nodes = self.nodes.checked_sub(1)?.checked_sub(node.vals.len())?;
        let texts = [&node.op, &node.key, &node.cmp, &node.val].into_iter().chain(&node.vals);
        self.size = self.size.checked_sub(texts.map(String::len).sum())?;
        node.nodes.iter().try_for_each(|node| self.take(node))
    }
}

/// A filter that has been checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Filter {
    /// All of the filters match.
    And(Vec<Filter>),
    /// At least one of the filters matches.
    Or(Vec<Filter>),
    /// The filter does not match.
    Not(Box<Filter>),
    /// The value of a tag satisfies a comparison.
    Tag(String, Comparison),
}

/// A test of a tag's value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// The tag is present.
    Exists,
    /// The tag is absent.
    Missing,
    /// The value equals this text.
    Equals(String),
    /// The value differs from this text. An absent tag also matches.
    Differs(String),
    /// The value is one of these.
    In(Vec<String>),
    /// The value is none of these. An absent tag also matches.
    NotIn(Vec<String>),
    /// The value starts with this text.
    StartsWith(String),
    /// The value ends with this text.
    EndsWith(String),
    /// The value contains this text.
    Contains(String),
    /// The value is a decimal number that satisfies this inequality.
    Number(Inequality, Decimal),
}

/// How two numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inequality {
    /// The tag's number is less.
    Below,
    /// The tag's number is less or equal.
    AtMost,
    /// The tag's number is greater.
    Above,
    /// The tag's number is greater or equal.
    AtLeast,
}

/// The bits of a finite decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal(u64);

impl Decimal {
    fn read(text: &str) -> Option<Self> {
        // Rust also parses words such as "inf" and "nan" as numbers; they are not accepted here.
        let is_decimal = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
        text.parse::<f64>()
            .ok()
            .filter(|number| is_decimal && number.is_finite())
            .map(|number| Decimal(number.to_bits()))
    }

    fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl Filter {
    /// Turns a client's filter into a checked one. `None` = the filter is not valid or exceeds the limits. The limits
    /// are checked before anything is copied.
    pub fn check(node: &FilterNode, mut limits: FilterLimits) -> Option<Self> {
        limits.take(node)?;
        Self::check_to(node, DEPTH_MAX)
    }

    fn check_to(node: &FilterNode, depth: usize) -> Option<Self> {
        let depth = depth.checked_sub(1)?;
        let all =
            |nodes: &[FilterNode]| nodes.iter().map(|node| Self::check_to(node, depth)).collect::<Option<Vec<_>>>();
        Some(match &*node.op {
            "and" if !node.nodes.is_empty() => Filter::And(all(&node.nodes)?),
            "or" if !node.nodes.is_empty() => Filter::Or(all(&node.nodes)?),
            "not" => {
                let [inner] = <[Filter; 1]>::try_from(all(&node.nodes)?).ok()?;
                Filter::Not(Box::new(inner))
            }
            "" if !node.key.is_empty() => {
                let number = |order| Decimal::read(&node.val).map(|number| Comparison::Number(order, number));
                let comparison = match &*node.cmp {
                    "ex" => Comparison::Exists,
                    "nex" => Comparison::Missing,
                    "eq" => Comparison::Equals(node.val.clone()),
                    "neq" => Comparison::Differs(node.val.clone()),
                    "in" if !node.vals.is_empty() => Comparison::In(node.vals.clone()),
                    "nin" if !node.vals.is_empty() => Comparison::NotIn(node.vals.clone()),
                    "sw" => Comparison::StartsWith(node.val.clone()),
                    "ew" => Comparison::EndsWith(node.val.clone()),
                    "ct" => Comparison::Contains(node.val.clone()),
                    "lt" => number(Inequality::Below)?,
                    "lte" => number(Inequality::AtMost)?,
                    "gt" => number(Inequality::Above)?,
                    "gte" => number(Inequality::AtLeast)?,
                    _ => return None,
                };
                Filter::Tag(node.key.clone(), comparison)
            }
            _ => return None,
        })
    }

    /// Whether a publication with these tags matches the filter.
    pub fn fits(&self, tags: &Tags) -> bool {
        match self {
            Filter::And(filters) => filters.iter().all(|filter| filter.fits(tags)),
            Filter::Or(filters) => filters.iter().any(|filter| filter.fits(tags)),
            Filter::Not(filter) => !filter.fits(tags),
            Filter::Tag(key, comparison) => comparison.fits(tags.get(key).map(String::as_str)),
        }
    }
}

impl Comparison {
    fn fits(&self, value: Option<&str>) -> bool {
        let Some(value) = value else { return matches!(self, Self::Missing | Self::Differs(_) | Self::NotIn(_)) };
        match self {
            Self::Exists => true,
            Self::Missing => false,
            Self::Equals(wanted) => value == wanted,
            Self::Differs(unwanted) => value != unwanted,
            Self::In(wanted) => wanted.iter().any(|wanted| wanted == value),
            Self::NotIn(unwanted) => unwanted.iter().all(|unwanted| unwanted != value),
            Self::StartsWith(start) => value.starts_with(start.as_str()),
            Self::EndsWith(end) => value.ends_with(end.as_str()),
            Self::Contains(part) => value.contains(part.as_str()),
            Self::Number(order, bound) => Decimal::read(value).is_some_and(|number| {
                let (number, bound) = (number.value(), bound.value());
                match order {
                    Inequality::Below => number < bound,
                    Inequality::AtMost => number <= bound,
                    Inequality::Above => number > bound,
                    Inequality::AtLeast => number >= bound,
                }
            }),
        }
    }
}

/// Reads a `FilterNode` from its Protobuf form.
pub(crate) fn decode(message: &[u8]) -> Result<FilterNode, Malformed> {
    decode_to(message, DEPTH_MAX + 1)
}

fn decode_to(message: &[u8], depth: usize) -> Result<FilterNode, Malformed> {
    let depth = depth.checked_sub(1).ok_or(Malformed)?;
    let mut node = FilterNode::default();
    fields(message, |tag, value| {
        match tag {
            1 => node.op = value.text()?.to_owned(),
            2 => node.key = value.text()?.to_owned(),
            3 => node.cmp = value.text()?.to_owned(),
            4 => node.val = value.text()?.to_owned(),
            5 => node.vals.push(value.text()?.to_owned()),
            6 => node.nodes.push(decode_to(value.bytes()?, depth)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FilterLimits = FilterLimits { nodes: 64, size: 4_096 };

    fn filter(json: &str) -> Option<Filter> {
        Filter::check(&serde_json::from_str(json).expect("the case is JSON"), LIMITS)
    }

    #[test]
    fn a_filter_is_so_large_and_no_larger() {
        let values = |n: usize, length: usize| {
            format!(r#"{{"key":"k","cmp":"in","vals":[{}]}}"#, vec![format!("\"{}\"", "v".repeat(length)); n].join(","))
        };
        let any = |n: usize, each: &str| format!(r#"{{"op":"or","nodes":[{}]}}"#, vec![each; n].join(","));
        let cases = [
            (values(63, 1), true),
            (values(64, 1), false),
            (values(20_000, 0), false),
            (any(63, r#"{"key":"k","cmp":"ex"}"#), true),
            (any(64, r#"{"key":"k","cmp":"ex"}"#), false),
            (any(7, &values(7, 1)), true),
            (any(7, &values(8, 1)), true),
            (any(7, &values(9, 1)), false),
            (values(1, 4_096 - 3), true),
            (values(1, 4_096 - 2), false),
            (format!(r#"{{"key":"{}","cmp":"ex"}}"#, "k".repeat(4_096 - 2)), true),
            (format!(r#"{{"key":"{}","cmp":"ex"}}"#, "k".repeat(4_096 - 1)), false),
        ];
        for (json, is_taken) in cases {
            assert_eq!(filter(&json).is_some(), is_taken, "{:.80}, {} bytes", json, json.len());
        }
    }

    #[test]
    fn each_comparison_judges_values_and_missing_ones() {
        let tags = Tags::from([("league".to_owned(), "serie-a".to_owned()), ("goals".to_owned(), "3".to_owned())]);
        let cases = [
            (r#"{"key":"league","cmp":"eq","val":"serie-a"}"#, true),
            (r#"{"key":"league","cmp":"neq","val":"serie-a"}"#, false),
            (r#"{"key":"none","cmp":"neq","val":"x"}"#, true),
            (r#"{"key":"none","cmp":"eq","val":""}"#, false),
            (r#"{"key":"league","cmp":"in","vals":["x","serie-a"]}"#, true),
            (r#"{"key":"league","cmp":"nin","vals":["x","serie-a"]}"#, false),
            (r#"{"key":"league","cmp":"in","vals":["x","y"]}"#, false),
            (r#"{"key":"league","cmp":"nin","vals":["x","y"]}"#, true),
            (r#"{"key":"none","cmp":"nin","vals":["x"]}"#, true),
            (r#"{"key":"league","cmp":"ex"}"#, true),
            (r#"{"key":"none","cmp":"nex"}"#, true),
            (r#"{"key":"league","cmp":"sw","val":"serie"}"#, true),
            (r#"{"key":"league","cmp":"ew","val":"-b"}"#, false),
            (r#"{"key":"league","cmp":"ct","val":"ie-"}"#, true),
            (r#"{"key":"goals","cmp":"gt","val":"2.5"}"#, true),
            (r#"{"key":"goals","cmp":"gt","val":"3"}"#, false),
            (r#"{"key":"goals","cmp":"gt","val":"3.5"}"#, false),
            (r#"{"key":"goals","cmp":"gte","val":"2.5"}"#, true),
            (r#"{"key":"goals","cmp":"gte","val":"3.0"}"#, true),
            (r#"{"key":"goals","cmp":"gte","val":"3.5"}"#, false),
            (r#"{"key":"goals","cmp":"lt","val":"10"}"#, true),
            (r#"{"key":"goals","cmp":"lt","val":"+3"}"#, false),
            (r#"{"key":"goals","cmp":"lt","val":"-3"}"#, false),
            (r#"{"key":"goals","cmp":"lte","val":"10"}"#, true),
            (r#"{"key":"goals","cmp":"lte","val":"3e0"}"#, true),
            (r#"{"key":"goals","cmp":"lte","val":"2"}"#, false),
            (r#"{"key":"league","cmp":"lt","val":"10"}"#, false),
            (r#"{"key":"none","cmp":"gt","val":"0"}"#, false),
            (r#"{"op":"not","nodes":[{"key":"goals","cmp":"eq","val":"3"}]}"#, false),
            (r#"{"op":"and","nodes":[{"key":"goals","cmp":"eq","val":"3"},{"key":"none","cmp":"nex"}]}"#, true),
            (r#"{"op":"or","nodes":[{"key":"goals","cmp":"eq","val":"4"},{"key":"none","cmp":"ex"}]}"#, false),
        ];
        for (json, expected) in cases {
            assert_eq!(filter(json).map(|filter| filter.fits(&tags)), Some(expected), "{json}");
        }
    }

    #[test]
    fn a_filter_nests_so_deep_and_no_deeper() {
        let nested = |nodes: usize| {
            let around = nodes - 1;
            format!(
                "{}{}{}",
                r#"{"op":"not","nodes":["#.repeat(around),
                r#"{"key":"a","cmp":"ex"}"#,
                "]}".repeat(around)
            )
        };
        assert!(filter(&nested(DEPTH_MAX)).is_some());
        assert!(filter(&nested(DEPTH_MAX + 1)).is_none());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for json in [
            "{}",
            r#"{"key":"a","cmp":"like","val":"x"}"#,
            r#"{"cmp":"eq","val":"x"}"#,
            r#"{"op":"xor","nodes":[]}"#,
            r#"{"op":"and"}"#,
            r#"{"op":"not","nodes":[{"key":"a","cmp":"ex"},{"key":"b","cmp":"ex"}]}"#,
            r#"{"key":"a","cmp":"in"}"#,
            r#"{"key":"a","cmp":"gt","val":"many"}"#,
            r#"{"key":"a","cmp":"gt","val":"inf"}"#,
            r#"{"key":"a","cmp":"gt","val":"1e999"}"#,
            r#"{"key":"a","cmp":"nin"}"#,
            r#"{"op":"or"}"#,
        ] {
            assert_eq!(filter(json), None, "{json}");
        }
    }
}
