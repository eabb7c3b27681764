//! The versions of the server API, and how `Accept` chooses one.

use hyper::header::{ACCEPT, HeaderMap};

use crate::transport::http::respond::JSON;

/// A version of the server API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ApiVersion {
    /// The number of the version, from 1.
    pub(crate) number: u16,
    /// The media type by which a caller names this version: `application/vnd.touchline.v<number>+json`.
    pub(crate) media_type: &'static str,
    /// A caller that names no version gets the newest stable one.
    is_stable: bool,
}

/// The first version of the server API.
pub(crate) const V1: ApiVersion =
    ApiVersion { number: 1, media_type: "application/vnd.touchline.v1+json", is_stable: true };

/// A version that only the tests of this crate have.
#[cfg(test)]
pub(crate) const V2: ApiVersion =
    ApiVersion { number: 2, media_type: "application/vnd.touchline.v2+json", is_stable: false };

/// All versions that this server supports, the newest first.
pub(crate) const VERSIONS: &[ApiVersion] = &[
    #[cfg(test)]
    V2,
    V1,
];

/// The newest stable version.
pub(crate) const NEWEST: ApiVersion = newest_stable(VERSIONS);

const fn newest_stable(versions: &[ApiVersion]) -> ApiVersion {
    let mut index = 0;
    while !versions[index].is_stable {
        index += 1;
    }
    versions[index]
}

/// The form of an answer: a version, and the content type that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ApiForm {
    pub(crate) version: u16,
    pub(crate) content_type: &'static str,
}

/// The form for a caller that names no version.
pub(crate) const UNNAMED: ApiForm = ApiForm { version: NEWEST.number, content_type: JSON };

/// Returns the version of this number; None = this server does not support it.
pub(crate) fn known(number: u16) -> Option<&'static ApiVersion> {
    VERSIONS.iter().find(|version| version.number == number)
}

/// Returns the form that `Accept` asks for (RFC 9110, section 12.5.1); None = it allows no form of this server.
///
/// The form with the highest weight wins. If a named version and JSON have the same weight, the version wins. Of
/// several named versions the newest wins.
pub(crate) fn negotiate(headers: &HeaderMap) -> Option<ApiForm> {
    // Almost no caller sends the field.
    if !headers.contains_key(ACCEPT) {
        return Some(UNNAMED);
    }
    let mut weights = AcceptWeights::default();
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        weights.note(range);
    }
    weights.chosen()
}

/// The weight of each form for a caller, in thousandths; None = no range matches the form.
#[derive(Default)]
struct AcceptWeights {
    /// By the most specific range: `application/json`, `application/*`, `*/*`.
    json: [Option<u16>; 3],
    versions: [Option<u16>; VERSIONS.len()],
}

impl AcceptWeights {
    /// Notes one range, such as `application/json;q=0.5`. A malformed range is ignored.
    fn note(&mut self, range: &str) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let is_weight = |part: &str| part.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("q="));
        let Some(weight) = parts.find(|part| is_weight(part)).map_or(Some(1_000), |part| weight(&part[2..])) else {
            return;
        };
        let place = match name {
            _ if name.eq_ignore_ascii_case(JSON) => &mut self.json[0],
            _ if name.eq_ignore_ascii_case("application/*") => &mut self.json[1],
            "*/*" => &mut self.json[2],
            _ => match VERSIONS.iter().position(|version| version.media_type.eq_ignore_ascii_case(name)) {
                Some(index) => &mut self.versions[index],
                None => return,
            },
        };
        *place = Some(place.unwrap_or(0).max(weight));
    }

    fn chosen(&self) -> Option<ApiForm> {
        let json = self.json.iter().flatten().next().map(|weight| (*weight, UNNAMED));
        let named = std::iter::zip(&self.versions, VERSIONS).filter_map(|(weight, version)| {
            Some(((*weight)?, ApiForm { version: version.number, content_type: version.media_type }))
        });
        // Of equal weights the last wins: JSON, then the versions from the oldest to the newest.
        let all = json.into_iter().chain(named.rev());
        all.filter(|(weight, _)| *weight > 0).max_by_key(|(weight, _)| *weight).map(|(_, form)| form)
    }
}

/// Reads a weight such as `0`, `0.5` or `1.000`, in thousandths; None = it is malformed.
fn weight(text: &str) -> Option<u16> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    if rest.len() > 3 || !rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = rest.bytes().map(|digit| u16::from(digit - b'0')).chain([0; 3]).take(3);
    let thousandths = digits.fold(0, |sum, digit| sum * 10 + digit);
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn asked(accepts: &[&str]) -> Option<ApiForm> {
        let mut headers = HeaderMap::new();
        for accept in accepts {
            headers.append(ACCEPT, HeaderValue::from_bytes(accept.as_bytes()).expect("a value"));
        }
        negotiate(&headers)
    }

    #[test]
    fn every_version_is_named_by_its_number_and_the_newest_comes_first() {
        for version in VERSIONS {
            assert_eq!(version.media_type, format!("application/vnd.touchline.v{}+json", version.number));
        }
        assert!(VERSIONS.is_sorted_by(|one, next| one.number > next.number));
        assert_eq!((NEWEST, UNNAMED.version), (V1, 1), "what is not stable is given only by name");
        assert_eq!((known(1), known(3)), (Some(&V1), None));
    }

    #[test]
    fn a_caller_gets_what_it_weighs_highest() {
        let v1 = Some(ApiForm { version: 1, content_type: V1.media_type });
        let v2 = Some(ApiForm { version: 2, content_type: V2.media_type });
        let json = Some(UNNAMED);
        for (accept, expected) in [
            ("*/*", json),
            ("application/json", json),
            ("Application/JSON; charset=utf-8", json),
            ("application/*", json),
            ("application/json, text/plain, */*", json),
            ("text/html, */*;q=0.1", json),
            ("application/vnd.touchline.v1+json", v1),
            ("APPLICATION/VND.Touchline.V1+JSON", v1),
            (" application/vnd.touchline.v1+json ; q=1.000 ", v1),
            ("application/vnd.touchline.v2+json", v2),
            ("application/vnd.touchline.v1+json, application/vnd.touchline.v2+json", v2),
            ("application/vnd.touchline.v1+json, application/vnd.touchline.v2+json;q=0.9", v1),
            ("application/json, application/vnd.touchline.v1+json", v1),
            ("application/json;Q=1, application/vnd.touchline.v1+json;q=0.999", json),
            ("application/vnd.touchline.v3+json, application/json;q=0.1", json),
            ("application/vnd.touchline.v3+json, application/vnd.touchline.v1+json;q=0.001", v1),
            ("*/*;q=0.5, application/json;q=0", None),
            ("application/vnd.touchline.v3+json", None),
            ("application/vnd.touchline.v01+json", None),
            ("application/vnd.touchline.v1", None),
            ("application/vnd.touchline.v1+json;q=0", None),
            ("application/json;q=2", None),
            ("application/json;q=0.0001", None),
            ("application/json;q=", None),
            ("text/plain", None),
            ("", None),
            (",;,q=1", None),
            ("\u{e9}", None),
        ] {
            assert_eq!(asked(&[accept]), expected, "{accept}");
        }
        assert_eq!(asked(&["text/html", "application/vnd.touchline.v1+json"]), v1, "several fields are one list");
        assert_eq!(asked(&["*/*", "application/vnd.touchline.v2+json"]), v2);
        assert_eq!(asked(&[]), json);
    }
}
