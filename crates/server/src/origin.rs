//! Which pages may open connections: `client.allowed_origins`.

/// Why a page is refused, for the log.
pub(crate) const NOT_ALLOWED: &str = "the origin of the page is not in client.allowed_origins";

/// Whether a browser from `origin` may connect. A request without an Origin is no browser's; one from the server's own host is its own page.
pub(crate) fn is_allowed(origin: Option<&str>, host: Option<&str>, allowed: &[String]) -> bool {
    is_named(origin, host, allowed) || allowed.iter().any(|pattern| pattern == "*")
}

/// The same, but not because every page may.
pub(crate) fn is_named(origin: Option<&str>, host: Option<&str>, allowed: &[String]) -> bool {
    let Some(origin) = origin else { return true };
    let origin = origin.to_ascii_lowercase();
    let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
    if !authority.is_empty() && host.is_some_and(|host| host.eq_ignore_ascii_case(authority)) {
        return true;
    }
    allowed.iter().filter(|pattern| *pattern != "*").any(|pattern| matches(&pattern.to_ascii_lowercase(), &origin))
}

/// Whether the text fits a pattern in which `*` stands for any run of characters.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_checked_against_host_and_patterns() {
        let allowed = vec!["https://*.example.com".to_owned(), "http://localhost:3000".to_owned()];
        let cases = [
            (None, true),
            (Some("https://app.example.com"), true),
            (Some("https://APP.example.com"), true),
            (Some("http://localhost:3000"), true),
            (Some("http://localhost:30001"), false),
            (Some("https://example.com.evil.org"), false),
            (Some("https://live.test:8000"), true),
            (Some("null"), false),
        ];
        for (origin, expected) in cases {
            assert_eq!(is_allowed(origin, Some("live.test:8000"), &allowed), expected, "{origin:?}");
        }
        assert!(is_allowed(Some("https://anything"), None, &["*".to_owned()]));
        assert!(!is_named(Some("https://anything"), None, &["*".to_owned()]));
        assert!(is_named(Some("https://anything"), None, &["*".to_owned(), "https://any*".to_owned()]));
    }

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, expected) in [
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("*", "", true),
            ("news", "news1", false),
            ("*:live", "match:live", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
