//! Secrets in separate files. The value of a key that ends in `_file` is the path of a file with the secret. A file in
//! systemd's directory of credentials is the value of the key that it is named after.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use touchline_engine::setting::ValueKind;

use super::tree::{ConfigNode, ConfigValue, Location};
use crate::finding::Finding;
use crate::item_path::item_path;
use crate::keys::{KEYS, Key, LISTS, is_section};
use crate::nearest::nearest;
use crate::regular_file::read_regular_text;

/// The end of a key whose value is the path of a file with the secret.
const FILE: &str = "_file";
/// Maximum size of a file with a secret, bytes.
const SECRET_FILE_MAX: u64 = 1_048_576;
/// The mode bit for "readable by every account of the machine".
const READABLE_BY_OTHERS: u32 = 0o004;
/// The variable that names the directory of credentials (systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// The ends of keys whose value may itself be a path. These keep the path, so that a later change of the file is
/// noticed.
const PATHS: [&str; 3] = ["key_pem", "nats_credentials", "nats_tls_key"];

/// Whether the value of a key may be in a separate file.
pub(crate) fn may_be_in_file(key: &Key) -> bool {
    matches!(key.kind, ValueKind::Secret | ValueKind::Pem | ValueKind::StringMap)
}

/// The `_file` form of a key, whose value is the path of a file.
pub(crate) fn file_key(path: &str) -> String {
    format!("{path}{FILE}")
}

/// Whether the value of a key may be a path.
fn is_path(key: &Key) -> bool {
    key.kind == ValueKind::Pem || PATHS.iter().any(|end| key.path.ends_with(end))
}

/// Whether the value of a key is a secret. Public keys and certificates are not secrets.
fn is_secret(key: &Key) -> bool {
    key.kind != ValueKind::Pem || PATHS.iter().any(|end| key.path.ends_with(end))
}

/// Replaces each path in a `_file` key by the secret in the file, and adds the credentials. A secret that is given
/// twice is an error, because it would be unclear which one counts.
pub(super) fn apply(variables: &[(String, String)], tree: &mut ConfigNode, findings: &mut Vec<Finding>) {
    let mut credentials = Credentials::of(variables, findings);
    for key in KEYS.iter().filter(|key| may_be_in_file(key)) {
        let credential = credentials.take(&key.path);
        apply_one(tree, key, &key.path, credential, findings);
    }
    for (list, keys) in LISTS {
        for (index, item) in tree.list_mut(list).into_iter().flatten().enumerate() {
            let Some(name) = item.text("name").map(str::to_owned) else { continue };
            for key in keys.iter().filter(|key| may_be_in_file(key)) {
                let credential = credentials.take(&format!("{list}.{name}.{}", key.path));
                let shown = format!("{}.{}", item_path(list, index, &name), key.path);
                apply_one(item, key, &shown, credential, findings);
            }
        }
    }
    credentials.tell_unknown(findings);
}

/// Does this for one key of a table. `shown` is the key's path for findings.
fn apply_one(table: &mut ConfigNode, key: &Key, shown: &str, credential: Option<PathBuf>, findings: &mut Vec<Finding>) {
    let named = table.take(&file_key(&key.path));
    let is_empty = |node: &ConfigNode| matches!(&node.value, ConfigValue::Text(text) if text.is_empty());
    let named = named.filter(|node| !is_empty(node));
    let is_written = table.get(&key.path).is_some_and(|node| !is_empty(node));
    let (path, location, what) = match (named, credential) {
        (None, None) => return,
        (Some(node), None) => match &node.value {
            ConfigValue::Text(path) => (PathBuf::from(path), node.location.clone(), file_key(shown)),
            // The value may be a secret in the wrong place, so it is not shown.
            other => {
                let text = format!("{}: expected the path of a file, found {}", file_key(shown), other.name());
                return findings.push(Finding::error(text, Some(&node.location)));
            }
        },
        (None, Some(path)) => (path, Location::Variable(CREDENTIALS.to_owned()), shown.to_owned()),
        (Some(node), Some(_)) => {
            let text = format!("{}: the secret is also in ${CREDENTIALS}: keep one of them", file_key(shown));
            return findings.push(Finding::error(text, Some(&node.location)));
        }
    };
    if is_written {
        let text = format!("{what}: {shown} is also set: keep one of them");
        return findings.push(Finding::error(text, Some(&location)));
    }
    match read(&path) {
        Ok(secret) => {
            if is_secret(key) && is_readable_by_others(&path) {
                let text = format!("{what}: everybody on this machine can read the file, which contains a secret");
                findings.push(Finding::warning(text, Some(&location)));
            }
            let value = if is_path(key) { path.display().to_string() } else { secret };
            table.set(&key.path, ConfigNode { location, value: ConfigValue::Text(value) });
        }
        // The path may be a secret in the wrong place, so it is not shown.
        Err(error) => {
            findings.push(Finding::error(format!("{what}: the file cannot be used: {error}"), Some(&location)))
        }
    }
}

/// The text of a file, without the line break at its end.
///
/// # Errors
/// When the file cannot be read, is not a regular file, is empty, is too large or is not text.
fn read(path: &Path) -> io::Result<String> {
    let text = read_regular_text(path, SECRET_FILE_MAX)?;
    let secret = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if secret.trim().is_empty() {
        return Err(io::Error::other("it is empty"));
    }
    Ok(secret.to_owned())
}

fn is_readable_by_others(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & READABLE_BY_OTHERS != 0)
}

/// The files of the directory of credentials.
struct Credentials {
    directory: PathBuf,
    /// Names of files that no key has used yet.
    names: Vec<String>,
}

impl Credentials {
    fn of(variables: &[(String, String)], findings: &mut Vec<Finding>) -> Self {
        let named = variables.iter().find(|(name, value)| name == CREDENTIALS && !value.is_empty());
        let mut credentials = Credentials { directory: PathBuf::new(), names: Vec::new() };
        let Some((_, directory)) = named else { return credentials };
        credentials.directory = directory.into();
        match std::fs::read_dir(directory) {
            Ok(entries) => {
                credentials.names =
                    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
                credentials.names.sort();
            }
            Err(error) => {
                let location = Location::Variable(CREDENTIALS.to_owned());
                let text = format!("the directory of credentials cannot be read: {error}");
                findings.push(Finding::error(text, Some(&location)));
            }
        }
        credentials
    }

    /// The path of a key's file. A second call for the same key returns `None`.
    fn take(&mut self, key: &str) -> Option<PathBuf> {
        let at = self.names.iter().position(|name| name == key)?;
        Some(self.directory.join(self.names.remove(at)))
    }

    /// Warns of files whose name looks like a configuration key but is not one. Other files may belong to other
    /// services of the unit.
    fn tell_unknown(&self, findings: &mut Vec<Finding>) {
        let location = Location::Variable(CREDENTIALS.to_owned());
        for name in &self.names {
            if name.split_once('.').is_some_and(|(section, _)| is_section(section) || section == "proxies") {
                let known = KEYS.iter().filter(|key| may_be_in_file(key)).map(|key| key.path.as_str());
                let hint = nearest(name, known).map_or(String::new(), |meant| format!("; did you mean {meant}?"));
                findings.push(Finding::warning(
                    format!("{name}: no key for a secret has this name{hint}"),
                    Some(&location),
                ));
            }
        }
    }
}
