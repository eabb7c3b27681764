//! The operations on a table of settings.

use std::time::Duration;

use super::key::{Key, ValueKind};
use super::value::{Misfit, SettingValue, WrittenValue};

/// A struct that the macro `settings!` has generated.
pub trait SettingsTable {
    /// Calls `visit` with every key, in the order of the table; nested tables are visited in their places. The
    /// `default` of a key is its present value.
    fn visit(&self, visit: &mut dyn FnMut(Key));

    /// Sets the key with this path below the table; `None` = there is no such key.
    fn set(&mut self, path: &str, written: &WrittenValue<'_>) -> Option<Result<Filled, Misfit>>;

    /// The keys of the table with their present values.
    fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        self.visit(&mut |key| keys.push(key));
        keys
    }
}

/// The result of setting a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// The new value as a duration; `None` = the value is not a duration.
    pub duration: Option<Duration>,
}

/// Replaces a field by the written value. Empty text does not change a path: it means the default.
///
/// # Errors
/// The value does not have the required kind.
pub fn fill<T: SettingValue>(field: &mut T, kind: ValueKind, written: &WrittenValue<'_>) -> Result<Filled, Misfit> {
    if kind != ValueKind::Path || *written != WrittenValue::Text("") {
        *field = T::read(kind, written)?;
    }
    Ok(Filled { duration: field.duration() })
}

/// The description of one key of a table, with its present value.
pub fn described<T: SettingValue>(name: &str, kind: ValueKind, value: &T, meaning: &'static str, is_ours: bool) -> Key {
    Key { path: name.to_owned(), kind, default: value.show(), meaning: meaning.trim(), is_ours }
}

/// A value for debug output. Secrets, keys in PEM and addresses with a password are not shown.
pub fn shown<T: SettingValue>(kind: ValueKind, value: &T) -> String {
    let text = value.show();
    let is_secret = matches!(kind, ValueKind::Secret | ValueKind::Pem | ValueKind::StringMap);
    let may_hold_one = matches!(kind, ValueKind::Text | ValueKind::Texts) && (text.len() > 255 || text.contains('@'));
    match (is_secret || text.contains("-----BEGIN") || may_hold_one, text.is_empty()) {
        (true, true) => "unset".to_owned(),
        (true, false) => "set".to_owned(),
        (false, _) => text,
    }
}
