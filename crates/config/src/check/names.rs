//! Checks names of namespaces, backends, methods and header fields.

/// Whether a text is a valid name of a namespace. The rule is that of Centrifugo, so that a name is valid on both
/// servers.
pub(super) fn is_namespace_name(name: &str) -> bool {
    name.len() >= 2 && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Whether a text is a valid name of a header field, which is a token of HTTP (RFC 9110 section 5.6.2).
pub(super) fn is_field_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_names_are_those_of_centrifugo() {
        for (name, expected) in [
            ("match", true),
            ("a.b-c_1", true),
            ("a", false),
            ("", false),
            ("a b", false),
            ("чат", false),
            ("a:b", false),
        ] {
            assert_eq!(is_namespace_name(name), expected, "{name}");
        }
    }
}
