//! Names of PostgreSQL tables, checked so that they are safe in a statement.

use std::fmt;
use std::str::FromStr;

/// Maximum bytes of a name in PostgreSQL, which truncates longer ones.
const NAME_BYTES: usize = 63;

/// The name of a table, with or without its schema. It reads a text as SQL reads an unquoted name: capital letters
/// become small ones.
///
/// ```
/// use touchline_config::TableName;
///
/// let table: TableName = "Shop.outbox".parse()?;
/// assert_eq!(table.quoted(), r#""shop"."outbox""#);
/// assert!("outbox; DROP TABLE users".parse::<TableName>().is_err());
/// # Ok::<(), touchline_config::BadTableName>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    schema: Option<String>,
    table: String,
}

/// A text that is not the name of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a name, or a schema and a name with a dot between them, of letters, digits and \"_\", at most 63 bytes \
     each"
)]
pub struct BadTableName;

impl FromStr for TableName {
    type Err = BadTableName;

    fn from_str(text: &str) -> Result<Self, BadTableName> {
        let (schema, table) = match text.split_once('.') {
            Some((schema, table)) => (Some(identifier(schema)?), identifier(table)?),
            None => (None, identifier(text)?),
        };
        Ok(TableName { schema, table })
    }
}

impl TableName {
    /// The quoted name, for a statement.
    pub fn quoted(&self) -> String {
        match &self.schema {
            Some(schema) => format!("\"{schema}\".\"{}\"", self.table),
            None => format!("\"{}\"", self.table),
        }
    }

    /// The name of the table in the same schema whose name is this one followed by `suffix`.
    ///
    /// # Errors
    /// When the name becomes too long, or `suffix` is not valid in a name.
    pub fn with_suffix(&self, suffix: &str) -> Result<TableName, BadTableName> {
        Ok(TableName { schema: self.schema.clone(), table: identifier(&format!("{}{suffix}", self.table))? })
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.table),
            None => f.write_str(&self.table),
        }
    }
}

/// An unquoted SQL name, in small letters.
///
/// # Errors
/// When the text contains anything but letters, digits and `_`, begins with a digit, or is too long.
pub(crate) fn identifier(text: &str) -> Result<String, BadTableName> {
    let is_good = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
        && text.len() <= NAME_BYTES;
    if is_good { Ok(text.to_ascii_lowercase()) } else { Err(BadTableName) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_never_reaches_a_statement() {
        let quoted = |text: &str| text.parse::<TableName>().map(|table| table.quoted()).ok();
        let long = "a".repeat(63);
        assert_eq!(quoted("outbox").as_deref(), Some(r#""outbox""#));
        assert_eq!(quoted("shop.Out_box1").as_deref(), Some(r#""shop"."out_box1""#));
        assert_eq!(quoted(&long), Some(format!("\"{long}\"")));
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a.b.c",
            "a b",
            "1a",
            "a-b",
            "a;b",
            "a\"b",
            "a'b",
            "\u{e9}",
            &format!("{long}a"),
            "outbox\0",
        ] {
            assert_eq!(quoted(bad), None, "{bad}");
        }
        let table: TableName = "shop.outbox".parse().expect("it is a name");
        assert_eq!(table.with_suffix("_dead").map(|dead| dead.to_string()).as_deref(), Ok("shop.outbox_dead"));
        assert!(long.parse::<TableName>().is_ok_and(|table| table.with_suffix("_dead").is_err()));
    }
}
