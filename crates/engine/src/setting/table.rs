//! What a table of settings can do.

use std::time::Duration;

use super::key::{Key, ValueKind};
use super::value::{Misfit, SettingValue, WrittenValue};

/// A struct that the macro `settings!` has made.
pub trait SettingsTable {
    /// Calls `visit` with every key, in the order of the table, and of the tables within it where they stand. The
    /// default of a key is the value that it has now.
    fn visit(&self, visit: &mut dyn FnMut(Key));

    /// Sets the key of this path below the table; `None` = there is no such key.
    fn set(&mut self, path: &str, written: &WrittenValue<'_>) -> Option<Result<Filled, Misfit>>;

    /// The keys of the table with the values that they have now.
    fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        self.visit(&mut |key| keys.push(key));
        keys
    }
}

/// A key that has been set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// The time that it is now; `None` = it is no time.
    pub duration: Option<Duration>,
}

/// Replaces a field by what was written. Empty text leaves a path as it is: it stands for the default.
///
/// # Errors
/// When the value is not of the kind.
pub fn fill<T: SettingValue>(field: &mut T, kind: ValueKind, written: &WrittenValue<'_>) -> Result<Filled, Misfit> {
    if kind != ValueKind::Path || *written != WrittenValue::Text("") {
        *field = T::read(kind, written)?;
    }
    Ok(Filled { duration: field.duration() })
}

/// One key of a table with the value that it has now.
pub fn described<T: SettingValue>(name: &str, kind: ValueKind, value: &T, meaning: &'static str, is_ours: bool) -> Key {
    Key { path: name.to_owned(), kind, default: value.show(), meaning: meaning.trim(), is_ours }
}

/// A value for a debugger. Secrets, keys in PEM and addresses with a password are not shown.
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
