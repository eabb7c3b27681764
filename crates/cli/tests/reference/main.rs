//! The documentation compared with the code: the code has each name of a page, and the reference has each name of the
//! code. Each rule finds its candidates by their shape, so that a new page needs no entry here.

mod codes;
mod keys;
mod metrics;
mod operations;
mod variables;

use std::collections::BTreeSet;

use touchline_house::files::{pages, report, root};
use touchline_house::markdown::{Mention, Page, made_up};

/// The pages about the present state. Decisions are left out: they name former things on purpose and are not edited.
fn present_pages() -> Vec<Page> {
    let decisions = root().join("docs/adr");
    pages().into_iter().filter(|(path, _)| !path.starts_with(&decisions)).map(Page::from).collect()
}

/// One page of the documentation.
fn page(name: &str) -> Page {
    let path = root().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    Page::from((path, text))
}

/// Fails if a mention is neither known nor an exception, or if no mention needs an exception. `exceptions`: each name
/// with the reason for the exception.
fn judge(rule: &str, mentions: &[Mention], is_known: impl Fn(&str) -> bool, exceptions: &[(&str, &str)]) {
    report(rule, &judged(mentions, is_known, exceptions));
}

fn judged(mentions: &[Mention], is_known: impl Fn(&str) -> bool, exceptions: &[(&str, &str)]) -> Vec<String> {
    let mut needed = BTreeSet::new();
    let mut broken = Vec::new();
    for mention in mentions.iter().filter(|mention| !is_known(&mention.name)) {
        match exceptions.iter().find(|(name, _)| *name == mention.name) {
            Some((name, _)) => drop(needed.insert(*name)),
            None => broken.push(format!("{}: {}", mention.place, mention.name)),
        }
    }
    let stale = exceptions.iter().filter(|(name, _)| !needed.contains(name));
    broken.extend(stale.map(|(name, reason)| format!("no page needs the exception {name} ({reason})")));
    broken
}

#[test]
fn an_unknown_name_and_a_stale_exception_are_found() {
    let mention = |name: &str| Mention { place: "page.md:1".to_owned(), name: name.to_owned() };
    let mentions = ["known", "excepted", "wrong"].map(mention);
    let exceptions = [("excepted", "a reason"), ("known", "stale")];
    let broken = judged(&mentions, |name| name == "known", &exceptions);
    assert_eq!(broken, ["page.md:1: wrong", "no page needs the exception known (stale)"]);
}
