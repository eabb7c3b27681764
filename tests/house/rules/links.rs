//! Links between pages, the headings that links point to, and paths of files.

use std::collections::BTreeSet;

use touchline_house::files::{pages, report, root};
use touchline_house::markdown::{Mention, Page, PartKind, made_up, parts};

/// Pages name the files in these folders by their path from the root.
const FOLDERS: &[&str] = &["crates/", "docs/", "examples/", "tests/"];

/// The anchors of a page's headings, made as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_block = false;
    for line in text.lines() {
        is_block ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_block || heading == line || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
        let again = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(again).find(|anchor| !found.contains(anchor));
        found.extend(free);
    }
    found
}

/// The links of a page without a target, and the paths in the page without a file.
fn broken(page: &Page) -> Vec<String> {
    let mut broken = Vec::new();
    for part in parts(&page.text) {
        let said = |name: &str| {
            let Mention { place, name } = Mention::new(page, &part, name);
            format!("{place}: {name}")
        };
        match part.kind {
            PartKind::Prose => {
                let targets = part.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
                let inside = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
                broken.extend(inside.filter(|target| !leads_somewhere(page, target)).map(said));
            }
            PartKind::Span => {
                let path = part.text.as_str();
                let is_path = FOLDERS.iter().any(|folder| path.starts_with(folder)) && !path.contains([' ', '*', '<']);
                broken.extend((is_path && !root().join(path).exists()).then(|| said(path)));
            }
            PartKind::Block(_) => {}
        }
    }
    broken
}

fn leads_somewhere(page: &Page, target: &str) -> bool {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    if file.is_empty() {
        return anchor.is_some_and(|anchor| anchors(&page.text).contains(anchor));
    }
    let path = page.path.parent().unwrap_or(&page.path).join(file);
    match anchor {
        None => path.exists(),
        Some(anchor) => std::fs::read_to_string(path).is_ok_and(|text| anchors(&text).contains(anchor)),
    }
}

#[test]
fn every_link_leads_somewhere() {
    let pages: Vec<Page> = pages().into_iter().map(Page::from).collect();
    let links: usize = pages.iter().map(|page| page.text.matches("](").count()).sum();
    assert!(links > 100, "links are found: {links}");
    report("links that lead nowhere", &pages.iter().flat_map(broken).collect::<Vec<_>>());
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let mut page = made_up("");
    page.path = root().join("docs/reference/page.md");
    let mut is_broken = |text: &str| {
        page.text = text.to_owned();
        !broken(&page).is_empty()
    };
    for text in
        ["[a](nowhere.md)", "[a](protocol.md#nowhere)", "[a](#nowhere)", "`crates/nowhere/src`", "[a](../protocol.md)"]
    {
        assert!(is_broken(text), "{text}");
    }
    for text in [
        "[a](protocol.md)",
        "[a](protocol.md#errors-of-a-command)",
        "## One `two`, three\n[a](#one-two-three)",
        "[a](https://example.com/nowhere.md)",
        "`crates/cli` and `tests/<suite>`",
        "# A\n# A\n[a](#a-1)",
    ] {
        assert!(!is_broken(text), "{text}");
    }
}
