//! Parameters of SQL statements.

use serde::Serialize;

/// Encodes a list as one parameter of a statement.
pub(super) fn json<T: Serialize + ?Sized>(list: &T) -> String {
    serde_json::to_string(list).unwrap_or_default()
}
