//! A regular expression that matches whole texts, in little memory.
//!
//! The expression is parsed by itself, and the anchors that make it match a whole text are added to the parsed form. So
//! no syntax in the expression can change the anchors. The expression runs as a set of states (a Pike machine): it
//! holds nothing but its program, and its time is linear in the text.

use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{Compiler, Config, WhichCaptures};
use regex_automata::{Anchored, Input};
use regex_syntax::hir::{Hir, Look};

use crate::go_regex::of_go;

/// A regular expression that matches whole texts. It has the same meaning as in Go.
#[derive(Debug)]
pub(crate) struct WholeRegex {
    text: Box<str>,
    program: PikeVM,
}

/// Why an expression cannot be compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegexFault {
    /// The expression is not valid, or has a meaning in Go that is not supported here.
    Invalid,
    /// The compiled program is larger than the limit.
    TooLarge,
}

impl WholeRegex {
    /// Compiles an expression to a program of at most `size_max` bytes.
    ///
    /// # Errors
    /// See [`RegexFault`].
    pub(crate) fn compile(text: &str, size_max: usize) -> Result<Self, RegexFault> {
        let written = of_go(text).map_err(|_| RegexFault::Invalid)?;
        let parsed = regex_syntax::parse(&written).map_err(|_| RegexFault::Invalid)?;
        let whole = Hir::concat(vec![Hir::look(Look::Start), parsed, Hir::look(Look::End)]);
        let config = Config::new().nfa_size_limit(Some(size_max)).which_captures(WhichCaptures::None).shrink(true);
        let program = Compiler::new()
            .configure(config)
            .build_from_hir(&whole)
            .map_err(|error| if error.size_limit().is_some() { RegexFault::TooLarge } else { RegexFault::Invalid })?;
        let program = PikeVM::new_from_nfa(program).map_err(|_| RegexFault::Invalid)?;
        Ok(WholeRegex { text: text.into(), program })
    }

    /// Whether the expression matches the whole text.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let input = Input::new(text).anchored(Anchored::Yes);
        self.program.is_match(&mut self.program.create_cache(), input)
    }

    /// The expression as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The size of the compiled program, bytes.
    pub(crate) fn size(&self) -> usize {
        self.program.get_nfa().memory_usage()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    const ROOM: usize = 256 * 1_024;

    fn compiled(text: &str) -> WholeRegex {
        WholeRegex::compile(text, ROOM).expect(text)
    }

    #[test]
    fn an_expression_matches_whole_texts_and_nothing_leaks_out_of_it() {
        for (text, matched, others) in [
            ("a[0-9]|b", &["a1", "b"][..], &["xa1", "a1x", "bx", "xb"][..]),
            ("a|ab", &["a", "ab"], &["abb", "b"]),
            ("", &[""], &["a"]),
            ("^a$", &["a"], &["ab"]),
            ("(?x)shut:a # every one", &["shut:a"], &["shut:ab", "shut"]),
            ("(?i)Chat:a|B", &["chat:A", "b"], &["xchat:a"]),
            ("(?m)^a$", &["a"], &["a\nb", "b\na"]),
            (r"\w{1,3}", &["abc", "_"], &["é", "abcd"]),
            ("room:.{1,64}", &["room:é"], &["room:", "xroom:a"]),
        ] {
            let whole = compiled(text);
            assert!(matched.iter().all(|name| whole.matches(name)), "{text}");
            assert!(!others.iter().any(|name| whole.matches(name)), "{text}");
            assert_eq!(whole.as_str(), text);
        }
    }

    #[test]
    fn what_is_not_one_expression_or_too_large_is_refused() {
        for text in ["a)|(?:", "(", ")", "[a", "a\\", "*", r"\Q.\E", "[a&&b]"] {
            assert_eq!(WholeRegex::compile(text, ROOM).map(|_| ()), Err(RegexFault::Invalid), "{text}");
        }
        for text in ["(a{1000}){1000}", r"\pL{100}"] {
            assert_eq!(WholeRegex::compile(text, ROOM).map(|_| ()), Err(RegexFault::TooLarge), "{text}");
        }
    }

    proptest! {
        #[test]
        fn it_matches_where_a_match_spans_the_text(text in r"[ab|()?*+.^$]{0,12}", name in "[ab\n]{0,5}") {
            let alone = Regex::new(&text).is_ok();
            prop_assert_eq!(WholeRegex::compile(&text, ROOM).is_ok(), alone, "{}", text);
            if alone {
                let whole = Regex::new(&format!(r"\A(?:{text})\z")).expect("such expressions stay in a group");
                prop_assert_eq!(compiled(&text).matches(&name), whole.is_match(&name), "{}", text);
            }
        }
    }
}
