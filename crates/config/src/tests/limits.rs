//! Generates `docs/reference/limits.md` from the table of limits. The tests check that the file in the repository is up
//! to date and that no limit is missing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::pages::{fill, is_up_to_date};
use crate::keys::{CONSUMER_OPTIONS, EVENT_OPTIONS, KEYS, Key, OPTIONS, SCOPE_OPTIONS};
use crate::limits::{FIXED, LIMITS, NO_FIXED, NO_LIMITS};

/// The prose of the page.
const PROSE: &str = include_str!("pages/limits.md.in");

/// Crates with constants that limit the input from clients, backends and other nodes.
const BOUNDING: &[&str] = &["protocol", "registry", "engine", "store", "cluster", "config", "server"];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All keys, with their names in the table of limits.
fn keys() -> impl Iterator<Item = (String, &'static Key)> {
    let options = OPTIONS.iter().map(|key| (format!("channel.{}", key.path), key));
    let scopes = SCOPE_OPTIONS.iter().map(|key| (format!("scope.{}", key.path), key));
    let events = EVENT_OPTIONS.iter().map(|key| (format!("events.{}", key.path), key));
    let consumers = CONSUMER_OPTIONS.iter().map(|key| (format!("consumer.{}", key.path), key));
    let of_lists = events.chain(consumers);
    KEYS.iter().map(|key| (key.path.clone(), key)).chain(options).chain(scopes).chain(of_lists)
}

/// Whether the name of a key sounds like a limit.
fn sounds_like_a_limit(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or_default();
    let within = ["limit", "_max", "max_"].iter().any(|part| name.contains(part));
    within || ["_size", "_timeout", "_delay", "_queue", "_rate", "backlog"].iter().any(|end| name.ends_with(end))
}

#[test]
fn the_reference_of_limits_is_up_to_date() {
    is_up_to_date("docs/reference/limits.md", &reference());
}

#[test]
fn every_key_that_is_called_as_a_limit_is_told_of() {
    let told: BTreeSet<&str> = LIMITS.iter().map(|limit| limit.path).chain(NO_LIMITS.iter().copied()).collect();
    let missing: Vec<String> = keys()
        .map(|(path, _)| path)
        .filter(|path| sounds_like_a_limit(path) && !told.contains(path.as_str()))
        .collect();
    assert!(missing.is_empty(), "write into LIMITS (or NO_LIMITS) of config/limits.rs: {missing:?}");
    let there: BTreeSet<String> = keys().map(|(path, _)| path).collect();
    let gone: Vec<&str> = told.into_iter().filter(|path| !there.contains(*path)).collect();
    assert!(gone.is_empty(), "no such keys: {gone:?}");
}

#[test]
fn every_constant_that_is_called_as_a_limit_is_told_of() {
    let mut missing = Vec::new();
    for file in BOUNDING.iter().flat_map(|name| sources(&crates().join(name).join("src"))) {
        let text = std::fs::read_to_string(&file).expect("sources are text");
        let file = file.strip_prefix(crates()).expect("the file is below it").display().to_string();
        for name in text.lines().filter_map(constant).map(|(name, _)| name).filter(|name| name.ends_with("_MAX")) {
            let is_told = FIXED.iter().any(|fixed| (fixed.file, fixed.name) == (file.as_str(), name));
            if !is_told && !NO_FIXED.contains(&(file.as_str(), name)) {
                missing.push(format!("{file} {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "write into FIXED (or NO_FIXED) of config/limits.rs: {missing:?}");
    NO_FIXED.iter().for_each(|(file, name)| drop(value(file, name)));
}

/// All source files below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the directory is there").flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    found.sort();
    found
}

/// Name and value of the constant of a line, if there is one.
fn constant(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.split_once("const ")?.1.split_once(':')?;
    let (_, value) = rest.split_once(" = ")?;
    Some((name, value.strip_suffix(';')?))
}

/// The value of a constant as the source has it, without underscores.
fn value(file: &str, name: &str) -> String {
    let text = std::fs::read_to_string(crates().join(file)).unwrap_or_else(|_| panic!("there is no {file}"));
    let found = text.lines().filter_map(constant).find(|(found, _)| *found == name);
    let (_, value) = found.unwrap_or_else(|| panic!("{file} has no {name}"));
    value.replace('_', "")
}

fn reference() -> String {
    fill(PROSE, &[("@limits@", settable_limits()), ("@fixed@", fixed_limits())])
}

/// The tables of limits that can be set: for the server, namespaces, scopes, endpoints of events, and consumers.
fn settable_limits() -> String {
    let mut text = String::new();
    for (heading, of) in [
        ("", LimitSource::Server),
        ("\n### Limits of a channel namespace\n", LimitSource::Namespace),
        ("\n### Limits of a registry scope\n", LimitSource::Scope),
        ("\n### Limits of an event endpoint\n", LimitSource::Events),
        ("\n### Limits of a consumer\n", LimitSource::Consumer),
    ] {
        text.push_str(heading);
        text.push_str("\n| key | default | what it limits | what happens at the limit |\n|---|---|---|---|\n");
        for limit in LIMITS {
            let (_, key) =
                keys().find(|(path, _)| path == limit.path).unwrap_or_else(|| panic!("no key {}", limit.path));
            if LimitSource::which(limit.path, key) == of {
                let _ = writeln!(text, "| `{}` | `{}` | {} | {} |", key.path, key.default, limit.protects, limit.told);
            }
        }
    }
    text
}

/// A value as a reader sees it: a Rust duration becomes a number with its unit.
fn shown(value: &str) -> String {
    let durations = [("Duration::fromsecs(", "s"), ("Duration::frommillis(", "ms")];
    let with_unit = durations.iter().find_map(|(function, unit)| {
        let number = value.strip_prefix(function)?.strip_suffix(')')?;
        Some(format!("{number} {unit}"))
    });
    with_unit.unwrap_or_else(|| value.to_owned())
}

/// The rows of the table of limits that are constants in the code.
fn fixed_limits() -> String {
    let mut text = String::new();
    for fixed in FIXED {
        let value = shown(&value(fixed.file, fixed.name));
        let _ = writeln!(
            text,
            "| `{}` of `crates/{}` | {value} | {} | {} |",
            fixed.name, fixed.file, fixed.what, fixed.told
        );
    }
    text
}

/// The part of the configuration that a limit belongs to.
#[derive(PartialEq)]
enum LimitSource {
    Server,
    Namespace,
    Scope,
    Events,
    Consumer,
}

impl LimitSource {
    fn which(path: &str, key: &Key) -> LimitSource {
        match path.split_once('.') {
            Some(("channel", name)) if name == key.path => LimitSource::Namespace,
            Some(("scope", name)) if name == key.path => LimitSource::Scope,
            Some(("events", name)) if name == key.path => LimitSource::Events,
            Some(("consumer", name)) if name == key.path => LimitSource::Consumer,
            _ => LimitSource::Server,
        }
    }
}
