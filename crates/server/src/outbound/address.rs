//! The address of another server: how it is shown, and the user that it contains.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::HeaderValue;

/// An address without query string and password.
pub(crate) fn shown_address(uri: &Uri) -> String {
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{}://{host}{}", uri.scheme_str().unwrap_or_default(), uri.path())
}

/// The `Authorization` header (RFC 7617) for an address with a user and a password; None = it has none.
pub(crate) fn basic_authorization(uri: &Uri) -> Option<HeaderValue> {
    let (user, _) = uri.authority()?.as_str().rsplit_once('@')?;
    // In a form, a plus is a space and an ampersand separates; here both are ordinary characters.
    let form = format!("user={}", user.replace('+', "%2B").replace('&', "%26").replace(';', "%3B"));
    let (_, user) = form_urlencoded::parse(form.as_bytes()).next()?;
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(user.as_bytes()))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_an_address_is_sent_as_authorization() {
        for (address, expected) in [
            ("http://b/x", None),
            ("http://ann:se%63ret@b/x", Some("Basic YW5uOnNlY3JldA==")),
            ("http://a+b:c%26d@b", Some("Basic YStiOmMmZA==")),
        ] {
            let uri = address.parse().expect("an address");
            let value = basic_authorization(&uri);
            assert_eq!(value.as_ref().map(|value| value.to_str().expect("ASCII")), expected, "{address}");
        }
    }
}
