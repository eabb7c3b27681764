//! Markdown has one sentence per line, and no source has open tasks.

use touchline_house::files::{pages, report, sources};

/// Words that end with a full stop and do not end a sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "vs.", "cf.", "al.", "No.", "approx.", "resp."];

#[test]
fn no_markdown_line_holds_two_sentences() {
    let mut broken = Vec::new();
    for (path, text) in pages() {
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            let start = line.trim_start();
            let is_fence = start.starts_with("```");
            is_code ^= is_fence;
            let is_prose = !is_code && !is_fence && !start.starts_with(['|', '#', '<']);
            if is_prose && let Some(second) = second_sentence(start) {
                broken.push(format!("{}:{} … {second}", path.display(), number + 1));
            }
        }
    }
    report("more than one sentence on a line", &broken);
}

/// The beginning of the second sentence on a line of Markdown, if there is one.
fn second_sentence(line: &str) -> Option<String> {
    // A span of code counts as one word that may begin a sentence. The rule skips addresses.
    let spans = line.split('`').enumerate().map(|(index, part)| if index % 2 == 1 { "C" } else { part });
    let text: String = spans.collect();
    let mut links = text.split("](");
    let mut plain = links.next().unwrap_or_default().to_owned();
    for link in links {
        plain.push(']');
        plain.push_str(link.split_once(')').map_or("", |(_, rest)| rest));
    }
    let words: Vec<&str> = plain.split_whitespace().collect();
    // The number of a list item ends with a full stop too.
    let is_number = |word: &str| word.strip_suffix('.').is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit()));
    let first = usize::from(words.first().is_some_and(|word| is_number(word)));
    let ends = |word: &str| {
        let bare = word.trim_end_matches([')', ']', '"', '*', '_', '”', '’']);
        let known = bare.trim_start_matches(['(', '[', '"', '*', '_', '“']);
        bare.ends_with(['.', '!', '?']) && !ABBREVIATIONS.contains(&known)
    };
    let begins = |word: &str| {
        let bare = word.trim_start_matches(['(', '"', '*', '_', '“']);
        bare.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit() || c == '[')
    };
    words[first..].windows(2).find(|pair| ends(pair[0]) && begins(pair[1])).map(|pair| pair.join(" "))
}

#[test]
fn two_sentences_are_told_from_one() {
    for line in ["One. Two", "**One.** Two", "(One.) *Two*", "Is it? [two](x.md)", "1. One. `two`", "See [one](a). Two"]
    {
        assert!(second_sentence(line).is_some(), "{line}");
    }
    for line in ["1. One", "- One: `a. B`", "Version 1.5 of e.g. Node", "One ([x](y. Z)) two", "One, two …", "One. "]
    {
        assert_eq!(second_sentence(line), None, "{line}");
    }
}

#[test]
fn nothing_is_left_for_later() {
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|word| word.concat());
    let mut broken = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word.as_str())) {
                broken.push(format!("{}:{} {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    report("left for later", &broken);
}
