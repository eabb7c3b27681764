//! What the written tree means: the settings of the server and of the logger.
//!
//! Every key is found in a table of [`crate::keys`] or of [`crate::unsupported`], or is an error that names the nearest known one.
//! Values are brought to the type of their key, then each section goes through its own `Deserialize`.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json, json};
use touchline_engine::{ChannelOptions, ChannelSettings, Namespace};

use super::coerce::coerce;
use super::tree::{ConfigNode, ConfigValue};
use super::{Configuration, LogSettings};
use crate::finding::{Finding, Severity};
use crate::keys::{self, KEYS, Key, NAMESPACES, OPTIONS, SCOPE_OPTIONS, SCOPES, ValueKind, WITHOUT_NAMESPACE};
use crate::nearest::nearest;
use crate::unsupported::{self, Disposition, UNSUPPORTED, UNSUPPORTED_OPTIONS};
use crate::{RegistrySettings, Settings};

/// Durations above this are questioned.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// Interprets the tree. `None` if a part of it is not valid; the findings name the part.
pub(crate) fn interpret(tree: &ConfigNode, findings: &mut Vec<Finding>) -> Option<Configuration> {
    let mut reader = ConfigReader {
        findings,
        sections: Map::new(),
        without_namespace: Map::new(),
        namespaces: Vec::new(),
        scopes: Vec::new(),
    };
    if let ConfigValue::Table(table) = &tree.value {
        table.iter().for_each(|(key, node)| reader.read(key, node));
    }
    reader.finish()
}

struct ConfigReader<'a> {
    findings: &'a mut Vec<Finding>,
    /// Checked values by path.
    sections: Map<String, Json>,
    without_namespace: Map<String, Json>,
    namespaces: Vec<(String, Map<String, Json>)>,
    scopes: Vec<(String, Map<String, Json>)>,
}

impl ConfigReader<'_> {
    fn read(&mut self, path: &str, node: &ConfigNode) {
        if let Some(key) = keys::find(KEYS, path) {
            if let Some(value) = self.coerce(path, key.kind, node) {
                self.sections.insert(path.to_owned(), value);
            }
        } else if let Some(entry) = unsupported::find(UNSUPPORTED, path) {
            self.leave_out(path, entry.disposition, node);
        } else if path == NAMESPACES {
            self.read_namespaces(node);
        } else if path == SCOPES {
            self.read_scopes(node);
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
            self.without_namespace = self.read_options(path, OPTIONS, table.iter());
            let options = self.without_namespace.clone();
            self.refuse_unasked_proxies(path, node, &options);
        } else {
            table.iter().for_each(|(key, node)| self.read(&format!("{path}.{key}"), node));
        }
    }

    fn read_namespaces(&mut self, node: &ConfigNode) {
        for (name, item) in self.named_tables(NAMESPACES, node) {
            let path = format!("{NAMESPACES}[{name}]");
            let options = self.read_options(&path, OPTIONS, fields(item));
            self.refuse_unasked_proxies(&path, item, &options);
            self.namespaces.push((name, options));
        }
    }

    fn read_scopes(&mut self, node: &ConfigNode) {
        for (name, item) in self.named_tables(SCOPES, node) {
            if name.starts_with('$') {
                let text = format!("{SCOPES}[{name}].name: names that begin with $ are the server's own");
                self.findings.push(Finding::error(text, Some(&item.location)));
            }
            let options = self.read_options(&format!("{SCOPES}[{name}]"), SCOPE_OPTIONS, fields(item));
            self.scopes.push((name, options));
        }
    }

    /// The tables of a list, each with its `name`.
    fn named_tables<'n>(&mut self, path: &str, node: &'n ConfigNode) -> Vec<(String, &'n ConfigNode)> {
        let ConfigValue::List(items) = &node.value else {
            let text = format!("{path}: expected a list of tables, found {}", node.value.name());
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

    fn read_options<'n>(
        &mut self,
        path: &str,
        known: &'static [Key],
        fields: impl Iterator<Item = (&'n String, &'n ConfigNode)>,
    ) -> Map<String, Json> {
        let mut options = Map::new();
        for (name, node) in fields {
            let path = format!("{path}.{name}");
            if let Some(key) = keys::find(known, name) {
                if let Some(value) = self.coerce(&path, key.kind, node) {
                    options.insert(name.clone(), value);
                }
            } else if let Some(entry) = unsupported::find(UNSUPPORTED_OPTIONS, name) {
                self.leave_out(&path, entry.disposition, node);
            } else {
                self.refuse_unknown(&path, node);
            }
        }
        options
    }

    /// Refuses a permission beside an unsupported proxy: in Centrifugo the backend decides, here the permission would
    /// allow every client.
    fn refuse_unasked_proxies(&mut self, path: &str, node: &ConfigNode, options: &Map<String, Json>) {
        for (switch, permissions) in unsupported::PROXIED {
            let is_on = node.get(switch).is_some_and(|node| !unsupported::is_default_or_off(node));
            let permission = permissions.iter().find(|permission| options.get(**permission) == Some(&Json::Bool(true)));
            if let (true, Some(permission)) = (is_on, permission) {
                let text = format!(
                    "{path}: {switch} is not supported yet, and {permission} would hold without asking your backend; \
                     switch one of them off"
                );
                self.findings.push(Finding::error(text, Some(&node.location)));
            }
        }
    }

    fn coerce(&mut self, path: &str, kind: ValueKind, node: &ConfigNode) -> Option<Json> {
        if kind == ValueKind::Duration && is_negative(&node.value) {
            let text = format!("{path}: negative durations are ignored; using the default");
            self.findings.push(Finding::warning(text, Some(&node.location)));
            return None;
        }
        match coerce(kind, &node.value) {
            Ok(value) => {
                self.question_duration(path, kind, &value, node);
                Some(value)
            }
            Err(found) => {
                let text = format!("{path}: expected {}, found {found}", kind.name());
                self.findings.push(Finding::error(text, Some(&node.location)));
                None
            }
        }
    }

    /// Hardly anybody means more than a year: a number without a unit is nanoseconds in Centrifugo, and seconds here.
    fn question_duration(&mut self, path: &str, kind: ValueKind, value: &Json, node: &ConfigNode) {
        let found = value.as_str().filter(|_| kind == ValueKind::Duration).and_then(touchline_engine::duration::parse);
        if let Some(found) = found.filter(|found| *found > YEAR) {
            let days = found.as_secs() / 86_400;
            let text = format!(
                "{path}: {days} days, is that meant? A number without a unit is seconds here, \
                 and nanoseconds in Centrifugo"
            );
            self.findings.push(Finding::warning(text, Some(&node.location)));
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
                self.findings
                    .push(Finding::warning(format!("not supported yet: {path}{names}{consequence}"), location));
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
            .find(|whole| keys::is_section(whole) || whole.contains('.') && keys::find(KEYS, whole).is_some())
        {
            let text = format!(
                "{path}: unknown key; {whole} does not belong to the table around it: \
                 write it above the first [section], or below in its own"
            );
            return self.findings.push(Finding::error(text, Some(&node.location)));
        }
        let hint = match nearest(&shape, known.iter().map(String::as_str).chain(unsupported_key)) {
            Some(meant) => format!("; did you mean {meant}?"),
            None => "; docs/configuration.md lists all keys".into(),
        };
        self.findings.push(Finding::error(format!("{path}: unknown key{hint}"), Some(&node.location)));
    }

    /// The values of one section as a tree of their own.
    fn section<T: DeserializeOwned + Default>(&mut self, name: &str) -> T {
        let prefix = format!("{name}.");
        let mut tree = Map::new();
        for (path, value) in &self.sections {
            let Some(rest) = path.strip_prefix(&prefix) else { continue };
            match rest.split_once('.') {
                None => {
                    tree.insert(rest.to_owned(), value.clone());
                }
                Some((inner, key)) => {
                    let inner = tree.entry(inner).or_insert_with(|| json!({}));
                    inner[key] = value.clone();
                }
            }
        }
        self.build(name, Json::Object(tree))
    }

    fn build<T: DeserializeOwned + Default>(&mut self, path: &str, tree: Json) -> T {
        serde_json::from_value(tree).unwrap_or_else(|error| {
            self.findings.push(Finding::error(format!("{path}: {error}"), None));
            T::default()
        })
    }

    fn finish(mut self) -> Option<Configuration> {
        let is_faulty = |reader: &Self| reader.findings.iter().any(|finding| finding.severity == Severity::Error);
        let settings = Settings {
            http_server: self.section("http_server"),
            http_api: self.section("http_api"),
            client: self.section("client"),
            channel: self.channel(),
            websocket: self.section("websocket"),
            http_stream: self.section("http_stream"),
            sse: self.section("sse"),
            emulation: self.section("emulation"),
            uni_websocket: self.section("uni_websocket"),
            uni_http_stream: self.section("uni_http_stream"),
            uni_sse: self.section("uni_sse"),
            tcp: self.section("tcp"),
            registry: self.registry(),
            cluster: self.section("cluster"),
            store: self.section("store"),
            shutdown: self.section("shutdown"),
            node: self.section("node"),
            health: self.section("health"),
            prometheus: self.section("prometheus"),
            pages: Vec::new(),
        };
        let log = LogSettings { level: self.text("log.level", "info"), format: self.text("log.format", "text") };
        (!is_faulty(&self)).then_some(Configuration { settings, log })
    }

    fn registry(&mut self) -> RegistrySettings {
        let mut scopes = Vec::new();
        for (name, mut options) in std::mem::take(&mut self.scopes) {
            options.insert("name".into(), json!(name));
            scopes.push(self.build(&format!("{SCOPES}[{name}]"), Json::Object(options)));
        }
        RegistrySettings { scopes }
    }

    fn channel(&mut self) -> ChannelSettings {
        let without_namespace = std::mem::take(&mut self.without_namespace);
        let without_namespace: ChannelOptions = self.build(WITHOUT_NAMESPACE, Json::Object(without_namespace));
        let mut namespaces = Vec::new();
        for (name, options) in std::mem::take(&mut self.namespaces) {
            let options = self.build(&format!("{NAMESPACES}[{name}]"), Json::Object(options));
            namespaces.push(Namespace { name, options });
        }
        let defaults = ChannelSettings::default();
        let number = |path: &str| self.sections.get(path).and_then(Json::as_u64).and_then(|n| usize::try_from(n).ok());
        let duration =
            |path: &str| self.sections.get(path).and_then(Json::as_str).and_then(touchline_engine::duration::parse);
        ChannelSettings {
            history_meta_ttl: duration("channel.history_meta_ttl").unwrap_or(defaults.history_meta_ttl),
            max_length: number("channel.max_length").unwrap_or(defaults.max_length),
            private_prefix: self.text("channel.private_prefix", &defaults.private_prefix),
            namespace_boundary: self.text("channel.namespace_boundary", &defaults.namespace_boundary),
            user_boundary: self.text("channel.user_boundary", &defaults.user_boundary),
            user_separator: self.text("channel.user_separator", &defaults.user_separator),
            idempotency_key_max_length: number("channel.idempotency_key_max_length")
                .unwrap_or(defaults.idempotency_key_max_length),
            tags_filter_max_nodes: number("channel.tags_filter_max_nodes").unwrap_or(defaults.tags_filter_max_nodes),
            tags_filter_max_size: number("channel.tags_filter_max_size").unwrap_or(defaults.tags_filter_max_size),
            empty_channels_max: number("channel.empty_channels_max").unwrap_or(defaults.empty_channels_max),
            without_namespace,
            namespaces,
        }
    }

    fn text(&self, path: &str, default: &str) -> String {
        self.sections.get(path).and_then(Json::as_str).unwrap_or(default).to_owned()
    }
}

/// Whether a value is a duration below zero.
fn is_negative(value: &ConfigValue) -> bool {
    let ConfigValue::Text(text) = value else { return false };
    text.strip_prefix('-').is_some_and(|rest| touchline_engine::duration::parse(rest).is_some())
}

/// The fields of a named table, besides its name.
fn fields(item: &ConfigNode) -> impl Iterator<Item = (&String, &ConfigNode)> {
    let ConfigValue::Table(table) = &item.value else { return None.into_iter().flatten() };
    Some(table.iter().filter(|(key, _)| *key != "name")).into_iter().flatten()
}

/// `channel.namespaces[chat].x` as `channel.namespaces[].x`.
fn without_names(path: &str) -> String {
    match (path.find('['), path.find(']')) {
        (Some(open), Some(close)) if open < close => format!("{}{}", &path[..=open], &path[close..]),
        _ => path.to_owned(),
    }
}
