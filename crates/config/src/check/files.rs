//! Warns of files with secrets that other accounts of this machine can read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::finding::{Finding, Severity};
use crate::keys::{KEYS, Key, LISTS, ValueKind};
use crate::load::tree::{ConfigNode, ConfigValue, Location};
use crate::pem::is_inline_pem;
use crate::settings::Settings;

/// The mode bit for "readable by every account of the machine".
const READABLE_BY_OTHERS: u32 = 0o004;

/// The ends of keys whose value is a secret or the path of a file with a secret.
const PATHS: [&str; 3] = ["key_pem", "nats_credentials", "nats_tls_key"];

/// Warns if everybody may read a configuration file with secrets or the private key of a certificate. It does not
/// change the files, because they belong to the operator.
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

/// Whether a configuration file contains a secret.
pub(crate) fn has_secrets(written: &ConfigNode) -> bool {
    let items = |list: &str| match written.get(list).map(|node| &node.value) {
        Some(ConfigValue::List(items)) => items.as_slice(),
        _ => &[],
    };
    has_one(written, &KEYS) || LISTS.iter().any(|(list, keys)| items(list).iter().any(|item| has_one(item, keys)))
}

/// Whether a table of a file contains a secret.
fn has_one(table: &ConfigNode, keys: &[Key]) -> bool {
    keys.iter().filter(|key| matches!(key.kind, ValueKind::Secret)).any(|key| {
        let Some(ConfigNode { location: Location::File(..), value: ConfigValue::Text(text) }) = table.get(&key.path)
        else {
            return false;
        };
        // The address of a database is a secret only if it contains a password.
        let is_secret = match key.path.as_str() {
            path if path.ends_with(".url") => text.contains('@'),
            // The value is usually the path of a file.
            path if PATHS.iter().any(|end| path.ends_with(end)) => is_inline_pem(text),
            _ => true,
        };
        !text.is_empty() && is_secret
    })
}

/// Reports what the server would refuse at its start: files, addresses, conflicting ports. A fault is left out if the
/// findings already have an error about its key.
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

/// The key at the beginning of a finding's text.
fn key_of(text: &str) -> &str {
    text.split([':', ' ']).next().unwrap_or_default()
}

fn check_one(what: &str, path: &Path, findings: &mut Vec<Finding>) {
    // A file that cannot be inspected is reported where it is read.
    let Ok(found) = std::fs::metadata(path) else { return };
    if found.permissions().mode() & READABLE_BY_OTHERS != 0 {
        let path = path.display();
        findings.push(Finding::warning(
            format!("{what}: everybody on this machine can read {path}, which contains a secret (chmod 600 {path})"),
            None,
        ));
    }
}
