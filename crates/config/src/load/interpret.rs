//! Converts the written tree to the settings of the server and of the log.
//!
//! Every key is in a table of [`crate::keys`] or of [`crate::unsupported`]; any other key is an error that names the
//! nearest known key. Each value is read once, into the field of its key.

use std::time::Duration;

use touchline_engine::directory::ScopeOptions;
use touchline_engine::hook::{NamedProxy, ProxySettings, RpcNamespace, RpcOptions};
use touchline_engine::setting::SettingsTable;
use touchline_engine::{ChannelOptions, Namespace, ProviderOptions, TokenProvider, duration};

use super::tree::{ConfigNode, ConfigValue};
use crate::configuration::Configuration;
use crate::finding::{Finding, Severity};
use crate::item_path::item_path;
use crate::keys::{
    self, API_KEY_OPTIONS, API_KEYS, CONSUMER_OPTIONS, CONSUMERS, EVENT_OPTIONS, EVENTS, KEYS, Key, LISTS, NAMESPACES,
    OPTIONS, PROVIDER_OPTIONS, PROXIES, PROXY_OPTIONS, RPC_NAMESPACES, RPC_OPTIONS, SCOPE_OPTIONS, SCOPES,
    TOKEN_PROVIDERS, ValueKind, WITHOUT_NAMESPACE,
};
use crate::nearest::nearest;
use crate::pem::is_inline_pem;
use crate::settings::{ApiKeySettings, ConsumerSettings, EventsSettings, NamedApiKey, NamedConsumer, NamedEvents};
use crate::unsupported::{self, Disposition, UNSUPPORTED, UNSUPPORTED_OPTIONS};

/// Longer durations cause a warning.
const YEAR: Duration = Duration::from_hours(366 * 24);

/// Converts the tree to a configuration. `None` = a part of it is not valid, and the findings name it.
pub(crate) fn interpret(tree: &ConfigNode, findings: &mut Vec<Finding>) -> Option<Configuration> {
    let mut reader = ConfigReader { findings, hints: 0, configuration: Configuration::default() };
    if let ConfigValue::Table(table) = &tree.value {
        table.iter().for_each(|(key, node)| reader.read_key("", key, node));
    }
    let ConfigReader { findings, configuration, .. } = reader;
    findings.iter().all(|finding| finding.severity != Severity::Error).then_some(configuration)
}

/// Maximum number of unknown keys that get a hint at the nearest known key, because the search takes time.
const HINTS_MAX: usize = 50;

struct ConfigReader<'a> {
    findings: &'a mut Vec<Finding>,
    /// The number of hints so far.
    hints: usize,
    /// The defaults, overridden by the values read so far.
    configuration: Configuration,
}

impl ConfigReader<'_> {
    /// Reads a key and its value. `above` is the path of its table. A key with a dot is refused: it would be a second
    /// way to write a key of a table, which variables and flags could not override.
    fn read_key(&mut self, above: &str, key: &str, node: &ConfigNode) {
        let path = if above.is_empty() { key.to_owned() } else { format!("{above}.{key}") };
        if key.contains('.') {
            let text = format!("{path}: a key must not contain a dot: write {key:?} as a table with a key");
            return self.findings.push(Finding::error(text, Some(&node.location)));
        }
        self.read(&path, node);
    }

    fn read(&mut self, path: &str, node: &ConfigNode) {
        if let Some(key) = keys::find(&KEYS, path) {
            fill(self.findings, &mut self.configuration, path, key, node);
        } else if let Some(entry) = unsupported::find(UNSUPPORTED, path) {
            self.leave_out(path, entry.disposition, node);
        } else if let Some((list, _)) = LISTS.iter().find(|(list, _)| *list == path) {
            self.read_list(list, node);
        } else if keys::is_section(path) || unsupported::is_above(path) {
            self.read_section(path, node);
        } else {
            self.refuse_unknown(path, node);
        }
    }

    fn read_section(&mut self, path: &str, node: &ConfigNode) {
        let ConfigValue::Table(table) = &node.value else {
            let text = format!("{path}: expected a table, found {}", node.value.name());
            return self.findings.push(Finding::error(text, Some(&node.location)));
        };
        if path == WITHOUT_NAMESPACE {
            let mut options = ChannelOptions::default();
            self.read_options(path, &OPTIONS, &mut options, table.iter());
            self.configuration.settings.channel.without_namespace = options;
        } else {
            table.iter().for_each(|(key, node)| self.read_key(path, key, node));
        }
    }

    fn read_list(&mut self, list: &'static str, node: &ConfigNode) {
        match list {
            NAMESPACES => self.read_namespaces(node),
            SCOPES => self.read_scopes(node),
            PROXIES => self.read_proxies(node),
            RPC_NAMESPACES => self.read_rpc_namespaces(node),
            API_KEYS => self.read_api_keys(node),
            EVENTS => self.read_events(node),
            CONSUMERS => self.read_consumers(node),
            _ => self.read_providers(list, node),
        }
    }

    fn read_namespaces(&mut self, node: &ConfigNode) {
        for (name, item) in self.named_tables(NAMESPACES, node) {
            let path = format!("{NAMESPACES}[{name}]");
            let mut options = ChannelOptions::default();
            self.read_options(&path, &OPTIONS, &mut options, fields(item));
            self.configuration.settings.channel.namespaces.push(Namespace { name, options });
        }
    }

    fn read_scopes(&mut self, node: &ConfigNode) {
        for (name, item) in self.named_tables(SCOPES, node) {
            if name.starts_with('$') {
                let text = format!("{SCOPES}[{name}].name: names that begin with $ are reserved for the server");
                self.findings.push(Finding::error(text, Some(&item.location)));
            }
            let path = format!("{SCOPES}[{name}]");
            let mut options = ScopeOptions { name, ..ScopeOptions::default() };
            self.read_options(&path, &SCOPE_OPTIONS, &mut options, fields(item));
            self.configuration.settings.registry.scopes.push(options);
        }
    }

    fn read_proxies(&mut self, node: &ConfigNode) {
        for (name, item) in self.named_tables(PROXIES, node) {
            let path = format!("{PROXIES}[{name}]");
            let mut proxy = ProxySettings::default();
            self.read_options(&path, &PROXY_OPTIONS, &mut proxy, fields(item));
            self.configuration.settings.proxies.push(NamedProxy { name, proxy });
        }
    }

    fn read_rpc_namespaces(&mut self, node: &ConfigNode) {
        for (name, item) in self.named_tables(RPC_NAMESPACES, node) {
            let path = format!("{RPC_NAMESPACES}[{name}]");
            let mut options = RpcOptions::default();
            self.read_options(&path, &RPC_OPTIONS, &mut options, fields(item));
            self.configuration.settings.rpc.namespaces.push(RpcNamespace { name, options });
        }
    }

    fn read_api_keys(&mut self, node: &ConfigNode) {
        for (index, (name, item)) in self.named_tables(API_KEYS, node).into_iter().enumerate() {
            let path = item_path(API_KEYS, index, &name);
            let mut options = ApiKeySettings::default();
            self.read_options(&path, &API_KEY_OPTIONS, &mut options, fields(item));
            self.configuration.settings.http_api.keys.push(NamedApiKey { name, options });
        }
    }

    fn read_events(&mut self, node: &ConfigNode) {
        for (index, (name, item)) in self.named_tables(EVENTS, node).into_iter().enumerate() {
            let path = item_path(EVENTS, index, &name);
            let mut options = EventsSettings::default();
            self.read_options(&path, &EVENT_OPTIONS, &mut options, fields(item));
            self.configuration.settings.events.push(NamedEvents { name, options });
        }
    }

    fn read_consumers(&mut self, node: &ConfigNode) {
        for (index, (name, item)) in self.named_tables(CONSUMERS, node).into_iter().enumerate() {
            let path = item_path(CONSUMERS, index, &name);
            let mut options = ConsumerSettings::default();
            self.read_options(&path, &CONSUMER_OPTIONS, &mut options, fields(item));
            self.configuration.settings.consumers.push(NamedConsumer { name, options });
        }
    }

    fn read_providers(&mut self, list: &'static str, node: &ConfigNode) {
        for (index, (name, item)) in self.named_tables(list, node).into_iter().enumerate() {
            let path = item_path(list, index, &name);
            let mut options = ProviderOptions::default();
            self.read_options(&path, &PROVIDER_OPTIONS, &mut options, fields(item));
            let client = &mut self.configuration.settings.client;
            let token = if list == TOKEN_PROVIDERS { &mut client.token } else { &mut client.subscription_token.token };
            token.jwks.providers.push(TokenProvider { name, options });
        }
    }

    /// The tables of a list, each with its `name`. Items without a name become findings.
    fn named_tables<'n>(&mut self, path: &str, node: &'n ConfigNode) -> Vec<(String, &'n ConfigNode)> {
        let ConfigValue::List(items) = &node.value else {
            let is_table = matches!(node.value, ConfigValue::Table(_));
            let hint = if is_table { format!(": in TOML write [[{path}]]") } else { String::new() };
            let text = format!("{path}: expected a list of tables, found {}{hint}", node.value.name());
            self.findings.push(Finding::error(text, Some(&node.location)));
            return Vec::new();
        };
        let mut named = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let ConfigValue::Table(_) = &item.value else {
                let text = format!("{path}[{index}]: expected a table, found {}", item.value.name());
                self.findings.push(Finding::error(text, Some(&item.location)));
                continue;
            };
            match item.text("name") {
                Some(name) => named.push((name.to_owned(), item)),
                None => self.findings.push(Finding::error(
                    format!("{path}[{index}].name: expected text, found none"),
                    Some(&item.location),
                )),
            }
        }
        named
    }

    /// Reads the fields of one table of a list, or of `channel.without_namespace`.
    fn read_options<'n>(
        &mut self,
        path: &str,
        known: &[Key],
        options: &mut dyn SettingsTable,
        fields: impl Iterator<Item = (&'n String, &'n ConfigNode)>,
    ) {
        for (name, node) in fields {
            let path = format!("{path}.{name}");
            self.read_option(&path, name, known, options, node);
        }
    }

    /// Reads one field, or the fields below it if its value is a table.
    fn read_option(
        &mut self,
        path: &str,
        name: &str,
        known: &[Key],
        options: &mut dyn SettingsTable,
        node: &ConfigNode,
    ) {
        let lies_beneath = |key: &Key| key.path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        if let Some(key) = keys::find(known, name) {
            fill(self.findings, options, path, key, node);
        } else if let (true, ConfigValue::Table(table)) = (known.iter().any(lies_beneath), &node.value) {
            for (inner, node) in table {
                self.read_option(&format!("{path}.{inner}"), &format!("{name}.{inner}"), known, options, node);
            }
        } else if let Some(entry) = unsupported::find(UNSUPPORTED_OPTIONS, name) {
            self.leave_out(path, entry.disposition, node);
        } else {
            self.refuse_unknown(path, node);
        }
    }

    fn leave_out(&mut self, path: &str, disposition: Disposition, node: &ConfigNode) {
        let says_nothing = if matches!(disposition, Disposition::Refused(_)) {
            unsupported::is_empty
        } else {
            unsupported::is_default_or_off
        };
        if says_nothing(node) {
            return;
        }
        let location = Some(&node.location);
        match disposition {
            Disposition::Ignored => {}
            Disposition::LeftOut(consequence) => {
                let consequence = if consequence.is_empty() { String::new() } else { format!("; {consequence}") };
                let names = unsupported::names_within(node);
                self.findings.push(Finding::warning(format!("{}{names}{consequence}", left_out(path)), location));
            }
            Disposition::Refused(reason) => {
                self.findings.push(Finding::error(format!("not supported yet: {path}; {reason}"), location))
            }
        }
    }

    fn refuse_unknown(&mut self, path: &str, node: &ConfigNode) {
        let known = keys::paths();
        let unsupported_key = UNSUPPORTED.iter().map(|unsupported_key| unsupported_key.path);
        let shape = without_names(path);
        let above = shape.match_indices('.').map(|(at, _)| &shape[at + 1..]);
        if let Some(whole) = above
            .into_iter()
            .find(|whole| keys::is_section(whole) || whole.contains('.') && keys::find(&KEYS, whole).is_some())
        {
            let text = format!(
                "{path}: unknown key; {whole} does not belong in this table: \
                 write it above the first [section], or in its own section"
            );
            return self.findings.push(Finding::error(text, Some(&node.location)));
        }
        self.hints += 1;
        if self.hints > HINTS_MAX {
            return self.findings.push(Finding::error(format!("{path}: unknown key"), Some(&node.location)));
        }
        let hint = match nearest(&shape, known.iter().map(String::as_str).chain(unsupported_key)) {
            Some(meant) => format!("; did you mean {meant}?"),
            None => "; docs/reference/configuration.md lists all keys".into(),
        };
        self.findings.push(Finding::error(format!("{path}: unknown key{hint}"), Some(&node.location)));
    }
}

/// Reads a value into the field of a key. `path` is the key's path for findings.
/// The beginning of the warning about an unsupported key or section.
pub(crate) fn left_out(path: &str) -> String {
    format!("not supported yet: {path}")
}

fn fill(findings: &mut Vec<Finding>, table: &mut dyn SettingsTable, path: &str, key: &Key, node: &ConfigNode) {
    let location = Some(&node.location);
    if key.kind == ValueKind::Duration && is_negative(&node.value) {
        let text = format!("{path}: negative durations are ignored; using the default");
        return findings.push(Finding::warning(text, location));
    }
    // PEM in a list of texts would become single words, which nothing recognizes as a secret.
    let is_key = key.kind == ValueKind::Texts && matches!(&node.value, ConfigValue::Text(text) if is_inline_pem(text));
    let filled = if is_key { Some(Err(None)) } else { table.set(&key.path, &node.value.written()) };
    match filled {
        Some(Ok(filled)) => {
            // A duration of more than a year is probably a number without a unit, which is nanoseconds in Centrifugo.
            if let Some(found) = filled.duration.filter(|found| *found > YEAR) {
                let days = found.as_secs() / 86_400;
                let text = format!(
                    "{path}: {days} days, is that intended? A number without a unit is seconds here, \
                     and nanoseconds in Centrifugo"
                );
                findings.push(Finding::warning(text, location));
            }
        }
        Some(Err(reason)) => {
            let found = reason.unwrap_or_else(|| node.value.found(key.kind));
            let text = format!("{path}: expected {}, found {found}", key.kind.name());
            findings.push(Finding::error(text, location));
        }
        None => unreachable!("{path} is a key of the table that it was found in"),
    }
}

/// Whether a value is a negative duration.
fn is_negative(value: &ConfigValue) -> bool {
    let ConfigValue::Text(text) = value else { return false };
    text.strip_prefix('-').is_some_and(|rest| duration::parse(rest).is_some())
}

/// The fields of a named table, without `name`.
fn fields(item: &ConfigNode) -> impl Iterator<Item = (&String, &ConfigNode)> {
    let ConfigValue::Table(table) = &item.value else { return None.into_iter().flatten() };
    Some(table.iter().filter(|(key, _)| *key != "name")).into_iter().flatten()
}

/// The path without the name of a list item: `channel.namespaces[chat].x` becomes `channel.namespaces[].x`.
fn without_names(path: &str) -> String {
    match (path.find('['), path.find(']')) {
        (Some(open), Some(close)) if open < close => format!("{}{}", &path[..=open], &path[close..]),
        _ => path.to_owned(),
    }
}
