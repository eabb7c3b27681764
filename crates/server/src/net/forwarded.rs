//! The header fields of a client's request that hooks pass on to a backend. A connection keeps only these.

use std::sync::Arc;

use hyper::header::{COOKIE, HeaderName, HeaderValue};

use super::headers::Headers;

/// Header fields of a client's request.
pub(crate) type ForwardedHeaders = Arc<[(HeaderName, HeaderValue)]>;

/// The fields of these names, all values of each. None = the request has none of them.
pub(crate) fn forwarded(names: &[HeaderName], headers: &impl Headers) -> Option<ForwardedHeaders> {
    if names.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for name in names {
        if *name == COOKIE {
            found.extend(cookie(headers).map(|value| (COOKIE, value)));
            continue;
        }
        let values = headers.values(name).filter_map(|value| HeaderValue::from_bytes(value).ok());
        found.extend(values.map(|value| (name.clone(), value)));
    }
    (!found.is_empty()).then(|| found.into())
}

/// The cookies in one field: HTTP/2 may bring them in several (RFC 9113 section 8.2.3). None = there are none.
fn cookie(headers: &impl Headers) -> Option<HeaderValue> {
    let fields: Vec<&[u8]> = headers.values(&COOKIE).collect();
    HeaderValue::from_bytes(&fields.join(&b"; "[..])).ok().filter(|_| !fields.is_empty())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;

    use super::*;

    #[test]
    fn all_values_are_kept_and_cookies_are_joined() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("cookie", "a=1"), ("x-a", "1"), ("x-a", "2"), ("x-b", "3"), ("cookie", "b=2")] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let names = ["cookie", "x-a", "x-none"].map(HeaderName::from_static);
        let found = forwarded(&names, &headers).expect("it has some");
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(found, [("cookie", &b"a=1; b=2"[..]), ("x-a", b"1"), ("x-a", b"2")]);
        assert!(forwarded(&names[2..], &headers).is_none() && forwarded(&[], &headers).is_none());
    }
}
