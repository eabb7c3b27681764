//! Keys of the configuration, configurations that a reader can copy, and other names whose words are joined by dots or
//! underscores.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use touchline_config::keys::{CONSUMER_OPTIONS, KEYS, LISTS, PROVIDER_OPTIONS, PROXY_OPTIONS, find};
use touchline_config::{ConfigOutcome, Flags, Severity, Sources};
use touchline_engine::directory::RegistryMethod;
use touchline_engine::events::EventKind;
use touchline_server::PROBES;

use super::{Mention, judge, made_up, present_pages};
use touchline_house::files::{report, root, walk};
use touchline_house::markdown::{Page, PartKind, is_snake, parts, words};

/// Names with dots that are not keys.
const OTHER_PATHS: &[(&str, &str)] = &[
    ("metrics.items", "a field of an answer"),
    ("process.cpu", "a field of an answer"),
    ("process.rss", "a field of an answer"),
    ("refresh.info", "a field of a request"),
    ("since.offset", "a field of a request"),
    ("p.hello", "a subject of NATS"),
    ("p.v1.order", "a subject of NATS"),
    ("stats.track", "a method of a session"),
    ("reactions.add", "a method of a session"),
    ("[ab]", "a glob"),
    ("touchline.caller", "an attribute of a span"),
    ("touchline.error.code", "an attribute of a span"),
    ("touchline.events", "an attribute of a span"),
    ("touchline.hook", "an attribute of a span"),
    ("touchline.request_id", "an attribute of a span"),
    ("rpc.method", "an attribute of a span"),
    ("service.version", "an attribute of spans"),
    ("service.instance.id", "an attribute of spans"),
    ("host.name", "an attribute of spans"),
];

/// Names with underscores that the sources of this repository do not have.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("full_page_writes", "a setting of PostgreSQL"),
    ("max_msgs_per_subject", "a setting of JetStream"),
    ("parentbased_always_on", "a sampler of OpenTelemetry"),
    ("process_cpu_seconds_total", "a metric that every program has"),
];

/// Extensions of file names, which contain dots too.
const FILES: &[&str] = &["html", "js", "json", "md", "mjs", "proto", "py", "rs", "sh", "toml"];

/// Whether a text consists of words joined by dots, such as `client.ping_interval` or `channel.namespaces[].name`.
fn is_dotted(text: &str) -> bool {
    let plain = text.replace("[]", "");
    plain.contains('.')
        && plain.split('.').all(is_snake)
        && !plain.rsplit('.').next().is_some_and(|end| FILES.contains(&end))
}

/// The keys and sections that a page names.
fn paths(page: &Page) -> Vec<Mention> {
    let sections: BTreeSet<&str> = KEYS.iter().filter_map(|key| key.path.split('.').next()).collect();
    let is_of_section = |word: &&str| word.split('.').next().is_some_and(|first| sections.contains(first));
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '[' | ']' | '-' | '/' | '(');
    let mut found = Vec::new();
    for part in parts(&page.text) {
        let text = part.text.as_str();
        match part.kind {
            PartKind::Prose => continue,
            PartKind::Span => {
                let path = text.split_once(" = ").map_or(text, |(path, _)| path);
                let section = path.strip_prefix('[').and_then(|path| path.strip_suffix(']'));
                if is_dotted(path) || section.is_some_and(|section| section.split('.').all(is_snake)) {
                    found.push(Mention::new(page, &part, path));
                }
            }
            // Objects of a program have methods with dots.
            PartKind::Block("js" | "python" | "toml") => {}
            PartKind::Block(_) => {
                let dotted = words(text, is_part).filter(|word| is_dotted(word)).filter(is_of_section);
                found.extend(dotted.map(|path| Mention::new(page, &part, path)));
            }
        }
        let flags = words(text, is_part).filter_map(|word| word.strip_prefix("--"));
        found.extend(flags.filter(|flag| is_dotted(flag)).map(|flag| Mention::new(page, &part, flag)));
    }
    found
}

/// Whether a configuration has a key or a section with this path.
fn is_key(path: &str) -> bool {
    let beneath = |list: &str| path.strip_prefix(list).and_then(|rest| rest.strip_prefix("[]."));
    for (list, options) in LISTS {
        if let Some(option) = beneath(list) {
            return option == "name" || find(options, option).is_some();
        }
    }
    // The reference names the keys of a proxy, of an issuer and of a consumer without the path of their section.
    let lists = [&PROXY_OPTIONS, &PROVIDER_OPTIONS, &CONSUMER_OPTIONS];
    let is_of_list = lists.iter().any(|options| find(options, path).is_some());
    if is_of_list
        || matches!(
            path,
            "grpc.tls.client_ca_pem"
                | "http.tls.client_ca_pem"
                | "tls.client_ca_pem"
                | "postgresql.tls.client_ca_pem"
                | "nats_jetstream.tls.client_ca_pem"
        )
    {
        return true;
    }
    let path = path.trim_start_matches('[').trim_end_matches(']');
    let flags = Flags { keys: vec![(path.to_owned(), "1".to_owned())], ..Flags::default() };
    let outcome = touchline_config::read(&Sources { flags, ..Sources::default() }, &PROBES);
    outcome.findings.iter().all(|finding| !finding.text.contains("unknown key"))
}

/// Whether a name with dots is not a key but a method of the registry, or a table or function of a database.
fn is_other_path(path: &str, store: &str) -> bool {
    matches!(RegistryMethod::from_rpc(path), Some(Some(_))) || path.starts_with("touchline.") && store.contains(path)
}

/// The text of all Rust and SQL files below a folder of the repository, without these rules.
fn sources_below(folder: &str) -> String {
    let mut found = Vec::new();
    ["rs", "sql"].iter().for_each(|extension| walk(&root().join(folder), extension, &mut found));
    let own = root().join("crates/cli/tests/reference");
    found.retain(|(path, _)| !path.starts_with(&own));
    found.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn every_key_in_the_documentation_exists() {
    let store = sources_below("crates/store/src");
    let mentions: Vec<Mention> = present_pages().iter().flat_map(paths).collect();
    assert!(mentions.len() > 500, "keys are found: {}", mentions.len());
    let names: BTreeSet<&str> = mentions.iter().map(|mention| mention.name.as_str()).collect();
    let known: BTreeSet<&str> = names.into_iter().filter(|name| is_key(name) || is_other_path(name, &store)).collect();
    // Types of events, as written in their table.
    let is_type = |name: &str| {
        let all = EventKind::CONFIGURED.into_iter().chain([EventKind::StateReset]);
        all.map(EventKind::cloud_type).any(|kind| kind.strip_prefix("io.touchline.") == Some(name))
    };
    judge("keys that do not exist", &mentions, |name| known.contains(name) || is_type(name), OTHER_PATHS);
}

#[test]
fn a_key_that_does_not_exist_is_found() {
    let unknown = |text: &str| paths(&made_up(text)).into_iter().any(|mention| !is_key(&mention.name));
    for text in [
        "`client.ping_intervall`",
        "`clinet.ping_interval`",
        "`channel.namespaces[].history_sizes`",
        "`registry.scopes[].history_size`",
        "`http_api.externally = true`",
        "`[http_stream2]` and `[storage.stats]`",
        "`--http_server.prt 9000`",
        "```sh\ntouchline serve --client.nothing 1\n```",
        "```\npushes past client.queue_size_max end it\n```",
    ] {
        assert!(unknown(text), "{text}");
    }
    for text in [
        "`client.ping_interval`, `channel.namespaces[].history_size`, `registry.scopes[].inbox_size`",
        "`store.stats`, `[store.stats]`, `client.token`, `channel.without_namespace.presence`",
        "`client.proto`, `node.rs`, `http_api.external = true`, `client.rpc()`",
        "```js\nclient.newSubscription\n```",
    ] {
        assert!(!unknown(text), "{text}");
    }
}

/// The names of a page whose words are joined by underscores.
fn names(page: &Page) -> Vec<Mention> {
    let mut found = Vec::new();
    for part in parts(&page.text).iter().filter(|part| part.kind == PartKind::Span) {
        let name = part.text.split_once(" = ").map_or(part.text.as_str(), |(name, _)| name);
        // Another rule checks metrics. Metrics of Centrifugo are not part of Touchline.
        let is_metric = name.starts_with("touchline_") || name.starts_with("centrifugo_");
        if name.contains('_') && is_snake(name) && !is_metric {
            found.push(Mention::new(page, part, name));
        }
    }
    found
}

#[test]
fn every_name_in_the_documentation_stands_in_the_code() {
    let sources = sources_below("crates");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let known: BTreeSet<&str> = words(&sources, is_part).collect();
    let mentions: Vec<Mention> = present_pages().iter().flat_map(names).collect();
    assert!(mentions.len() > 300, "names are found: {}", mentions.len());
    judge("names that no source has", &mentions, |name| known.contains(name), OTHER_NAMES);
}

/// The configurations of a page, each with the number of its first line.
fn configurations(page: &Page) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for part in parts(&page.text) {
        match part.kind {
            PartKind::Block("toml") => found.push((part.line, part.text)),
            PartKind::Block("sh") => {
                let mut end = None;
                for (at, line) in part.text.lines().enumerate() {
                    let (_, begun) = line.split_once(".toml <<'").unwrap_or_default();
                    if let Some(mark) = begun.strip_suffix('\'') {
                        end = Some(mark);
                        found.push((part.line + at + 1, String::new()));
                    } else if end == Some(line) {
                        end = None;
                    } else if let (Some(_), Some((_, text))) = (end, found.last_mut()) {
                        text.push_str(line);
                        text.push('\n');
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// The errors and warnings of a server for a configuration in TOML.
fn faults(text: &str) -> Vec<String> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("touchline-docs-{}-{}.toml", std::process::id(), COUNT.fetch_add(1, Relaxed));
    let path = std::env::temp_dir().join(name);
    let outcome = written(&path, text);
    let faults = outcome.findings.iter().filter(|finding| finding.severity != Severity::Note);
    faults.map(|finding| finding.text.clone()).collect()
}

fn written(path: &Path, text: &str) -> ConfigOutcome {
    std::fs::write(path, text).expect("the temporary directory is writable");
    let outcome = touchline_config::read(&Sources { file: Some(path.to_owned()), ..Sources::default() }, &PROBES);
    std::fs::remove_file(path).expect("it was written");
    outcome
}

/// The errors and warnings of a server for the configurations of a page and for the keys with a value on it.
fn refused(page: &Page) -> Vec<String> {
    let mut broken = Vec::new();
    for (line, text) in configurations(page) {
        broken.extend(faults(&text).iter().map(|fault| format!("{}:{line} {fault}", page.name)));
    }
    for part in parts(&page.text).iter().filter(|part| part.kind == PartKind::Span) {
        if part.text.split_once(" = ").is_some_and(|(path, _)| is_dotted(path)) {
            let of_value = faults(&part.text).into_iter().filter(|fault| fault.contains(": expected "));
            broken.extend(of_value.map(|fault| format!("{}:{} {fault}", page.name, part.line)));
        }
    }
    broken
}

#[test]
fn every_configuration_in_the_documentation_is_taken() {
    let pages = present_pages();
    let found: usize = pages.iter().map(|page| configurations(page).len()).sum();
    assert!(found > 9, "configurations are found: {found}");
    report("configurations that are not taken", &pages.iter().flat_map(refused).collect::<Vec<_>>());
}

#[test]
fn a_configuration_that_is_not_taken_is_found() {
    for text in [
        "```toml\n[client]\nping_intervall = \"5s\"\n```",
        "```toml\n[client]\nping_interval = \"soon\"\n```",
        "```toml\nnot toml\n```",
        "```sh\ncat > a.toml <<'CONF'\n[http_server]\nprt = 1\nCONF\n```",
        "`log.format = \"yaml\"`",
    ] {
        assert_eq!(refused(&made_up(text)).len(), 1, "{text}");
    }
    for text in [
        "```toml\n[[channel.namespaces]]\nname = \"news\"\nhistory_size = 1\nhistory_ttl = \"1s\"\n```",
        "```sh\ncat > a.toml <<'CONF'\n[http_server]\nport = 1\nCONF\necho\n```",
        "`log.format = \"json\"`",
    ] {
        assert_eq!(refused(&made_up(text)), Vec::<String>::new(), "{text}");
    }
}
