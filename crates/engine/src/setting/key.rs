//! What is known of a key.

/// What a key's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// True or false.
    Boolean,
    /// A whole number within bounds, both included.
    Integer(u64, u64),
    /// The same, or empty: none.
    Optional(u64, u64),
    /// A time such as `25s`.
    Duration,
    /// Any text.
    Text,
    /// The path of requests that something is served at. Empty text stands for the default.
    Path,
    /// Text that is never shown.
    Secret,
    /// A public key in PEM.
    Pem,
    /// A regular expression.
    Pattern,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// Texts by name.
    StringMap,
    /// Refusals by status of HTTP.
    Transforms,
    /// Claims of tokens that become fields of something else.
    ClaimPaths,
    /// A list of rates: tables with `interval` and `rate`.
    Buckets,
    /// A list of tables with a name in this field, `enabled` and `buckets`.
    Overrides(&'static str),
    /// Tables with `enabled` and `buckets`, by name.
    OverrideTable,
}

/// Any count of things.
pub const COUNT: ValueKind = ValueKind::Integer(0, u32::MAX as u64);
/// A count of which there must be some.
pub const SOME: ValueKind = ValueKind::Integer(1, u32::MAX as u64);

impl ValueKind {
    /// The name of the kind, for errors.
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
    /// Its dotted path below the table.
    pub path: String,
    /// What its value must be.
    pub kind: ValueKind,
    /// The value of the table that was asked, as it would be written.
    pub default: String,
    /// What it does, with unit and range where the kind does not say them.
    pub meaning: &'static str,
    /// Whether Centrifugo has no such key.
    pub is_ours: bool,
}
