//! Paths that the settings may change.

/// A configured path; `default` when it is empty.
pub(crate) fn prefix<'a>(configured: &'a str, default: &'a str) -> &'a str {
    if configured.is_empty() { default } else { configured }
}
