//! The id of a request of the server API. The answer and the log line of a refusal repeat it.

use hyper::header::{HeaderName, HeaderValue};

/// The header of a request and of its answer.
pub(crate) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is accepted from a caller, in bytes.
pub(crate) const REQUEST_ID_LEN_MAX: usize = 128;

/// Returns the id that the caller sent, if it is 1 to [`REQUEST_ID_LEN_MAX`] visible ASCII characters, and otherwise a
/// new one.
pub(crate) fn request_id(sent: Option<&HeaderValue>) -> HeaderValue {
    sent.filter(|id| is_good(id.as_bytes())).cloned().unwrap_or_else(fresh)
}

fn is_good(id: &[u8]) -> bool {
    (1..=REQUEST_ID_LEN_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

/// Returns a new id of 16 hexadecimal digits. It is not secret, and two ids are equal only by chance.
fn fresh() -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut random = fastrand::u64(..);
    let mut text = [0; 16];
    for digit in &mut text {
        *digit = DIGITS[(random & 15) as usize];
        random >>= 4;
    }
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_id_is_kept_and_any_other_is_replaced() {
        let id_of = |sent: &[u8]| request_id(Some(&HeaderValue::from_bytes(sent).expect("a value")));
        let longest = "~".repeat(REQUEST_ID_LEN_MAX);
        for good in ["1", "7f3a-4711/\"x\"", &longest] {
            assert_eq!(id_of(good.as_bytes()), good);
        }
        for bad in [&b""[..], b"a b", b"a\tb", "\u{e9}".as_bytes(), &[b'x'; REQUEST_ID_LEN_MAX + 1]] {
            let id = id_of(bad);
            assert!(id.len() == 16 && id.as_bytes().iter().all(u8::is_ascii_hexdigit), "{id:?}");
        }
        assert_ne!(request_id(None), request_id(None));
    }
}
