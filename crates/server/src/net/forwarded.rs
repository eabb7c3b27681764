//! The header fields of a client's request that the node keeps: the fields that hooks forward to a backend, and the
//! user that a trusted proxy names.

use std::sync::Arc;

use hyper::header::{COOKIE, HeaderName, HeaderValue};

use touchline_protocol::fact::is_name;

use super::headers::Headers;
use super::proxies::Proxies;
use super::remote::Remote;

/// Header fields of a client's request, each with its name and value.
pub(crate) type ForwardedHeaders = Arc<[(HeaderName, HeaderValue)]>;

/// Which header fields of requests the node keeps.
#[derive(Debug, Default)]
pub(crate) struct KeptFields {
    /// The names of the fields that hooks forward.
    pub(crate) forwarded: Vec<HeaderName>,
    /// The name of the field in which a trusted proxy names the user; None = no proxy names users.
    pub(crate) user: Option<HeaderName>,
}

/// What the node keeps of a client's request.
#[derive(Debug, Default)]
pub(crate) struct RequestFields {
    pub(crate) forwarded: Option<ForwardedHeaders>,
    /// The user that a trusted proxy names; None = no proxy has named one.
    pub(crate) user: Option<String>,
}

impl KeptFields {
    /// Reads what the node keeps of a request with these headers. `peer`: the program at the other end of the
    /// connection, which may be a proxy.
    pub(crate) fn of(&self, peer: Remote, proxies: &Proxies, headers: &impl Headers) -> RequestFields {
        let user = self.user.as_ref().filter(|_| proxies.may_speak(peer));
        RequestFields {
            forwarded: forwarded(&self.forwarded, headers),
            user: user.and_then(|name| only_value(name, headers)),
        }
    }
}

/// The value of a field that is present exactly once. None = it is missing, empty or present twice, or it cannot be a
/// user. Then the proxy has named no user, and another value may come from the client itself.
fn only_value(name: &HeaderName, headers: &impl Headers) -> Option<String> {
    let mut values = headers.values(name);
    let (first, second) = (values.next()?, values.next());
    // Only characters that are not part of a field's value (RFC 9110 section 5.5) are removed. Other white space may be
    // part of the user.
    let user = std::str::from_utf8(first).ok()?.trim_matches([' ', '\t']);
    (second.is_none() && is_name(user)).then(|| user.to_owned())
}

/// The fields with these names, with all values of each; None = the request has none of them.
fn forwarded(names: &[HeaderName], headers: &impl Headers) -> Option<ForwardedHeaders> {
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

/// Joins the cookies into one field, because HTTP/2 may send them in several (RFC 9113 section 8.2.3). None = there are
/// none.
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

    #[test]
    fn only_a_trusted_proxy_names_the_user_and_only_once() {
        let kept = KeptFields { forwarded: Vec::new(), user: Some(HeaderName::from_static("x-user")) };
        let proxies = Proxies::parse(&["10.0.0.0/8".to_owned()]).expect("a network");
        let user = |peer: &str, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-user", HeaderValue::from_bytes(value.as_bytes()).expect("it is a value"));
            }
            let address = peer.parse().expect("an address");
            for introduced in [Remote::unknown_behind(address), Remote::introduced_by(address, address)] {
                assert_eq!(kept.of(introduced, &proxies, &headers).user, None, "the client has written the field");
            }
            kept.of(Remote::of(address), &proxies, &headers).user
        };
        assert_eq!(user("10.1.2.3", &["ann"]).as_deref(), Some("ann"));
        assert_eq!(user("10.1.2.3", &[" \té "]).as_deref(), Some("é"));
        assert_eq!(user("10.1.2.3", &["\u{a0}ann\u{2003}"]).as_deref(), Some("\u{a0}ann\u{2003}"), "kept exactly");
        assert_eq!(user("10.1.2.3", &["\u{85}ann"]), None, "a control character");
        assert_eq!(user("11.1.2.3", &["ann"]), None, "it is not a proxy");
        for values in [&[][..], &[""], &["ann", "bob"], &["ann", "ann"], &["a\tb"]] {
            assert_eq!(user("10.1.2.3", values), None, "{values:?}");
        }
    }
}
