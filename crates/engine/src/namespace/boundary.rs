//! Splits the names of channels at their boundaries.

/// Splits a name at the first boundary. An empty boundary does not occur. The search for one character costs a quarter
/// of the search for a text.
pub(super) fn split_once<'n>(name: &'n str, boundary: &str) -> Option<(&'n str, &'n str)> {
    match boundary.as_bytes() {
        [] => None,
        [byte] => name.split_once(char::from(*byte)),
        _ => name.split_once(boundary),
    }
}

/// The same at the last boundary.
pub(super) fn rsplit_once<'n>(name: &'n str, boundary: &str) -> Option<(&'n str, &'n str)> {
    match boundary.as_bytes() {
        [] => None,
        [byte] => name.rsplit_once(char::from(*byte)),
        _ => name.rsplit_once(boundary),
    }
}
