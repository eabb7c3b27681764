//! A regular expression as a string in the configuration; empty = none.
//!
//! It has the same meaning as in Centrifugo, whose expressions are Go's: an expression that matches more here would
//! permit channels that it was written to exclude.

use std::ops::Range;

use regex::Regex;
use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{AssertionKind, Ast, ClassPerl, ClassPerlKind, ClassSetItem, Span, Visitor, visit};

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

/// The last line of an expression's fault, which is the reason.
fn reason(error: &str) -> &str {
    let last = error.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last)
}

/// The expression, with the meaning that it has in Go.
///
/// # Errors
/// When it is not valid, or has a meaning in Go that is not supported here.
fn compile(text: &str) -> Result<Regex, regex::Error> {
    let of_syntax = |error: &dyn ToString| regex::Error::Syntax(error.to_string());
    let ast = Parser::new().parse(text).map_err(|error| of_syntax(&error))?;
    let changes = visit(&ast, Rewrites::default())
        .map_err(|reason| of_syntax(&format!("regex parse error:\nerror: {reason}")))?;
    let (mut compiled, mut done) = (String::new(), 0);
    for (range, replacement) in changes {
        compiled.push_str(&text[done..range.start]);
        compiled.push_str(replacement);
        done = range.end;
    }
    compiled.push_str(&text[done..]);
    Regex::new(&compiled)
}

/// The parts that Go's syntax writes in another way, in the order of the text.
#[derive(Default)]
struct Rewrites(Vec<(Range<usize>, &'static str)>);

impl Rewrites {
    fn change(&mut self, span: &Span, replacement: &'static str) {
        self.0.push((span.start.offset..span.end.offset, replacement));
    }

    /// `\d`, `\s` and `\w` match ASCII only. The lists are valid on their own and inside another list.
    fn change_class(&mut self, class: &ClassPerl) {
        let replacement = match (&class.kind, class.negated) {
            (ClassPerlKind::Digit, false) => "[0-9]",
            (ClassPerlKind::Digit, true) => "[^0-9]",
            (ClassPerlKind::Space, false) => r"[\t\n\x0C\r\x20]",
            (ClassPerlKind::Space, true) => r"[^\t\n\x0C\r\x20]",
            (ClassPerlKind::Word, false) => "[0-9A-Za-z_]",
            (ClassPerlKind::Word, true) => "[^0-9A-Za-z_]",
        };
        self.change(&class.span, replacement);
    }
}

impl Visitor for Rewrites {
    type Output = Vec<(Range<usize>, &'static str)>;
    type Err = &'static str;

    fn finish(self) -> Result<Self::Output, Self::Err> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::ClassPerl(class) => self.change_class(class),
            Ast::Assertion(assertion) => match assertion.kind {
                AssertionKind::WordBoundary => self.change(&assertion.span, r"(?-u:\b)"),
                AssertionKind::NotWordBoundary => self.change(&assertion.span, r"(?-u:\B)"),
                AssertionKind::WordBoundaryStartAngle => self.change(&assertion.span, r"\x3C"),
                AssertionKind::WordBoundaryEndAngle => self.change(&assertion.span, r"\x3E"),
                AssertionKind::WordBoundaryStart
                | AssertionKind::WordBoundaryEnd
                | AssertionKind::WordBoundaryStartHalf
                | AssertionKind::WordBoundaryEndHalf => return Err(r"\b{ has another meaning in Go"),
                AssertionKind::StartLine
                | AssertionKind::EndLine
                | AssertionKind::StartText
                | AssertionKind::EndText => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ClassSetItem::Perl(class) => self.change_class(class),
            ClassSetItem::Bracketed(_) => {
                return Err(r"[ inside a list of characters has another meaning in Go: write \[");
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &regex_syntax::ast::ClassSetBinaryOp) -> Result<(), Self::Err> {
        Err(r"&&, -- and ~~ inside a list of characters have another meaning in Go: write \ before each character")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of channels, behind the namespace.
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
        // What `regexp.MatchString` of Go 1.26 says of each of these names: x = it matches the name.
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
