//! Finds the modules that a file declares, the names that it imports and the paths that it writes. Code that
//! `#[cfg(test)]` marks is left out.

use std::collections::BTreeSet;

use super::lexer::{Token, TokenKind, tokens};

/// A path that a file contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrittenPath {
    /// The parts of the path, such as `["crate", "shard", "Shard"]`.
    pub(crate) parts: Vec<String>,
    /// The name that an import gives the path in the file. `None` for a path in an expression or type, and for a glob.
    pub(crate) alias: Option<String>,
    /// The modules inside the file that contain the path, outermost first.
    pub(crate) inside: Vec<String>,
    /// The line on which the path begins, counted from 1.
    pub(crate) line: usize,
}

/// The content of a file outside its tests.
#[derive(Debug, Default)]
pub(crate) struct ParsedFile {
    /// Modules with their own file (`mod x;`), each with the modules inside this file that contain it.
    pub(crate) modules: Vec<Vec<String>>,
    /// Modules inside this file (`mod x { … }`), each with the modules that contain it.
    pub(crate) inline_modules: Vec<Vec<String>>,
    /// Imports and paths, in the order of the file.
    pub(crate) paths: Vec<WrittenPath>,
    /// The number of lines with code. A comment is not code.
    pub(crate) code_lines: usize,
}

/// Reads a file.
pub(crate) fn parse(text: &str) -> ParsedFile {
    let tokens = tokens(text);
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        depth: 0,
        inside: Vec::new(),
        lines: BTreeSet::new(),
        found: ParsedFile::default(),
    };
    parser.run();
    parser.found.code_lines = parser.lines.len();
    parser.found
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    /// The number of open braces.
    depth: usize,
    /// The open modules, each with the depth of its braces.
    inside: Vec<(String, usize)>,
    lines: BTreeSet<usize>,
    found: ParsedFile,
}

impl<'a> Parser<'a> {
    fn kind(&self, ahead: usize) -> Option<TokenKind<'a>> {
        self.tokens.get(self.at + ahead).map(|token| token.kind)
    }

    fn word(&self, ahead: usize) -> Option<&'a str> {
        if let Some(TokenKind::Word(word)) = self.kind(ahead) { Some(word) } else { None }
    }

    fn is_sign(&self, ahead: usize, sign: char) -> bool {
        self.kind(ahead) == Some(TokenKind::Sign(sign))
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(0, |token| token.line)
    }

    /// Moves past tokens and notes their lines as code.
    fn pass(&mut self, count: usize) {
        for token in self.tokens.iter().skip(self.at).take(count) {
            self.lines.insert(token.line);
        }
        self.at += count;
    }

    fn inside(&self) -> Vec<String> {
        self.inside.iter().map(|(name, _)| name.clone()).collect()
    }

    fn run(&mut self) {
        while let Some(kind) = self.kind(0) {
            match kind {
                TokenKind::Sign('#') => self.attribute(),
                // `use<…>` is a bound, not an import.
                TokenKind::Word("use") if !self.is_sign(1, '<') => self.import(),
                TokenKind::Word("pub") if self.is_sign(1, '(') => self.visibility(),
                TokenKind::Word("mod") if self.word(1).is_some() => self.module(),
                TokenKind::Word(_) => self.path(),
                TokenKind::Sign('{') => {
                    self.depth += 1;
                    self.pass(1);
                }
                TokenKind::Sign('}') => {
                    self.depth = self.depth.saturating_sub(1);
                    self.inside.pop_if(|(_, depth)| *depth == self.depth);
                    self.pass(1);
                }
                _ => self.pass(1),
            }
        }
    }

    /// Moves past an attribute. Code that `#[cfg(test)]` marks is skipped too. `#![cfg(test)]` skips the rest of the
    /// file.
    fn attribute(&mut self) {
        let is_inner = self.is_sign(1, '!');
        let open = self.at + 1 + usize::from(is_inner);
        if self.tokens.get(open).map(|token| token.kind) != Some(TokenKind::Sign('[')) {
            return self.pass(1);
        }
        let end = self.closing(open);
        let words: Vec<&str> = self.tokens[open..end]
            .iter()
            .filter_map(|token| if let TokenKind::Word(word) = token.kind { Some(word) } else { None })
            .collect();
        let is_test =
            words.first() == Some(&"cfg") && words.contains(&"test") && !words.contains(&"not") || words == ["test"];
        match (is_test, is_inner) {
            (false, _) => self.pass(end + 1 - self.at),
            (true, true) => self.at = self.tokens.len(),
            (true, false) => {
                self.at = end + 1;
                self.skip_marked();
            }
        }
    }

    /// The index of the token that closes the bracket at an index, or the end of the file.
    fn closing(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (index, token) in self.tokens.iter().enumerate().skip(open) {
            match token.kind {
                TokenKind::Sign('(' | '[' | '{') => depth += 1,
                TokenKind::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return index;
            }
        }
        self.tokens.len()
    }

    /// Skips the item, statement, field or variant that an attribute marks.
    fn skip_marked(&mut self) {
        let mut is_value = false;
        let mut is_item = false;
        while let Some(kind) = self.kind(0) {
            match kind {
                TokenKind::Sign('#') if self.is_sign(1, '[') => {
                    self.at = self.closing(self.at + 1) + 1;
                    continue;
                }
                // These items end only with a semicolon. Their braces are a tree of imports or a value.
                TokenKind::Word("use" | "static" | "let" | "type") if !is_item => is_value = true,
                TokenKind::Word("const") if !is_item && !matches!(self.word(1), Some("fn" | "unsafe")) => {
                    is_value = true;
                }
                TokenKind::Word("fn" | "mod" | "struct" | "enum" | "impl" | "trait" | "union") => is_item = true,
                TokenKind::Sign(';') => return self.at += 1,
                TokenKind::Sign(',') if !is_item && !is_value => return self.at += 1,
                TokenKind::Sign('}') => return,
                TokenKind::Sign('{') if !is_value => return self.at = self.closing(self.at) + 1,
                TokenKind::Sign('(' | '[' | '{') => {
                    self.at = self.closing(self.at) + 1;
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Moves past `pub(…)`. Its path is not an import.
    fn visibility(&mut self) {
        let is_visibility = matches!(self.word(2), Some("crate" | "super" | "self" | "in"));
        let end = self.closing(self.at + 1);
        self.pass(if is_visibility { end + 1 - self.at } else { 1 });
    }

    fn module(&mut self) {
        let mut name = self.inside();
        name.extend(self.word(1).map(str::to_owned));
        if self.is_sign(2, ';') {
            self.found.modules.push(name);
            self.pass(3);
        } else if self.is_sign(2, '{') {
            self.inside.extend(name.last().map(|name| (name.clone(), self.depth)));
            self.found.inline_modules.push(name);
            self.depth += 1;
            self.pass(3);
        } else {
            self.pass(1);
        }
    }

    /// Reads `use …;`.
    fn import(&mut self) {
        self.pass(1);
        self.import_tree(&[]);
        while self.kind(0).is_some() && !self.is_sign(0, ';') {
            self.pass(1);
        }
    }

    /// Reads a tree of imports. `before` contains the parts in front of the tree.
    fn import_tree(&mut self, before: &[String]) {
        let mut parts = before.to_vec();
        let line = self.line();
        loop {
            match self.kind(0) {
                Some(TokenKind::Word(word)) => {
                    parts.push(word.to_owned());
                    self.pass(1);
                }
                Some(TokenKind::Separator) => {
                    // A path that begins with `::` names another crate.
                    if parts.is_empty() {
                        parts.push(String::new());
                    }
                    self.pass(1);
                    continue;
                }
                Some(TokenKind::Sign('*')) => {
                    self.pass(1);
                    return self.found_import(parts, None, line);
                }
                Some(TokenKind::Sign('{')) => {
                    self.pass(1);
                    while self.kind(0).is_some() && !self.is_sign(0, '}') {
                        self.import_tree(&parts);
                        self.pass(usize::from(self.is_sign(0, ',')));
                    }
                    return self.pass(1);
                }
                _ => return,
            }
            if self.kind(0) == Some(TokenKind::Separator) {
                continue;
            }
            if parts.len() > 1 && parts.last().is_some_and(|last| last == "self") {
                parts.pop();
            }
            let mut alias = parts.last().cloned();
            if self.word(0) == Some("as") {
                alias = self.word(1).map(str::to_owned);
                self.pass(2);
            }
            return self.found_import(parts, alias, line);
        }
    }

    fn found_import(&mut self, parts: Vec<String>, alias: Option<String>, line: usize) {
        let inside = self.inside();
        self.found.paths.push(WrittenPath { parts, alias, inside, line });
    }

    /// Reads a path of an expression or a type. A single word is a name in scope, whose import gives its place.
    fn path(&mut self) {
        let line = self.line();
        let is_continued = self.at > 0 && self.tokens[self.at - 1].kind == TokenKind::Separator;
        let mut parts: Vec<String> = Vec::new();
        while let Some(word) = self.word(0) {
            parts.push(word.to_owned());
            self.pass(1);
            if self.kind(0) != Some(TokenKind::Separator) || self.word(1).is_none() {
                break;
            }
            self.pass(1);
        }
        if parts.len() > 1 && !is_continued {
            let inside = self.inside();
            self.found.paths.push(WrittenPath { parts, alias: None, inside, line });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn paths(text: &str) -> Vec<String> {
        let told = |alias: &Option<String>| alias.as_ref().map_or(String::new(), |alias| format!(" as {alias}"));
        parse(text).paths.iter().map(|path| path.parts.join("::") + &told(&path.alias)).collect()
    }

    #[test]
    fn a_tree_of_imports_is_its_paths() {
        let text = "pub(crate) use crate::{a::{self, B as C, d::*}, super::e}; use ::std::io;";
        assert_eq!(
            paths(text),
            ["crate::a as a", "crate::a::B as C", "crate::a::d", "crate::super::e as e", "::std::io as io"]
        );
    }

    #[test]
    fn paths_stand_in_expressions_types_and_macros() {
        let text = "fn f(x: &crate::a::A<super::b::B>) -> c::D { $crate::e!(x.y::<Z>(), <F as g::H>::I, ::j::k) }";
        assert_eq!(paths(text), ["crate::a::A", "super::b::B", "c::D", "crate::e", "g::H"]);
    }

    #[test]
    fn what_is_marked_as_a_test_is_left_out() {
        let text = "#[cfg(test)] #[expect(x)] mod t { use crate::a; }\n#[cfg(test)] use crate::{b, c};\n\
                    #[cfg(all(test, unix))] fn f<A, B>(x: [u8; 2]) -> crate::d { crate::e() }\n\
                    struct S { #[cfg(test)] g: crate::h, i: crate::j::K }\n#[cfg(test)] mod tests;\n\
                    #[cfg(test)] const L: crate::m = crate::m { n: 1 };\n#[cfg(not(test))] use crate::o;\n\
                    #[test] fn p() { crate::q::r() }";
        assert_eq!(paths(text), ["crate::j::K", "crate::o as o"]);
        assert!(parse(text).modules.is_empty());
        assert!(paths("#![cfg(test)] use crate::a;").is_empty());
    }

    #[test]
    fn modules_are_files_or_stand_inside_one() {
        let found = parse("pub mod a; mod b { mod c; use super::d; } pub(in crate::e) mod f; use g::h;");
        assert_eq!(found.modules, [vec!["a"], vec!["b", "c"], vec!["f"]]);
        assert_eq!(found.inline_modules, [vec!["b"]]);
        let inside: Vec<usize> = found.paths.iter().map(|path| path.inside.len()).collect();
        assert_eq!(inside, [1, 0], "the path of a visibility is not an import");
    }

    #[test]
    fn lines_of_code_are_counted_without_comments_and_tests() {
        assert_eq!(
            parse("//! Page\n\n/// Doc\nfn f() {\n    // why\n    g();\n}\n#[cfg(test)]\nmod t {\n}\n").code_lines,
            3
        );
    }
}
