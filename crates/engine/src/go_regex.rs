//! Regular expressions with the meaning that they have in Centrifugo, which uses Go's. An expression that matched more
//! here would permit channels that it was written to exclude.

use std::ops::Range;

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{AssertionKind, Ast, ClassPerl, ClassPerlKind, ClassSetItem, Span, Visitor, visit};

/// Rewrites a Go expression so that it means the same here. Whether it compiles is not checked.
///
/// # Errors
/// The fault, as text for people: it is not valid, or has a meaning in Go that is not supported here.
pub(crate) fn of_go(text: &str) -> Result<String, String> {
    let ast = Parser::new().parse(text).map_err(|error| error.to_string())?;
    let changes = visit(&ast, Rewrites::default()).map_err(|reason| format!("regex parse error:\nerror: {reason}"))?;
    let (mut written, mut done) = (String::new(), 0);
    for (range, replacement) in changes {
        written.push_str(&text[done..range.start]);
        written.push_str(replacement);
        done = range.end;
    }
    written.push_str(&text[done..]);
    Ok(written)
}

/// The parts of an expression that must be written differently here, in the order of the text.
#[derive(Default)]
struct Rewrites(Vec<(Range<usize>, &'static str)>);

impl Rewrites {
    fn change(&mut self, span: &Span, replacement: &'static str) {
        self.0.push((span.start.offset..span.end.offset, replacement));
    }

    /// In Go, `\d`, `\s` and `\w` match ASCII only. The lists are valid on their own and inside another list.
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
