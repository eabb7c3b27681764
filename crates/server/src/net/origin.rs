//! The pages that may open connections: `client.allowed_origins`.

use crate::net::glob::Glob;

/// Why a page is refused, for the log.
pub(crate) const NOT_ALLOWED: &str = "the origin of the page is not in client.allowed_origins";

/// The origins in `client.allowed_origins`: patterns that are read once.
#[derive(Debug)]
pub(crate) struct Origins {
    /// Whether `*` is among them, so that every page may connect.
    is_any: bool,
    named: Vec<Glob>,
}

/// A text that is not a valid pattern of origins.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a pattern of origins: `*`, `?`, `[ab]` and `{{a,b}}` match other text; close every bracket")]
pub struct BadOrigin(String);

impl Origins {
    /// Reads the patterns.
    ///
    /// # Errors
    /// The first text that is not a valid pattern.
    pub(crate) fn parse(allowed: &[String]) -> Result<Self, BadOrigin> {
        let named = allowed.iter().filter(|pattern| *pattern != "*");
        let named = named
            .map(|pattern| Glob::parse(&canonical(pattern)).ok_or_else(|| BadOrigin(pattern.clone())))
            .collect::<Result<_, _>>()?;
        Ok(Origins { is_any: allowed.iter().any(|pattern| pattern == "*"), named })
    }

    /// Whether a browser with this `origin` may connect. A request without an Origin does not come from a browser. A
    /// request from the server's own host comes from its own page.
    pub(crate) fn allow(&self, origin: Option<&str>, host: Option<&str>) -> bool {
        self.is_any || self.name(origin, host)
    }

    /// Whether a request without an Origin may be served, according to its Sec-Fetch-Site. A browser omits the Origin
    /// when a page embeds an address as if it were an image. Such a request may only come from the server's own pages.
    /// Programs that are not browsers send no Sec-Fetch-Site.
    pub(crate) fn allow_unnamed(&self, site: Option<&str>) -> bool {
        self.is_any || site.is_none_or(|site| matches!(site, "same-origin" | "none"))
    }

    /// The same as [`Origins::allow`], without regard to `*`.
    pub(crate) fn name(&self, origin: Option<&str>, host: Option<&str>) -> bool {
        let Some(origin) = origin else { return true };
        let origin = origin.to_ascii_lowercase();
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        if !authority.is_empty() && host.is_some_and(|host| host.eq_ignore_ascii_case(authority)) {
            return true;
        }
        self.named.iter().any(|pattern| pattern.fits(&origin))
    }
}

/// A pattern in the form in which browsers write origins: in lower case, and without the default port of its scheme.
fn canonical(pattern: &str) -> String {
    let pattern = pattern.to_ascii_lowercase();
    let port = if pattern.starts_with("https:") { ":443" } else { ":80" };
    pattern.strip_suffix(port).map(str::to_owned).unwrap_or(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins(allowed: &[&str]) -> Origins {
        Origins::parse(&allowed.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>())
            .expect("the patterns are good")
    }

    #[test]
    fn origins_are_checked_against_host_and_patterns() {
        let allowed = origins(&[
            "https://*.example.com",
            "http://localhost:3000",
            "https://{app,www}.shop.test:443",
            "http://plain.test:80",
            "https://shop-?.test",
            "https://[ab].test",
        ]);
        let cases = [
            (None, true),
            (Some("https://app.example.com"), true),
            (Some("https://APP.example.com"), true),
            (Some("http://localhost:3000"), true),
            (Some("http://localhost:30001"), false),
            (Some("https://example.com.evil.org"), false),
            (Some("https://live.test:8000"), true),
            (Some("null"), false),
            (Some("https://app.shop.test"), true),
            (Some("https://www.shop.test"), true),
            (Some("https://api.shop.test"), false),
            (Some("http://plain.test"), true),
            (Some("https://shop-1.test"), true),
            (Some("https://shop-12.test"), false),
            (Some("https://a.test"), true),
            (Some("https://c.test"), false),
        ];
        for (origin, expected) in cases {
            assert_eq!(allowed.allow(origin, Some("live.test:8000")), expected, "{origin:?}");
        }
        for (site, expected) in
            [(None, true), (Some("none"), true), (Some("same-origin"), true), (Some("cross-site"), false)]
        {
            assert_eq!(allowed.allow_unnamed(site), expected, "{site:?}");
        }
        assert!(!allowed.allow_unnamed(Some("same-site")) && origins(&["*"]).allow_unnamed(Some("cross-site")));
        assert!(origins(&["*"]).allow(Some("https://anything"), None));
        assert!(!origins(&["*"]).name(Some("https://anything"), None));
        assert!(origins(&["*", "https://any*"]).name(Some("https://anything"), None));
        assert_eq!(Origins::parse(&["https://{a".into()]).err(), Some(BadOrigin("https://{a".into())));
    }
}
