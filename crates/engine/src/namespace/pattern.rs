//! A regular expression as a string in the configuration; empty = none.

use regex::Regex;

use crate::go_regex::of_go;
use crate::setting::{Misfit, SettingValue, ValueKind, WrittenValue};

impl SettingValue for Option<Regex> {
    type Literal = Option<Regex>;
    const KIND: ValueKind = ValueKind::Pattern;

    fn of(literal: Self::Literal) -> Self {
        literal
    }

    fn read(_: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        match written {
            WrittenValue::Text("") => Ok(None),
            WrittenValue::Text(text) => {
                compile(text).map(Some).map_err(|error| Some(format!("a faulty one ({})", reason(&error.to_string()))))
            }
            _ => Err(None),
        }
    }

    fn show(&self) -> String {
        self.as_ref().map(|regex| regex.as_str().to_owned()).unwrap_or_default()
    }
}

/// The last line of an expression's error text, which is the reason.
fn reason(error: &str) -> &str {
    let last = error.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last)
}

/// Compiles an expression with the meaning that it has in Go.
///
/// # Errors
/// The expression is not valid, or has a meaning in Go that is not supported here.
fn compile(text: &str) -> Result<Regex, regex::Error> {
    Regex::new(&of_go(text).map_err(regex::Error::Syntax)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of channel names after the namespace.
    const NAMES: [&str; 20] = [
        "42",
        "\u{663}\u{664}",
        "news-1",
        "чат",
        "a.b",
        "é",
        "a b",
        "a\u{a0}b",
        "K",
        "\u{17f}",
        "Σ",
        "ς",
        "<b>",
        "]",
        "日本",
        "-",
        "\u{212a}",
        "a_b",
        "日a",
        "!",
    ];

    #[test]
    fn an_expression_admits_the_names_that_it_admits_in_go() {
        // The results of Go 1.26's `regexp.MatchString` for each of these names: x = the expression matches the name.
        for (expression, expected) in [
            (r"^\d+$", "x..................."),
            (r"^\D+$", ".x.xxxxxxxxxxxxxxxxx"),
            (r"^[\w-]+$", "x.x.....x......x.x.."),
            (r"^[^\w]+$", ".x.x.x...xxx.xxxx..x"),
            (r"^\W+$", ".x.x.x...xxx.xxxx..x"),
            (r"^[\W]+$", ".x.x.x...xxx.xxxx..x"),
            (r"^[^\W]+$", "x.......x........x.."),
            (r"\s", "......x............."),
            (r"^\S+$", "xxxxxx.xxxxxxxxxxxxx"),
            (r"^[\S]+$", "xxxxxx.xxxxxxxxxxxxx"),
            (r"^[^\d\s]+$", ".x.xxx.xxxxxxxxxxxxx"),
            (r"\ba", "....x.xx.........xx."),
            (r"a\b", "....x.xx..........x."),
            (r"\Ba", "...................."),
            (r"\bч", "...................."),
            (r"^\B", ".x.x.x...xxxxxxxx.xx"),
            (r"^[[:alpha:]]+$", "........x..........."),
            (r"^[[:word:]]+$", "x.......x........x.."),
            (r"^[[:^alnum:]]+$", ".x.x.x...xxx.xxxx..x"),
            (r"(?i)^\w$", "........xx......x..."),
            (r"(?i)^\W$", ".....x....xx.x.x...x"),
            (r"(?i)^[\w]$", "........xx......x..."),
            (r"(?i)^[[:alpha:]]$", "........xx......x..."),
            (r"(?i)^k$", "........x.......x..."),
            (r"(?i)^σ$", "..........xx........"),
            (r"^.$", ".....x..xxxx.x.xx..x"),
            (r"^.{2}$", "xx............x...x."),
            (r"^\pL+$", "...x.x..xxxx..x.x.x."),
            (r"^\p{Cyrillic}+$", "...x................"),
            (r"^\P{Han}+$", "xxxxxxxxxxxxxx.xxx.x"),
            (r"(?i)^\p{Lu}$", ".....x..xxxx....x..."),
            (r"^\<b\>$", "............x......."),
            (r"^[a-z-9.]+$", "....x..........x...."),
            (r"^[]<]", "............xx......"),
            (r"^[^]a]+$", "xxxx.x..xxxxx.xxx..x"),
            (r"^чат$", "...x................"),
            (r"^[а-я]+$", "...x................"),
            (r"^(?:\d+|\w+-\d)$", "x.x................."),
            (r"^(?P<n>\w)$", "........x..........."),
            (r"^(?s:.)\z", ".....x..xxxx.x.xx..x"),
            (r"^[\d\-]+$", "x..............x...."),
            (r"^\x{65E5}", "..............x...x."),
            (r"^[\x00-\x7F]+$", "x.x.x.x.x...xx.x.x.x"),
        ] {
            let compiled = compile(expression).expect(expression);
            let found: String = NAMES.iter().map(|name| if compiled.is_match(name) { 'x' } else { '.' }).collect();
            assert_eq!(found, expected, "{expression}");
        }
    }

    #[test]
    fn an_expression_with_another_meaning_in_go_is_refused() {
        for expression in ["[a-z&&[^b]]", "[a-z--b]", "[a~~b]", "[a[b]]", r"\b{start}a", r"a\b{end-half}", r"\Q.\E"] {
            assert!(compile(expression).is_err(), "{expression}");
        }
    }
}
