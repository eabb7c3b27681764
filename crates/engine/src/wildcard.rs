//! Patterns in which `*` stands for any run of characters, also for none.
//!
//! The time is linear in the lengths of pattern and text: each part of the pattern matches where it is found first, and
//! there is no backtracking. It is written by hand because `regex` and `globset` would need a compiled pattern for each
//! user: `{user}` stands for another text in each session.

use std::borrow::Cow;

/// Whether the whole text matches the pattern.
pub fn matches(pattern: &str, text: &str) -> bool {
    matches_parts(pattern.split('*').map(Cow::Borrowed), text)
}

/// Whether the whole text matches a pattern in which `variable` stands for `value`. The value is text: a `*` in it
/// stands for itself.
pub fn matches_with(pattern: &str, variable: &str, value: &str, text: &str) -> bool {
    let parts = pattern.split('*').map(|part| {
        if part.contains(variable) { Cow::Owned(part.replace(variable, value)) } else { Cow::Borrowed(part) }
    });
    matches_parts(parts, text)
}

/// Whether a text consists of these parts, in order, with any characters between them.
fn matches_parts<'p>(mut parts: impl Iterator<Item = Cow<'p, str>>, text: &str) -> bool {
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(&*first) else { return false };
    let Some(mut part) = parts.next() else { return rest.is_empty() };
    for next in parts {
        let Some(at) = rest.find(&*part) else { return false };
        rest = &rest[at + part.len()..];
        part = next;
    }
    rest.ends_with(&*part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: `*` matches nothing, or one character followed by `*` again.
    fn is_match(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            (['*', pattern_rest @ ..], _) => {
                is_match(pattern_rest, text) || text.split_first().is_some_and(|(_, rest)| is_match(pattern, rest))
            }
            ([wanted, pattern_rest @ ..], [found, rest @ ..]) => wanted == found && is_match(pattern_rest, rest),
            (_, []) => false,
        }
    }

    fn characters(text: &str) -> Vec<char> {
        text.chars().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn a_text_matches_by_the_definition(pattern in "[abé*]{0,8}", text in "[abé]{0,10}") {
            prop_assert_eq!(matches(&pattern, &text), is_match(&characters(&pattern), &characters(&text)));
        }

        /// A value is literal text: the equivalent pattern has an ordinary character for each `*` of the value.
        #[test]
        fn a_value_stands_for_itself(
            pattern in "[ab*]{0,4}(U[ab*]{0,3}){0,2}",
            value in "[ab*]{1,3}",
            text in "[ab*]{0,9}",
        ) {
            let literal = |text: &str| text.replace('*', "s");
            let expected = pattern.replace('U', &literal(&value));
            let is_expected = is_match(&characters(&expected), &characters(&literal(&text)));
            prop_assert_eq!(matches_with(&pattern, "U", &value, &text), is_expected);
        }
    }

    /// With backtracking this match would take exponential time.
    #[test]
    fn a_pattern_with_many_stars_ends() {
        let (pattern, text) = ("a*".repeat(20_000) + "b", "a".repeat(200_000));
        assert!(!matches(&pattern, &text));
        assert!(matches(&pattern, &(text + "b")));
    }
}
