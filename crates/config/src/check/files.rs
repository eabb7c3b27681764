//! Files with secrets that others on this machine can read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::finding::{Finding, Severity};
use crate::keys::{KEYS, Key, LISTS, ValueKind};
use crate::load::tree::{ConfigNode, ConfigValue, Location};
use crate::pem::is_inline_pem;
use crate::settings::Settings;

/// What every account of the machine may read.
const READABLE_BY_OTHERS: u32 = 0o004;

/// The ends of keys that are secrets, or the paths of files with secrets.
const PATHS: [&str; 3] = ["key_pem", "nats_credentials", "nats_tls_key"];

/// Warns of a configuration file that holds secrets, and of keys of certificates, if everybody may read them. Nothing
/// is changed: these files are somebody's own.
pub(crate) fn check(file: Option<(&Path, bool)>, settings: &Settings, findings: &mut Vec<Finding>) {
    if let Some((path, true)) = file {
        check_one("the configuration file", path, findings);
    }
    let (http, tcp, cluster) = (&settings.http_server, &settings.tcp, &settings.cluster);
    let grpc = &settings.grpc_api;
    for (key, is_on, value) in [
        ("http_server.tls.key_pem", http.tls.enabled, &http.tls.key_pem),
        ("http_server.internal_tls.key_pem", http.internal_tls.enabled, &http.internal_tls.key_pem),
        ("grpc_api.tls.key_pem", grpc.enabled && grpc.tls.enabled, &grpc.tls.key_pem),
        ("tcp.tls.key_pem", tcp.tls.enabled, &tcp.tls.key_pem),
        ("cluster.nats_credentials", cluster.is_on(), &cluster.nats_credentials),
        ("cluster.nats_tls_key", cluster.is_on(), &cluster.nats_tls_key),
    ] {
        if is_on && !value.is_empty() && !is_inline_pem(value) {
            check_one(key, Path::new(value), findings);
        }
    }
}

/// Whether a configuration file has a secret in it.
pub(crate) fn has_secrets(written: &ConfigNode) -> bool {
    let items = |list: &str| match written.get(list).map(|node| &node.value) {
        Some(ConfigValue::List(items)) => items.as_slice(),
        _ => &[],
    };
    has_one(written, &KEYS) || LISTS.iter().any(|(list, keys)| items(list).iter().any(|item| has_one(item, keys)))
}

/// Whether a table of a file has a secret in it.
fn has_one(table: &ConfigNode, keys: &[Key]) -> bool {
    keys.iter().filter(|key| matches!(key.kind, ValueKind::Secret)).any(|key| {
        let Some(ConfigNode { location: Location::File(..), value: ConfigValue::Text(text) }) = table.get(&key.path)
        else {
            return false;
        };
        // Addresses of databases are secrets for the passwords in them.
        let is_secret = match key.path.as_str() {
            path if path.ends_with(".url") => text.contains('@'),
            // Most often it is the path of a file.
            path if PATHS.iter().any(|end| path.ends_with(end)) => is_inline_pem(text),
            _ => true,
        };
        !text.is_empty() && is_secret
    })
}

/// Refuses what the server would refuse at its start: files, addresses, ports that are in each other's way. A fault of
/// which the key is told already is not told again.
pub(crate) fn check_use(faults: &[String], findings: &mut Vec<Finding>) {
    for text in faults {
        let key = key_of(text);
        let is_told = |finding: &Finding| {
            let rest = key.strip_prefix(key_of(&finding.text));
            finding.severity == Severity::Error && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !findings.iter().any(is_told) {
            findings.push(Finding::error(text.as_str(), None));
        }
    }
}

/// The key that a text begins with.
fn key_of(text: &str) -> &str {
    text.split([':', ' ']).next().unwrap_or_default()
}

fn check_one(what: &str, path: &Path, findings: &mut Vec<Finding>) {
    // One that can't be looked at is told of where it is read.
    let Ok(found) = std::fs::metadata(path) else { return };
    if found.permissions().mode() & READABLE_BY_OTHERS != 0 {
        let path = path.display();
        findings.push(Finding::warning(
            format!("{what}: everybody on this machine can read {path}, which holds a secret (chmod 600 {path})"),
            None,
        ));
    }
}
