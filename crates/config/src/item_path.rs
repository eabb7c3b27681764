//! How an item of a list with secrets is called in what is said of a configuration.

/// Longest name that is shown, bytes.
const NAME_SHOWN_MAX: usize = 64;

/// The names of issuers, as Centrifugo has them, and of keys of the server API, which are values in metrics.
pub(crate) fn is_key_name(name: &str) -> bool {
    name.len() >= 2 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The item with this number and this name: by its name, or by its number where the name cannot be one, because it may
/// be a secret in the wrong place.
pub(crate) fn item_path(list: &str, index: usize, name: &str) -> String {
    if is_key_name(name) && name.len() <= NAME_SHOWN_MAX {
        format!("{list}[{name}]")
    } else {
        format!("{list}[{index}]")
    }
}
