//! Environment variables: `TOUCHLINE_<SECTION>_<KEY>`, and by the same rule `CENTRIFUGO_…` for users of Centrifugo.
//!
//! An option of a namespace in the file is `TOUCHLINE_CHANNEL_NAMESPACES_<NAME>_<OPTION>`, and an option of a consumer
//! is `TOUCHLINE_CONSUMERS_<NAME>_<OPTION>`.

use super::secrets::{file_key, may_be_in_file};
use super::tree::{ConfigNode, ConfigValue, Location};
use crate::finding::Finding;
use crate::keys::{
    API_KEYS, CONSUMER_OPTIONS, CONSUMERS, EVENTS, KEYS, Key, LISTS, NAMESPACES, OPTIONS, SUBSCRIPTION_TOKEN_PROVIDERS,
    TOKEN_PROVIDERS, WITHOUT_NAMESPACE,
};
use crate::nearest::nearest;
use crate::unsupported::{UNSUPPORTED, UNSUPPORTED_OPTIONS};

/// The prefixes of variables. Later ones override earlier ones: `TOUCHLINE_` overrides `CENTRIFUGO_`.
const PREFIXES: [&str; 2] = ["CENTRIFUGO_", "TOUCHLINE_"];

/// The variable with the path of the configuration file. It is not a key.
const FILE: &str = "TOUCHLINE_CONFIG";

/// Overrides values of the file's tree with those of environment variables.
pub(crate) fn apply(variables: &[(String, String)], tree: &mut ConfigNode, findings: &mut Vec<Finding>) {
    for prefix in PREFIXES {
        let mut mine: Vec<(&str, &str, &str)> = variables
            .iter()
            .filter(|(name, _)| name != FILE)
            .filter_map(|(name, value)| Some((name.as_str(), name.strip_prefix(prefix)?, value.as_str())))
            .collect();
        // A list is applied before the options of its entries.
        let is_list = |suffix: &str| LISTS.iter().any(|(list, _)| suffix == variable(list));
        mine.sort_by_key(|(_, suffix, _)| (!is_list(suffix), *suffix));
        for (name, suffix, value) in mine {
            apply_one(name, suffix, value, tree, findings);
        }
    }
}

fn apply_one(name: &str, suffix: &str, value: &str, tree: &mut ConfigNode, findings: &mut Vec<Finding>) {
    let location = Location::Variable(name.to_owned());
    let node = ConfigNode { location: location.clone(), value: ConfigValue::Text(value.to_owned()) };
    // This holds even where a key has this name, as for a Kubernetes service `touchline-http-server`.
    if is_someone_elses(suffix, value) {
        return;
    }
    if let Some((path, _)) = LISTS.iter().find(|(path, _)| suffix == variable(path)) {
        let is_list = value.trim_start().starts_with('[');
        match named_tables(value, &location, tree.get(path)) {
            Some(list) if is_list || !needs_secrets(path) => tree.set(path, list),
            // A name here may be a secret, because a mistyped variable of a secret may have the name of this list.
            _ if needs_secrets(path) => {
                findings.push(Finding::error(format!("{path}: expected a JSON list"), Some(&location)));
            }
            _ => findings.push(Finding::error(format!("{path}: expected a JSON list or names"), Some(&location))),
        }
    } else if let Some(path) = path_of(suffix) {
        tree.set(&path, node);
    } else if let Some(section) = section_of(suffix) {
        // Ignoring the value could permit more than the operator intends.
        match serde_json::from_str(value).ok().and_then(|json| ConfigNode::from_json(json, &location)) {
            Some(node @ ConfigNode { value: ConfigValue::Table(_), .. }) => set_all(tree, &section, node),
            _ => findings.push(Finding::error(format!("{section}: expected a JSON object"), Some(&location))),
        }
    } else if let Some((item, option)) = item_option(suffix, tree) {
        item.set(&option, node);
    } else {
        let known = KEYS.iter().map(|key| key.path.as_str());
        let hint = nearest(suffix, known)
            .map_or(String::new(), |path| format!("; did you mean {}{}?", PREFIXES[1], variable(path)));
        findings.push(Finding::warning(format!("no key has this name{hint}"), Some(&location)));
    }
}

/// Whether the items of a list may contain secrets.
pub(super) fn needs_secrets(list: &str) -> bool {
    [API_KEYS, CONSUMERS, EVENTS, SUBSCRIPTION_TOKEN_PROVIDERS, TOKEN_PROVIDERS].contains(&list)
}

/// The name of a key's environment variable, without its prefix.
pub(crate) fn variable(path: &str) -> String {
    path.replace(['.', '-'], "_").to_ascii_uppercase()
}

/// The section that a variable stands for. The value of such a variable is a JSON object with keys of the section.
fn section_of(suffix: &str) -> Option<String> {
    let above = |path: &'static str| path.match_indices('.').map(move |(at, _)| &path[..at]);
    let mut sections = KEYS.iter().flat_map(|key| above(&key.path));
    sections.find(|section| variable(section) == suffix).map(str::to_owned)
}

/// Writes the values of a table below a path, key by key.
fn set_all(tree: &mut ConfigNode, path: &str, node: ConfigNode) {
    match node.value {
        ConfigValue::Table(table) if !KEYS.iter().any(|key| key.path == path) => {
            for (key, node) in table {
                set_all(tree, &format!("{path}.{key}"), node);
            }
        }
        value => tree.set(path, ConfigNode { location: node.location, value }),
    }
}

fn path_of(suffix: &str) -> Option<String> {
    let option = suffix.strip_prefix(variable(WITHOUT_NAMESPACE).as_str()).and_then(|rest| rest.strip_prefix('_'));
    if let Some(path) = option.and_then(option_path) {
        return Some(format!("{WITHOUT_NAMESPACE}.{path}"));
    }
    if let Some(Key { path, .. }) = KEYS.iter().find(|key| variable(&key.path) == suffix) {
        return Some(path.clone());
    }
    let in_file = |key: &&Key| may_be_in_file(key) && variable(&file_key(&key.path)) == suffix;
    if let Some(Key { path, .. }) = KEYS.iter().find(in_file) {
        return Some(file_key(path));
    }
    let unsupported_key =
        UNSUPPORTED.iter().map(|unsupported_key| (unsupported_key.path, variable(unsupported_key.path)));
    let (path, rest) = unsupported_key
        .filter_map(|(path, name)| Some((path, suffix.strip_prefix(&name)?)))
        .max_by_key(|(path, _)| path.len())?;
    match rest.strip_prefix('_') {
        Some(inner) => Some(format!("{path}.{}", inner.to_ascii_lowercase())),
        None => rest.is_empty().then(|| path.to_owned()),
    }
}

/// The path of a channel option for the end of a variable's name. It may be below an option that is a section.
fn option_path(end: &str) -> Option<String> {
    let known = || {
        OPTIONS
            .iter()
            .map(|key| key.path.as_str())
            .chain(UNSUPPORTED_OPTIONS.iter().map(|unsupported_key| unsupported_key.path))
    };
    if let Some(path) = known().find(|path| variable(path) == end) {
        return Some(path.to_owned());
    }
    let beneath = |path: &'static str| Some((path, end.strip_prefix(variable(path).as_str())?.strip_prefix('_')?));
    let sections = UNSUPPORTED_OPTIONS.iter().filter_map(|unsupported_key| beneath(unsupported_key.path));
    let (path, inner) = sections.max_by_key(|(path, _)| path.len())?;
    Some(format!("{path}.{}", inner.to_ascii_lowercase()))
}

/// The entry of `channel.namespaces` or `consumers` that a variable names, and the path of the option.
fn item_option<'t>(suffix: &str, tree: &'t mut ConfigNode) -> Option<(&'t mut ConfigNode, String)> {
    let of_list = |list| suffix.strip_prefix(variable(list).as_str())?.strip_prefix('_');
    let (list, rest, option_path): (_, _, fn(&str) -> Option<String>) = match of_list(NAMESPACES) {
        Some(rest) => (NAMESPACES, rest, option_path),
        None => (CONSUMERS, of_list(CONSUMERS)?, consumer_option),
    };
    tree.list_mut(list)?.iter_mut().find_map(|item| {
        let option = rest.strip_prefix(variable(item.text("name")?).as_str())?.strip_prefix('_')?;
        let path = if option == "NAME" { "name".to_owned() } else { option_path(option)? };
        Some((item, path))
    })
}

/// The path of a consumer's option for the end of a variable's name.
fn consumer_option(end: &str) -> Option<String> {
    let paths = CONSUMER_OPTIONS.iter().map(|key| key.path.clone());
    let files = CONSUMER_OPTIONS.iter().filter(|key| may_be_in_file(key)).map(|key| file_key(&key.path));
    paths.chain(files).find(|path| variable(path) == end)
}

/// A JSON list of tables, or a list of names separated by spaces. An entry that is already known keeps its options.
/// `None` = the text is not a valid list.
pub(super) fn named_tables(text: &str, location: &Location, known: Option<&ConfigNode>) -> Option<ConfigNode> {
    if text.trim_start().starts_with('[') {
        return ConfigNode::from_json(serde_json::from_str(text).ok()?, location);
    }
    let known = known
        .and_then(|known| if let ConfigValue::List(items) = &known.value { Some(items.as_slice()) } else { None })
        .unwrap_or_default();
    let named = |name: &str| {
        if let Some(item) = known.iter().find(|item| item.text("name") == Some(name)) {
            return item.clone();
        }
        let mut item = ConfigNode::empty_table(location.clone());
        item.set("name", ConfigNode { location: location.clone(), value: ConfigValue::Text(name.to_owned()) });
        item
    };
    Some(ConfigNode {
        location: location.clone(),
        value: ConfigValue::List(text.split_whitespace().map(named).collect()),
    })
}

/// Whether a variable is not one of the server's. Kubernetes sets `TOUCHLINE_SERVICE_HOST`, `TOUCHLINE_SERVICE_PORT…`,
/// `TOUCHLINE_PORT=tcp://…` and `TOUCHLINE_PORT_8000_TCP…` for a service of that name, and `TOUCHLINE_API_…` for a
/// service `touchline-api`. Names with `…_VAR_…` are free for the operator.
fn is_someone_elses(suffix: &str, value: &str) -> bool {
    if suffix.starts_with("VAR_") {
        return true;
    }
    let words: Vec<&str> = suffix.split('_').collect();
    let is_protocol = |word: &str| matches!(word, "TCP" | "UDP" | "SCTP");
    (0..words.len()).any(|at| match &words[at..] {
        ["SERVICE", "HOST"] | ["SERVICE", "PORT", ..] => true,
        ["PORT"] => value.contains("://"),
        ["PORT", number, protocol] | ["PORT", number, protocol, "PROTO" | "PORT" | "ADDR"] => {
            number.parse::<u16>().is_ok() && is_protocol(protocol)
        }
        _ => false,
    })
}
