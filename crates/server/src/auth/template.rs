//! Endpoints with placeholders for named groups of a pattern, such as `https://id.example/{{realm}}/keys`. The texts
//! that a group can match are known before any token is seen, and so are the addresses. A token chooses among them, and
//! cannot add one.

use regex::Regex;
use regex_syntax::hir::literal::Extractor;
use regex_syntax::hir::{Hir, HirKind};

/// The most addresses that one endpoint may stand for.
const ADDRESSES_MAX: usize = 64;

/// Returns the groups that an endpoint names, in their order, each once.
pub(super) fn names_of(endpoint: &str) -> Result<Vec<String>, &'static str> {
    let mut names: Vec<String> = Vec::new();
    let mut rest = endpoint;
    while let Some((_, behind)) = rest.split_once("{{") {
        let (name, after) =
            behind.split_once("}}").ok_or("a placeholder of the address begins with {{ and does not end")?;
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
        rest = after;
    }
    if rest.contains("}}") { Err("a placeholder of the address ends with }} and does not begin") } else { Ok(names) }
}

/// Returns every address that an endpoint stands for, with the values of its groups in the order of `names`.
///
/// # Errors
/// When a group is in none of the patterns, or can match more than a few fixed texts.
pub(super) fn addresses(
    endpoint: &str,
    names: &[String],
    patterns: &[&Regex],
) -> Result<Vec<(Vec<String>, String)>, &'static str> {
    let mut all = vec![(Vec::new(), endpoint.to_owned())];
    for name in names {
        let texts = patterns.iter().find_map(|pattern| texts_of(pattern, name)).ok_or(
            "a group of the address is not in issuer_regex or audience_regex, or is not an alternation of fixed texts \
             of letters, digits and -._~",
        )?;
        all = all
            .into_iter()
            .flat_map(|(values, address): (Vec<String>, String)| {
                let with = |text: &String| {
                    let values = values.iter().chain([text]).cloned().collect();
                    (values, address.replace(&format!("{{{{{name}}}}}"), text))
                };
                texts.iter().map(with).collect::<Vec<_>>()
            })
            .collect();
        if all.len() > ADDRESSES_MAX {
            return Err("the endpoint stands for more than 64 addresses");
        }
    }
    Ok(all)
}

/// Returns the texts that a group of a pattern can match; None = the pattern has no such group, or the group can match
/// more than a few texts that are safe in an address.
fn texts_of(pattern: &Regex, name: &str) -> Option<Vec<String>> {
    let whole = regex_syntax::parse(pattern.as_str()).ok()?;
    let literals = Extractor::new().extract(group(&whole, name)?);
    let literals = literals.literals().filter(|literals| literals.iter().all(|literal| literal.is_exact()))?;
    let texts = literals.iter().map(|literal| String::from_utf8(literal.as_bytes().to_vec()).ok());
    texts.collect::<Option<Vec<_>>>().filter(|texts| !texts.is_empty() && texts.iter().all(|text| is_safe(text)))
}

/// Returns the expression of a named group.
fn group<'h>(hir: &'h Hir, name: &str) -> Option<&'h Hir> {
    match hir.kind() {
        HirKind::Capture(capture) if capture.name.as_deref() == Some(name) => Some(&capture.sub),
        HirKind::Capture(capture) => group(&capture.sub, name),
        HirKind::Repetition(repetition) => group(&repetition.sub, name),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().find_map(|part| group(part, name)),
        _ => None,
    }
}

/// Whether a text stands for itself in the path or the host of an address, and does not change the rest of the address.
fn is_safe(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    !text.is_empty() && text.bytes().all(is_plain) && text != "." && text != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(endpoint: &str, patterns: &[&str]) -> Result<Vec<String>, &'static str> {
        let patterns: Vec<Regex> = patterns.iter().map(|pattern| Regex::new(pattern).expect("a pattern")).collect();
        let names = names_of(endpoint)?;
        let all = addresses(endpoint, &names, &patterns.iter().collect::<Vec<_>>())?;
        Ok(all.into_iter().map(|(_, address)| address).collect())
    }

    #[test]
    fn an_endpoint_stands_for_what_its_groups_can_match() {
        let realm = "https://id\\.example/(?P<realm>one|two|one-b)";
        assert_eq!(expanded("https://id/keys", &[]).as_deref(), Ok(&["https://id/keys".to_owned()][..]));
        let mut all = expanded("https://id/{{realm}}/{{realm}}", &[realm]).expect("fixed texts");
        all.sort();
        assert_eq!(all, ["https://id/one-b/one-b", "https://id/one/one", "https://id/two/two"]);
        let both = expanded("https://{{host}}/{{realm}}", &[realm, "(?P<host>a|b)"]).expect("fixed texts");
        assert_eq!(both.len(), 6);
        assert!(both.contains(&"https://b/one-b".to_owned()), "{both:?}");
    }

    #[test]
    fn a_group_that_can_match_anything_else_is_refused() {
        for pattern in [
            "(?P<other>a)",
            "(?P<realm>.*)",
            "(?P<realm>[a-z]+)",
            "(?P<realm>a+)",
            "(?P<realm>\\w)",
            "(?P<realm>)",
            "(?P<realm>a|)",
            "(?P<realm>a/b)",
            "(?P<realm>\\.\\.)",
            "(?P<realm>a|\\.)",
            "(?P<realm>a%2f)",
            "(?P<realm>é)",
        ] {
            assert!(expanded("https://id/{{realm}}", &[pattern]).is_err(), "{pattern}");
        }
        let many: Vec<String> = (0..=ADDRESSES_MAX).map(|number| format!("r{number}x")).collect();
        assert!(expanded("https://id/{{realm}}", &[&format!("(?P<realm>{})", many.join("|"))]).is_err());
        for endpoint in ["https://id/{{realm", "https://id/realm}}"] {
            assert!(expanded(endpoint, &["(?P<realm>a)"]).is_err(), "{endpoint}");
        }
    }
}
