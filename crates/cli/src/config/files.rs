//! Files with secrets that others on this machine can read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use touchline_server::Settings;

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
    for (section, tls) in [("http_server", &settings.http_server.tls), ("tcp", &settings.tcp.tls)] {
        if tls.enabled && !tls.key_pem.is_empty() {
            check_one(&format!("{section}.tls.key_pem"), Path::new(&tls.key_pem), findings);
        }
    }
}

/// Whether a configuration file has a secret in it.
pub(crate) fn has_secrets(written: &Node) -> bool {
    KEYS.iter().filter(|key| matches!(key.kind, Kind::Secret)).any(|key| {
        let Some(Node { place: Place::File(..), value: Value::Text(text) }) = written.get(key.path) else { return false };
        // Addresses of databases are secrets for the passwords in them.
        !text.is_empty() && (!key.path.ends_with(".url") || text.contains('@'))
    })
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
