//! Patterns of channel names and of origins, in the syntax that Centrifugo accepts.

use regex::{Regex, RegexBuilder};

/// The longest pattern, in bytes.
pub(crate) const PATTERN_MAX: usize = 1_024;
/// How much memory a compiled pattern may take, in bytes.
const COMPILED_SIZE: usize = 1 << 20;

/// A pattern. `*` and `**` match any run of characters, and `?` any one character. `[ab]` and `[a-z]` match one of
/// these characters, `[!ab]` one of all others. `{news,sport:*}` matches any of these patterns. A `\` before a
/// character takes its special meaning away.
#[derive(Debug)]
pub(crate) struct Glob(Regex);

impl Glob {
    /// Reads a pattern; None = it is not a pattern, or it is too long.
    pub(crate) fn parse(pattern: &str) -> Option<Self> {
        if pattern.len() > PATTERN_MAX {
            return None;
        }
        let expression = format!("^(?:{})$", translate(pattern)?);
        RegexBuilder::new(&expression).dot_matches_new_line(true).size_limit(COMPILED_SIZE).build().ok().map(Glob)
    }

    /// Whether the pattern matches the whole text.
    pub(crate) fn fits(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// Translates the pattern into a regular expression.
fn translate(pattern: &str) -> Option<String> {
    let mut expression = String::new();
    let mut depth = 0_u32;
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        match character {
            '*' if expression.ends_with(".*") => {}
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            '[' => expression.push_str(&class(&mut rest)?),
            '{' => {
                depth += 1;
                expression.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                expression.push(')');
            }
            ',' if depth > 0 => expression.push('|'),
            '\\' => push_literal(&mut expression, rest.next()?),
            character => push_literal(&mut expression, character),
        }
    }
    (depth == 0).then_some(expression)
}

/// Translates a set of characters, after its `[`.
fn class(rest: &mut std::str::Chars<'_>) -> Option<String> {
    let mut expression = "[".to_owned();
    let mut is_empty = true;
    loop {
        match rest.next()? {
            ']' => break,
            '!' if expression == "[" => expression.push('^'),
            '-' if !is_empty => expression.push('-'),
            '\\' => {
                push_literal(&mut expression, rest.next()?);
                is_empty = false;
            }
            character => {
                push_literal(&mut expression, character);
                is_empty = false;
            }
        }
    }
    expression.push(']');
    (!is_empty).then_some(expression)
}

fn push_literal(expression: &mut String, character: char) {
    expression.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_fits_what_it_stands_for() {
        for (pattern, fitting, others) in [
            ("chat:*", &["chat:", "chat:a", "chat:a:b"][..], &["chat", "xchat:a"][..]),
            ("**:a", &["chat:a", ":a", "x:y:a"], &["chat:b"]),
            ("chat:?", &["chat:a", "chat:é"], &["chat:", "chat:ab"]),
            ("chat:[ab]", &["chat:a", "chat:b"], &["chat:c", "chat:ab"]),
            ("chat:[a-c]", &["chat:b"], &["chat:d", "chat:-"]),
            ("chat:[!ab]", &["chat:c"], &["chat:a"]),
            ("{chat,plain}:a", &["chat:a", "plain:a"], &["chat,plain:a", "other:a"]),
            ("{chat:{a,b},x*}", &["chat:a", "chat:b", "x", "xyz"], &["chat:c"]),
            ("a.b+c(d)|e^$", &["a.b+c(d)|e^$"], &["axb+c(d)|e^$", "a.b"]),
            ("\\*\\[a,b}", &["*[a,b}"], &["x[a,b}"]),
            ("plain", &["plain"], &["plain ", "plai", "plain\n"]),
        ] {
            let glob = Glob::parse(pattern).expect("the pattern is good");
            assert!(fitting.iter().all(|text| glob.fits(text)), "{pattern}");
            assert!(!others.iter().any(|text| glob.fits(text)), "{pattern}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        let long = "a".repeat(PATTERN_MAX + 1);
        for bad in ["[", "[]", "[!]", "[a", "{a,b", "a\\", "[b-a]", &long] {
            assert!(Glob::parse(bad).is_none(), "{bad}");
        }
    }
}
