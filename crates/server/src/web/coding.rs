//! Which coding of an answer a client accepts (RFC 9110 section 12.5.3).

use hyper::header::{ACCEPT_ENCODING, HeaderMap};

/// Whether a client accepts gzip: the field names it, or `*`, with a weight that is not 0.
pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let (mut gzip, mut any) = (None, None);
    for value in headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()) {
        for entry in value.split(',') {
            let (coding, parameters) = entry.split_once(';').unwrap_or((entry, ""));
            let is_wanted = !is_weightless(parameters);
            match coding.trim() {
                "*" => any = Some(is_wanted),
                name if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => {
                    gzip = Some(is_wanted)
                }
                _ => {}
            }
        }
    }
    gzip.or(any).unwrap_or(false)
}

/// Whether the parameters of a coding give it the weight 0, which means that it is not accepted.
fn is_weightless(parameters: &str) -> bool {
    let weight = parameters.trim().split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    weight.is_some_and(|(_, weight)| weight.trim().parse().is_ok_and(|weight: f32| weight == 0.0))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn gzip_is_accepted_where_it_or_everything_is_named_with_a_weight() {
        let cases = [
            (&["gzip, deflate, br"][..], true),
            (&["br", "x-gzip;q=0.5"], true),
            (&["GZIP ; q=1.000"], true),
            (&["*"], true),
            (&["*;q=0"], false),
            (&["gzip;q=0, *"], false),
            (&["gzip;q=0.000"], false),
            (&["identity"], false),
            (&["gzipped"], false),
            (&[""], false),
            (&[], false),
        ];
        for (values, expected) in cases {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            assert_eq!(accepts_gzip(&headers), expected, "{values:?}");
        }
    }
}
