//! What is known about one key of the configuration.

/// The kind of value that a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// True or false.
    Boolean,
    /// A whole number within bounds, both included.
    Integer(u64, u64),
    /// A whole number within bounds, both included; or empty, which means none.
    Optional(u64, u64),
    /// A duration such as `25s`.
    Duration,
    /// Any text, also empty.
    Text,
    /// The path at which the server serves something. Empty text means the default.
    Path,
    /// A text that is never shown.
    Secret,
    /// A public key in PEM.
    Pem,
    /// A regular expression.
    Pattern,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// A table of texts by name.
    StringMap,
    /// A list of refusals for HTTP statuses.
    Transforms,
    /// A list of token claims that become fields of something else.
    ClaimPaths,
    /// A list of rates: tables with `interval` and `rate`.
    Buckets,
    /// A list of tables with a name in this field, `enabled` and `buckets`.
    Overrides(&'static str),
    /// A table of tables with `enabled` and `buckets`, by name.
    OverrideTable,
}

/// Any number of things, including none.
pub const COUNT: ValueKind = ValueKind::Integer(0, u32::MAX as u64);
/// A number of things, at least one.
pub const SOME: ValueKind = ValueKind::Integer(1, u32::MAX as u64);

impl ValueKind {
    /// The name of the kind, for error texts.
    pub fn name(self) -> String {
        match self {
            ValueKind::Boolean => "true or false".into(),
            ValueKind::Integer(least, u64::MAX) => format!("a number from {least}"),
            ValueKind::Integer(least, most) => format!("a number from {least} to {most}"),
            ValueKind::Optional(least, most) => format!("a number from {least} to {most}, or empty"),
            ValueKind::Duration => "a duration such as \"25s\", \"1h30m\" or \"500ms\"".into(),
            ValueKind::Text | ValueKind::Path => "text".into(),
            ValueKind::Secret => "text (a secret)".into(),
            ValueKind::Pem => "a public key in PEM".into(),
            ValueKind::Pattern => "a regular expression".into(),
            ValueKind::Choice(words) => {
                format!("one of {}", words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", "))
            }
            ValueKind::Texts => "a list of texts".into(),
            ValueKind::StringMap => "a table of texts".into(),
            ValueKind::Transforms => "a list of tables with status_code, and to_error or to_disconnect".into(),
            ValueKind::ClaimPaths => "a list of tables with key and value".into(),
            ValueKind::Buckets => "a list of tables with interval and rate (above zero)".into(),
            ValueKind::Overrides(name) => format!("a list of tables with {name}, enabled and buckets"),
            ValueKind::OverrideTable => "a table of tables with enabled and buckets".into(),
        }
    }
}

/// One key of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The dotted path of the key below the table.
    pub path: String,
    /// The kind of value that it takes.
    pub kind: ValueKind,
    /// The present value in the table, as it would be written.
    pub default: String,
    /// What the key does, with unit and range if the kind does not state them.
    pub meaning: &'static str,
    /// Whether only Touchline has this key and Centrifugo does not.
    pub is_ours: bool,
}
