//! Values of the settings of rate limits: lists of buckets, and replacements for certain namespaces and methods.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Value as Json, json};

use crate::duration;
use crate::setting::{Misfit, SettingValue, ValueKind, WrittenValue};

/// The nanoseconds of a duration; `u64::MAX` if they do not fit.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// One rate, which is a token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateBucket {
    /// The time in which an empty bucket becomes full.
    #[serde(deserialize_with = "interval_of")]
    pub interval: Duration,
    /// The number of tokens in a full bucket; at least 1.
    #[serde(deserialize_with = "rate_of")]
    pub rate: u32,
}

/// Rates that all apply; an empty list = there is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RateBuckets(pub Vec<RateBucket>);

/// Rates that replace those of a command for one namespace of channels, or for one method.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateOverride {
    /// The name of the namespace or of the method.
    pub name: String,
    /// Whether the replacement applies. Without buckets it does not apply.
    pub enabled: bool,
    /// The rates that apply instead.
    pub buckets: RateBuckets,
}

/// Reads a duration as text or in seconds.
fn interval_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Seconds(u32),
        Text(String),
    }
    match Written::deserialize(deserializer)? {
        Written::Seconds(seconds) => Ok(Duration::from_secs(seconds.into())),
        Written::Text(text) => duration::parse(&text).ok_or_else(|| de::Error::custom("not a duration")),
    }
}

fn rate_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let rate = i64::deserialize(deserializer)?;
    u32::try_from(rate).ok().filter(|rate| *rate > 0).ok_or_else(|| {
        de::Error::custom(format!("rate is {rate}: expected a whole number above zero, at most 1000000"))
    })
}

impl RateBucket {
    fn json(self) -> Json {
        json!({ "interval": duration::show(self.interval), "rate": self.rate })
    }
}

impl RateBuckets {
    fn json(&self) -> Json {
        self.0.iter().map(|bucket| bucket.json()).collect()
    }
}

/// The JSON that was written, for values that are lists or tables; `None` = the text is empty.
fn json_of(written: &WrittenValue<'_>) -> Result<Option<Json>, Misfit> {
    match written {
        WrittenValue::Text("") => Ok(None),
        WrittenValue::Text(text) => serde_json::from_str(text).map(Some).map_err(|_| None),
        WrittenValue::Nested(json) => Ok(Some(json.clone())),
        WrittenValue::Texts(texts) if texts.is_empty() => Ok(None),
        _ => Err(None),
    }
}

impl SettingValue for RateBuckets {
    type Literal = ();
    const KIND: ValueKind = ValueKind::Buckets;

    fn of((): ()) -> Self {
        RateBuckets::default()
    }

    /// A text value is parsed as a JSON list.
    fn read(_: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        let Some(json) = json_of(written)? else { return Ok(Self::default()) };
        if json.is_array() { serde_json::from_value(json).map_err(reason) } else { Err(None) }
    }

    fn show(&self) -> String {
        self.json().to_string()
    }
}

/// What is wrong within a list or a table.
fn reason(error: serde_json::Error) -> Misfit {
    Some(error.to_string())
}

/// A replacement without its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideJson {
    #[serde(default)]
    enabled: bool,
    #[serde(default)]
    buckets: RateBuckets,
}

impl RateOverride {
    fn read(name: String, json: Json) -> Result<Self, Misfit> {
        let OverrideJson { enabled, buckets } = serde_json::from_value(json).map_err(reason)?;
        Ok(RateOverride { name, enabled, buckets })
    }

    fn json(&self) -> Json {
        json!({ "enabled": self.enabled, "buckets": self.buckets.json() })
    }
}

/// Reads a list of replacements. `field`: the field that contains the name of each.
fn read_list(field: &str, written: &WrittenValue<'_>) -> Result<Vec<RateOverride>, Misfit> {
    let items = match json_of(written)? {
        None => Vec::new(),
        Some(Json::Array(items)) => items,
        Some(_) => return Err(None),
    };
    let read = |item: Json| {
        let Json::Object(mut fields) = item else { return Err(None) };
        let Some(Json::String(name)) = fields.remove(field) else { return Err(None) };
        RateOverride::read(name, Json::Object(fields))
    };
    items.into_iter().map(read).collect()
}

fn show_list(field: &str, all: &[RateOverride]) -> String {
    let items = all.iter().map(|item| {
        let mut json = item.json();
        json[field] = json!(item.name);
        json
    });
    Json::from_iter(items).to_string()
}

macro_rules! lists_of_overrides {
    ($($(#[doc = $doc:literal])+ $name:ident = $field:literal;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct $name(pub Vec<RateOverride>);

        impl SettingValue for $name {
            type Literal = ();
            const KIND: ValueKind = ValueKind::Overrides($field);

            fn of((): ()) -> Self {
                $name::default()
            }

            /// A text value is parsed as a JSON list.
            fn read(_: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
                read_list($field, written).map($name)
            }

            fn show(&self) -> String {
                show_list($field, &self.0)
            }
        }
    )+};
}

lists_of_overrides! {
    /// The rates that replace those of a command in certain namespaces.
    NamespaceOverrides = "namespace_name";
    /// The rates that replace those of `rpc` for certain methods.
    MethodOverrides = "method";
}

/// The same as [`MethodOverrides`] in the form of Centrifugo before 6.8: a table by method.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MethodOverrideTable(pub Vec<RateOverride>);

impl SettingValue for MethodOverrideTable {
    type Literal = ();
    const KIND: ValueKind = ValueKind::OverrideTable;

    fn of((): ()) -> Self {
        MethodOverrideTable::default()
    }

    /// A text value is parsed as a JSON object.
    fn read(_: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        let by_method: BTreeMap<String, Json> = match json_of(written)? {
            None => BTreeMap::new(),
            Some(json) => serde_json::from_value(json).map_err(|_| None)?,
        };
        by_method.into_iter().map(|(name, json)| RateOverride::read(name, json)).collect::<Result<_, _>>().map(Self)
    }

    fn show(&self) -> String {
        let by_method: serde_json::Map<_, _> = self.0.iter().map(|item| (item.name.clone(), item.json())).collect();
        Json::Object(by_method).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: SettingValue>(text: &str) -> Option<T> {
        T::read(T::KIND, &WrittenValue::Text(text)).ok()
    }

    #[test]
    fn buckets_are_read_and_written() {
        let two = RateBuckets(vec![
            RateBucket { interval: Duration::from_secs(1), rate: 60 },
            RateBucket { interval: Duration::from_secs(90), rate: 1 },
        ]);
        let text = r#"[{"interval":"1s","rate":60},{"interval":90,"rate":1}]"#;
        assert_eq!(read::<RateBuckets>(text), Some(two.clone()));
        assert_eq!(read::<RateBuckets>(&two.show()), Some(two));
        assert_eq!(read::<RateBuckets>(""), Some(RateBuckets::default()));
        for bad in [
            "{}",
            "x",
            "[1]",
            r#"[{"interval":"1s"}]"#,
            r#"[{"interval":"1s","rate":0}]"#,
            r#"[{"interval":"1s","rate":-1}]"#,
            r#"[{"interval":"1w","rate":1}]"#,
            r#"[{"interval":"1s","rate":1,"burst":2}]"#,
        ] {
            assert_eq!(read::<RateBuckets>(bad), None, "{bad}");
        }
    }

    #[test]
    fn overrides_are_read_and_written_in_each_form() {
        let list = r#"[{"namespace_name":"chat","enabled":true,"buckets":[{"interval":"1s","rate":2}]}]"#;
        let table = r#"{"price":{"enabled":true,"buckets":[{"interval":"1s","rate":2}]}}"#;
        let namespaces = read::<NamespaceOverrides>(list).expect("it is one");
        assert_eq!((namespaces.0[0].name.as_str(), namespaces.0[0].buckets.0[0].rate), ("chat", 2));
        assert_eq!(read(&namespaces.show()), Some(namespaces));
        let methods = read::<MethodOverrideTable>(table).expect("it is one");
        assert_eq!((methods.0[0].name.as_str(), methods.0[0].enabled), ("price", true));
        assert_eq!(read(&methods.show()), Some(methods));
        assert_eq!(read::<MethodOverrides>(list), None, "the name is in another field");
        assert_eq!(read::<MethodOverrides>(r#"[{"method":"m"}]"#).map(|all| all.0[0].enabled), Some(false));
        for bad in ["{}", "[[]]", "[{}]", r#"[{"method":1}]"#, r#"[{"method":"m","bucket":[]}]"#] {
            assert_eq!(read::<MethodOverrides>(bad), None, "{bad}");
        }
        assert_eq!(read::<MethodOverrideTable>(r#"{"m":1}"#), None);
    }
}
