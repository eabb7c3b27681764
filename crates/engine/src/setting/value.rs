//! Types of settings: how a written value is parsed into a type, and how it is written.

use std::time::Duration;

use super::key::{COUNT, ValueKind};
use crate::duration;

/// A value as it was written, without its location.
#[derive(Debug, Clone, PartialEq)]
pub enum WrittenValue<'a> {
    /// A text. All values in the environment are texts.
    Text(&'a str),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Boolean(bool),
    /// A list that contains only texts.
    Texts(Vec<&'a str>),
    /// A table, or a list that contains other things than texts.
    Nested(serde_json::Value),
    /// A value that no setting can have: a date, a fraction.
    Other,
}

/// Why a value does not fit: `None` = it has the wrong kind, otherwise a reason.
pub type Misfit = Option<String>;

/// A type that a setting can have.
pub trait SettingValue: Sized {
    /// The type of the default in a table.
    type Literal;
    /// The kind of value, if the table does not say another one.
    const KIND: ValueKind;

    /// Converts the default of a table.
    fn of(literal: Self::Literal) -> Self;

    /// Reads a written value. A text form of the value is accepted too, because the environment contains only texts.
    ///
    /// # Errors
    /// The value does not have this kind.
    fn read(kind: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit>;

    /// The value as it would be written in the environment.
    fn show(&self) -> String;

    /// The value as a duration; `None` = it is not a duration.
    fn duration(&self) -> Option<Duration> {
        None
    }
}

impl SettingValue for bool {
    type Literal = bool;
    const KIND: ValueKind = ValueKind::Boolean;

    fn of(literal: bool) -> Self {
        literal
    }

    fn read(_: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        match written {
            WrittenValue::Boolean(value) => Ok(*value),
            WrittenValue::Text("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(true),
            WrittenValue::Text("0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(false),
            _ => Err(None),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// The number that was written, if it is within the bounds of the kind.
fn number(kind: ValueKind, written: &WrittenValue<'_>) -> Option<u64> {
    let number = match written {
        WrittenValue::Integer(number) => u64::try_from(*number).ok()?,
        WrittenValue::Text(text) => text.parse().ok()?,
        _ => return None,
    };
    match kind {
        ValueKind::Integer(least, most) | ValueKind::Optional(least, most) => {
            (least..=most).contains(&number).then_some(number)
        }
        _ => Some(number),
    }
}

macro_rules! numbers {
    ($($type:ty: $kind:expr;)+) => {$(
        impl SettingValue for $type {
            type Literal = $type;
            const KIND: ValueKind = $kind;

            fn of(literal: $type) -> Self {
                literal
            }

            fn read(kind: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
                number(kind, written).and_then(|number| number.try_into().ok()).ok_or(None)
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

numbers! {
    u16: ValueKind::Integer(0, u16::MAX as u64);
    u32: COUNT;
    u64: ValueKind::Integer(0, u64::MAX);
    usize: COUNT;
}

impl SettingValue for Option<u16> {
    type Literal = Option<u16>;
    const KIND: ValueKind = ValueKind::Optional(0, u16::MAX as u64);

    fn of(literal: Option<u16>) -> Self {
        literal
    }

    fn read(kind: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        if *written == WrittenValue::Text("") {
            return Ok(None);
        }
        u16::read(kind, written).map(Some)
    }

    fn show(&self) -> String {
        self.map(|number| number.to_string()).unwrap_or_default()
    }
}

impl SettingValue for Duration {
    type Literal = Duration;
    const KIND: ValueKind = ValueKind::Duration;

    fn of(literal: Duration) -> Self {
        literal
    }

    fn read(_: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        match written {
            WrittenValue::Integer(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
            WrittenValue::Text(text) => duration::parse(text),
            _ => None,
        }
        .ok_or(None)
    }

    fn show(&self) -> String {
        duration::show(*self)
    }

    fn duration(&self) -> Option<Duration> {
        Some(*self)
    }
}

impl SettingValue for String {
    type Literal = &'static str;
    const KIND: ValueKind = ValueKind::Text;

    fn of(literal: &'static str) -> Self {
        literal.to_owned()
    }

    fn read(kind: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        let WrittenValue::Text(text) = written else { return Err(None) };
        match kind {
            ValueKind::Choice(words) if !words.contains(text) => Err(None),
            _ => Ok((*text).to_owned()),
        }
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl SettingValue for Vec<String> {
    type Literal = &'static [&'static str];
    const KIND: ValueKind = ValueKind::Texts;

    fn of(literal: Self::Literal) -> Self {
        literal.iter().map(|text| (*text).to_owned()).collect()
    }

    /// A text value is parsed as a JSON list, or as words separated by spaces.
    fn read(_: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        match written {
            WrittenValue::Texts(texts) => Ok(texts.iter().map(|text| (*text).to_owned()).collect()),
            WrittenValue::Text(text) if text.trim_start().starts_with('[') => {
                serde_json::from_str(text).map_err(|_| None)
            }
            WrittenValue::Text(text) => Ok(text.split_whitespace().map(str::to_owned).collect()),
            _ => Err(None),
        }
    }

    fn show(&self) -> String {
        let is_plain =
            |text: &String| !text.is_empty() && !text.contains(char::is_whitespace) && !text.starts_with('[');
        if !self.is_empty() && self.iter().all(is_plain) { self.join(" ") } else { serde_json::json!(self).to_string() }
    }
}
