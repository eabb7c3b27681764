//! Splits Rust into the tokens that matter for imports. The lexer skips comments. A literal is one token without its
//! text.

/// A token, and the line on which it begins, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind<'a>,
    pub(crate) line: usize,
}

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind<'a> {
    /// An identifier or a keyword.
    Word(&'a str),
    /// The path separator `::`.
    Separator,
    /// Any other sign.
    Sign(char),
    /// A text, a character, a number or a lifetime.
    Literal,
}

/// The tokens of a file. Text that is not Rust gives tokens too, and never an error.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    std::iter::from_fn(|| lexer.next()).collect()
}

struct Lexer<'a> {
    text: &'a str,
    /// The byte of the text that is read next.
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip(&mut self, length: usize) {
        let end = (self.at + length).min(self.text.len());
        self.line += self.text[self.at..end].matches('\n').count();
        self.at = end;
    }

    /// Moves behind the first `end` at or after `from` bytes.
    fn skip_past(&mut self, from: usize, end: &str) {
        let rest = self.rest();
        let found = rest.get(from..).and_then(|tail| tail.find(end));
        self.skip(found.map_or(rest.len(), |found| from + found + end.len()));
    }

    fn next(&mut self) -> Option<Token<'a>> {
        self.skip_comments();
        let line = self.line;
        let first = self.rest().chars().next()?;
        let kind = match first {
            '"' => self.skip_text(1),
            '\'' => self.skip_quote(1),
            _ if self.rest().starts_with("::") => {
                self.skip(2);
                TokenKind::Separator
            }
            _ if first.is_ascii_digit() => self.skip_number(),
            _ if is_word(first) => self.word(),
            _ => {
                self.skip(first.len_utf8());
                TokenKind::Sign(first)
            }
        };
        Some(Token { kind, line })
    }

    fn skip_comments(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            if blank > 0 {
                self.skip(blank);
            } else if rest.starts_with("//") {
                self.skip(rest.find('\n').unwrap_or(rest.len()));
            } else if rest.starts_with("/*") {
                self.skip_block_comment();
            } else {
                return;
            }
        }
    }

    /// Block comments nest.
    fn skip_block_comment(&mut self) {
        let mut depth = 0;
        loop {
            let rest = self.rest();
            let Some(sign) = rest.find("/*").into_iter().chain(rest.find("*/")).min() else {
                return self.skip(rest.len());
            };
            depth = if rest[sign..].starts_with("/*") { depth + 1 } else { depth - 1 };
            self.skip(sign + 2);
            if depth == 0 {
                return;
            }
        }
    }

    /// Skips a text literal. Its first quote is the last of `head` bytes.
    fn skip_text(&mut self, head: usize) -> TokenKind<'a> {
        let mut length = head;
        let bytes = self.rest().as_bytes();
        while length < bytes.len() && bytes[length] != b'"' {
            length += if bytes[length] == b'\\' { 2 } else { 1 };
        }
        self.skip(length + 1);
        TokenKind::Literal
    }

    /// Skips a character or a lifetime. Its quote is the last of `head` bytes.
    fn skip_quote(&mut self, head: usize) -> TokenKind<'a> {
        let rest = &self.rest()[head..];
        let mut characters = rest.char_indices();
        let first = characters.next().map_or('\'', |(_, first)| first);
        let second = characters.next();
        if first == '\\' {
            // The escaped character may be a quote itself.
            self.skip_past(head + 2, "'");
        } else if let Some((at, '\'')) = second {
            self.skip(head + at + 1);
        } else {
            let name = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            self.skip(head + name);
        }
        TokenKind::Literal
    }

    fn skip_number(&mut self) -> TokenKind<'a> {
        let rest = self.rest();
        let mut end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        // This is a fraction, and not a range or a method.
        if rest[end..].starts_with('.') && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            let fraction = &rest[end + 1..];
            end += 1 + fraction.find(|c: char| !is_word(c)).unwrap_or(fraction.len());
        }
        self.skip(end);
        TokenKind::Literal
    }

    /// A word, or a literal with a prefix: `b"…"`, `r#"…"#`, `br"…"`, `c"…"`, `b'…'`, and `r#type`, which is a word.
    fn word(&mut self) -> TokenKind<'a> {
        let rest = self.rest();
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let hashes = behind.len() - behind.trim_start_matches('#').len();
        let is_raw = matches!(word, "r" | "br" | "cr");
        if is_raw && behind[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            self.skip_past(end + hashes + 1, &close);
            return TokenKind::Literal;
        }
        if matches!(word, "b" | "c") && behind.starts_with('"') {
            return self.skip_text(end + 1);
        }
        if word == "b" && behind.starts_with('\'') {
            return self.skip_quote(end + 1);
        }
        if word == "r" && hashes == 1 {
            self.skip(2);
            return self.word();
        }
        self.skip(end);
        TokenKind::Word(word)
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn words_in_comments_and_literals_are_no_tokens() {
    let text = r####"
        // crate::a
        /* crate::b /* nested */ crate::c */
        "crate::d \" crate::e" b"crate::f" r#"crate::"g"#
        '\'' 'x' b'"' '"' 1.5e3 0..x 'a: r#type "over
        lines" y
    "####;
    let words: Vec<(&str, usize)> = tokens(text)
        .iter()
        .filter_map(|token| if let TokenKind::Word(word) = token.kind { Some((word, token.line)) } else { None })
        .collect();
    assert_eq!(words, [("x", 5), ("type", 5), ("y", 6)]);
}

#[test]
fn signs_are_told_apart() {
    use TokenKind::{Literal, Separator, Sign, Word};
    let kinds: Vec<TokenKind<'_>> = tokens("a::<'b, 7>(:c)").iter().map(|token| token.kind).collect();
    let expected = [
        Word("a"),
        Separator,
        Sign('<'),
        Literal,
        Sign(','),
        Literal,
        Sign('>'),
        Sign('('),
        Sign(':'),
        Word("c"),
        Sign(')'),
    ];
    assert_eq!(kinds, expected);
}
