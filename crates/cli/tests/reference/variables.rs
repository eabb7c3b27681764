//! Variables of the environment in the documentation.

use std::collections::BTreeSet;

use touchline_config::{Probes, Sources};

use super::{Mention, Page, judge, made_up, present_pages};
use touchline_house::files::{root, walk};
use touchline_house::markdown::{parts, words};

const PREFIX: &str = "TOUCHLINE_";

/// Names that look like variables and that no program reads.
const EXCEPTIONS: &[(&str, &str)] = &[("TOUCHLINE_PORT", "Kubernetes writes it, with a URL")];

fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    words(text, is_part).filter(|word| word.starts_with(PREFIX) && word.len() > PREFIX.len())
}

fn mentions(page: &Page) -> Vec<Mention> {
    let mut found = Vec::new();
    for part in parts(&page.text) {
        found.extend(names(&part.text).map(|name| Mention::new(page, &part, name)));
    }
    found
}

/// Whether a configuration reads the variable. The configuration has a namespace `chat`.
fn is_key(name: &str) -> bool {
    let namespaces = ("TOUCHLINE_CHANNEL_NAMESPACES".to_owned(), "chat".to_owned());
    let consumers = r#"[{"name": "shop", "type": "postgresql"}]"#;
    let consumers = ("TOUCHLINE_CONSUMERS".to_owned(), consumers.to_owned());
    let variables = [namespaces, consumers, (name.to_owned(), "1".to_owned())].into();
    let outcome = touchline_config::read(&Sources { variables, ..Sources::default() }, &Probes::NONE);
    outcome.findings.iter().all(|finding| !finding.text.contains("no key has this name"))
}

/// The variables that programs and tests read: texts in Rust files, and words in files of other languages. Variables in
/// `config` and in the tests of configurations are left out: they are keys, or invented.
fn read_by_sources() -> BTreeSet<String> {
    let without = ["crates/config", "crates/cli/tests/configuration", "crates/cli/tests/reference"];
    let without = without.map(|folder| root().join(folder));
    let mut found = BTreeSet::new();
    for extension in ["rs", "mjs", "py", "go", "java"] {
        let mut sources = Vec::new();
        ["crates", "tests", "examples"].iter().for_each(|name| walk(&root().join(name), extension, &mut sources));
        for (path, text) in sources {
            if extension != "rs" {
                found.extend(names(&text).map(str::to_owned));
            } else if !without.iter().any(|folder| path.starts_with(folder)) {
                let texts = text.split('"').filter(|text| names(text).any(|name| name == *text));
                found.extend(texts.map(str::to_owned));
            }
        }
    }
    let tasks = std::fs::read_to_string(root().join("x")).expect("the tasks are there");
    found.extend(names(&tasks).map(str::to_owned));
    found
}

#[test]
fn every_variable_in_the_documentation_is_read() {
    let read = read_by_sources();
    let mentions: Vec<Mention> = present_pages().iter().flat_map(mentions).collect();
    assert!(mentions.len() > 25, "variables are found: {}", mentions.len());
    judge("variables that nobody reads", &mentions, |name| read.contains(name) || is_key(name), EXCEPTIONS);
}

#[test]
fn every_variable_that_is_read_is_told_of() {
    let told: BTreeSet<String> = present_pages().iter().flat_map(mentions).map(|mention| mention.name).collect();
    let mentions: Vec<Mention> = read_by_sources()
        .into_iter()
        .filter(|name| !is_key(name))
        .map(|name| Mention { place: "sources".to_owned(), name })
        .collect();
    assert!(mentions.len() > 8, "variables are found: {mentions:?}");
    judge("variables that no page tells of", &mentions, |name| told.contains(name), &[]);
}

#[test]
fn a_variable_that_nobody_reads_is_found() {
    for name in [
        "TOUCHLINE_HTTP_API_KEYY",
        "TOUCHLINE_CHANNEL_NAMESPACES_CHAT_HISTORY_SIZES",
        "TOUCHLINE_CONSUMERS_SHOP_DSN",
        "TOUCHLINE_NOTHING",
    ] {
        let mentions = mentions(&made_up(&format!("set `{name}=1`")));
        assert_eq!(mentions.len(), 1, "{name}");
        assert!(!is_key(&mentions[0].name) && !read_by_sources().contains(name), "{name}");
    }
    for name in ["HTTP_API_KEY", "CHANNEL_NAMESPACES_CHAT_HISTORY_SIZE", "REGISTRY_SCOPES"] {
        assert!(is_key(&format!("{PREFIX}{name}")), "{name}");
    }
    assert!(read_by_sources().contains("TOUCHLINE_CRASHES"));
}
