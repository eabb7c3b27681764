//! Generates `docs/reference/configuration.md` from the tables of keys, and checks that the file in the repository is
//! up to date.

use std::fmt::Write as _;

use super::pages::{fill, is_up_to_date};
use crate::keys::{
    API_KEY_OPTIONS, CONSUMER_OPTIONS, EVENT_OPTIONS, KEYS, Key, OPTIONS, PROVIDER_OPTIONS, PROXY_OPTIONS, RPC_OPTIONS,
    SCOPE_OPTIONS, ValueKind,
};
use crate::unsupported::{Disposition, UNSUPPORTED, UNSUPPORTED_OPTIONS};

/// The prose of the page.
const PROSE: &str = include_str!("pages/configuration.md.in");

#[test]
fn the_reference_is_up_to_date() {
    is_up_to_date("docs/reference/configuration.md", &reference());
}

fn reference() -> String {
    let parts = [
        ("@keys@", sections()),
        ("@options@", table(&OPTIONS)),
        ("@scopes@", table(&SCOPE_OPTIONS)),
        ("@proxies@", table(&PROXY_OPTIONS)),
        ("@methods@", table(&RPC_OPTIONS)),
        ("@providers@", table(&PROVIDER_OPTIONS)),
        ("@api-keys@", table(&API_KEY_OPTIONS)),
        ("@events@", table(&EVENT_OPTIONS)),
        ("@consumers@", table(&CONSUMER_OPTIONS)),
        (
            "@left-out@",
            unsupported(
                |disposition| {
                    if let Disposition::LeftOut(consequence) = disposition { Some(consequence) } else { None }
                },
            ),
        ),
        (
            "@refused@",
            unsupported(|disposition| if let Disposition::Refused(reason) = disposition { Some(reason) } else { None }),
        ),
        ("@moot@", unsupported(|disposition| if disposition == Disposition::Ignored { Some("") } else { None })),
    ];
    fill(PROSE, &parts)
}

/// A part of a section with its own heading.
const RATES: &str = "client.rate_limit";

/// A heading and a table for each section of the file.
fn sections() -> String {
    let mut text = String::new();
    let mut section = "";
    for key in KEYS.iter() {
        let (of_key, _) = key.path.split_once('.').expect("every key is in a section");
        // These keys are many, so they have their own section.
        let of_key = if key.path.starts_with(RATES) { RATES } else { of_key };
        if of_key != section {
            section = of_key;
            let _ = write!(text, "\n## `{section}`\n");
            heading(&mut text);
        }
        row(&mut text, key);
    }
    text
}

fn table(keys: &[Key]) -> String {
    let mut text = String::new();
    heading(&mut text);
    keys.iter().for_each(|key| row(&mut text, key));
    text
}

fn heading(text: &mut String) {
    text.push_str("\n| key | type | default | meaning |\n|---|---|---|---|\n");
}

fn row(text: &mut String, key: &Key) {
    let kind = match key.kind {
        ValueKind::Duration => "duration".to_owned(),
        ValueKind::Boolean => "boolean".to_owned(),
        ValueKind::Integer(least, most) if most >= u64::from(u32::MAX) => format!("number from {least}"),
        ValueKind::Integer(least, most) => format!("number, {least} … {most}"),
        ValueKind::Optional(least, most) => format!("number, {least} … {most}, or empty"),
        ValueKind::Choice(words) => {
            words.iter().filter(|word| !word.is_empty()).map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        ValueKind::Secret => "secret".to_owned(),
        ValueKind::Pem => "PEM".to_owned(),
        ValueKind::Texts => "list of texts".to_owned(),
        ValueKind::StringMap => "table of texts".to_owned(),
        ValueKind::Transforms | ValueKind::ClaimPaths | ValueKind::Buckets | ValueKind::Overrides(_) => {
            "list of tables".to_owned()
        }
        ValueKind::OverrideTable => "table of tables".to_owned(),
        ValueKind::Path => "path".to_owned(),
        ValueKind::Text | ValueKind::Pattern => key.kind.name(),
    };
    let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
    let own = if key.is_ours { " **own**" } else { "" };
    let _ = writeln!(text, "| `{}`{own} | {kind} | {default} | {} |", key.path, key.meaning);
}

/// Keys that are refused because a node without them would split a cluster or weaken security.
const ALSO_REFUSED: [&str; 8] =
    ["engine", "broker", "brokers", "presence_manager", "presence_managers", "map_broker", "map_brokers", "controller"];

/// A list of the keys for whose disposition `take` returns a text, each with this text.
fn unsupported(take: fn(Disposition) -> Option<&'static str>) -> String {
    let keys = UNSUPPORTED.iter().map(|unsupported| ("", unsupported));
    let options = UNSUPPORTED_OPTIONS.iter().map(|unsupported| ("option ", unsupported));
    let mut text = String::new();
    for (prefix, unsupported) in keys.chain(options) {
        if let Some(note) = take(unsupported.disposition) {
            let note = if note.is_empty() { String::new() } else { format!(": {note}") };
            let also = if ALSO_REFUSED.contains(&unsupported.path) { " (in one case refused, see below)" } else { "" };
            let _ = writeln!(text, "- {prefix}`{}`{also}{note}", unsupported.path);
        }
    }
    text
}
