//! The header fields of a request, whether hyper or the shard itself has parsed it.

use hyper::header::{HeaderMap, HeaderName};

/// How many header fields a request may have.
pub(crate) const HEADERS_MAX: usize = 64;

/// Access to the header fields of a request.
pub(crate) trait Headers {
    /// The values of a field, in order.
    fn values<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]>;

    /// The first value of a field; None = the field is missing.
    fn value<'a>(&'a self, name: &HeaderName) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// Whether a comma-separated field contains a token, in any case.
    fn has_token(&self, name: &HeaderName, token: &str) -> bool {
        self.values(name)
            .flat_map(|value| value.split(|byte| *byte == b','))
            .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }
}

impl Headers for HeaderMap {
    fn values<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        self.get_all(name).iter().map(|value| value.as_bytes())
    }
}

impl Headers for &[httparse::Header<'_>] {
    fn values<'a>(&'a self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        let name = name.as_str();
        self.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{CONNECTION, UPGRADE};

    use super::*;

    #[test]
    fn tokens_are_found_in_lists() {
        let headers = [httparse::Header { name: "Connection", value: b"keep-alive, Upgrade" }];
        let headers = &headers[..];
        assert!(headers.has_token(&CONNECTION, "upgrade"));
        assert!(!headers.has_token(&CONNECTION, "up"));
        assert!(!headers.has_token(&UPGRADE, "websocket"));
    }
}
