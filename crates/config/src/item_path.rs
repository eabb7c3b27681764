//! How findings name an item of a list that may contain secrets.

/// Maximum bytes of a name that is shown.
const NAME_SHOWN_MAX: usize = 64;

/// Whether a text is a valid name of an issuer, a key of the server API, a consumer or an endpoint of events. Names of
/// issuers follow Centrifugo's rule; names of keys are label values in metrics.
pub(crate) fn is_key_name(name: &str) -> bool {
    name.len() >= 2 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The path of a list item for a finding. It contains the item's name, or its number if the name is not valid, because
/// it could be a secret in the wrong place.
pub(crate) fn item_path(list: &str, index: usize, name: &str) -> String {
    if is_key_name(name) && name.len() <= NAME_SHOWN_MAX {
        format!("{list}[{name}]")
    } else {
        format!("{list}[{index}]")
    }
}
