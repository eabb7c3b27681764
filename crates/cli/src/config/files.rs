//! Files with secrets that others on this machine can read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use touchline_server::{Settings, TlsError};

use super::finding::Finding;
use super::keys::{KEYS, Kind};
use super::low::{Node, Place, Value};

/// What every account of the machine may read.
const READABLE_BY_OTHERS: u32 = 0o004;

/// Warns of a configuration file that holds secrets, and of keys of certificates, if everybody may read them. Nothing is changed: these
/// files are somebody's own.
pub(crate) fn check(file: Option<(&Path, bool)>, settings: &Settings, findings: &mut Vec<Finding>) {
    if let Some((path, true)) = file {
        check_one("the configuration file", path, findings);
    }
    let (http, tcp) = (&settings.http_server, &settings.tcp);
    for (key, is_on, value) in [
        ("http_server.tls.key_pem", http.tls.enabled, &http.tls.key_pem),
        ("http_server.internal_tls.key_pem", http.internal_tls.enabled, &http.internal_tls.key_pem),
        ("tcp.tls.key_pem", tcp.tls.enabled, &tcp.tls.key_pem),
    ] {
        if is_on && !value.is_empty() && !touchline_server::is_inline_pem(value) {
            check_one(key, Path::new(value), findings);
        }
    }
}

/// Whether a configuration file has a secret in it.
pub(crate) fn has_secrets(written: &Node) -> bool {
    KEYS.iter().filter(|key| matches!(key.kind, Kind::Secret)).any(|key| {
        let Some(Node { place: Place::File(..), value: Value::Text(text) }) = written.get(key.path) else { return false };
        // Addresses of databases are secrets for the passwords in them.
        let is_secret = match key.path {
            path if path.ends_with(".url") => text.contains('@'),
            // Most often it is the path of a file.
            path if path.ends_with("key_pem") => touchline_server::is_inline_pem(text),
            _ => true,
        };
        !text.is_empty() && is_secret
    })
}

/// Refuses files and addresses that the server could not use.
pub(crate) fn check_use(settings: &Settings, findings: &mut Vec<Finding>) {
    for (section, tls) in [("http_server", &settings.http_server.tls), ("tcp", &settings.tcp.tls)] {
        if tls.enabled && !tls.cert_pem.is_empty() && !tls.key_pem.is_empty() {
            let checked = touchline_server::check_certificates(&format!("{section}.tls"), tls);
            findings.extend(checked.err().map(|error| {
                let is_named = matches!(error, TlsError::File { .. } | TlsError::Content { .. });
                let place = if is_named { String::new() } else { format!("{section}.tls: ") };
                Finding::error(format!("{place}{:#}", anyhow::Error::from(error)), None)
            }));
        }
    }
    let (store, cluster) = (&settings.store, &settings.cluster);
    let databases = [("primary", &store.primary.url, settings.needs_primary()), ("stats", &store.stats.url, store.stats.enabled)];
    for (name, url, _) in databases.iter().filter(|(_, _, is_used)| *is_used) {
        if let Err(error) = url.parse::<touchline_store::Url>() {
            findings.push(Finding::error(format!("store.{name}.url: {error}"), None));
        }
    }
    if settings.needs_primary() {
        is_readable("store.primary.tls_ca", &store.primary.tls_ca, findings);
    }
    if store.stats.enabled {
        is_readable("store.stats.tls_ca", &store.stats.tls_ca, findings);
    }
    if cluster.is_on() {
        let files = [
            ("credentials", &cluster.nats_credentials),
            ("tls_ca", &cluster.nats_tls_ca),
            ("tls_cert", &cluster.nats_tls_cert),
            ("tls_key", &cluster.nats_tls_key),
        ];
        for (name, file) in files {
            is_readable(&format!("cluster.nats_{name}"), file, findings);
        }
    }
}

/// Whether a file can be read, if one is named.
fn is_readable(key: &str, file: &str, findings: &mut Vec<Finding>) -> bool {
    if file.is_empty() {
        return true;
    }
    let read = std::fs::read(file);
    if let Err(error) = &read {
        findings.push(Finding::error(format!("{key}: {file} can't be read: {error}"), None));
    }
    read.is_ok()
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
