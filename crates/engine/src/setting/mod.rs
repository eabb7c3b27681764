//! Tables of settings. Each table defines a setting once.
//!
//! The macro `settings!` generates a struct from a table, with its defaults, its keys and their documentation. A value
//! is parsed once, into the type of its field.

mod key;
#[macro_use]
mod macros;
mod table;
mod value;

pub use key::{COUNT, Key, SOME, ValueKind};
pub use table::{Filled, SettingsTable, described, fill, shown};
pub use value::{Misfit, SettingValue, WrittenValue};
