//! What `serve --ephemeral` does beside serving: it keeps away what is not memory, tells the test that has started it
//! where it is, and ends with it.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use touchline_server::{Running, Settings};

use crate::client::api::{configured_key, url_at};

/// How often the server looks whether the process that has started it is there.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes of the largest file that can be a ready file.
const READY_BYTES: u64 = 16 * 1024;
/// How the names of the variables begin that count: those that a configuration names.
const VARIABLES: [&str; 2] = ["TOUCHLINE_VAR_", "CENTRIFUGO_VAR_"];

/// The variables that count. What else the environment of a developer holds must not change what a test tests.
pub(super) fn variables(all: Vec<(String, String)>) -> Vec<(String, String)> {
    all.into_iter().filter(|(name, _)| VARIABLES.iter().any(|prefix| name.starts_with(prefix))).collect()
}

/// Refuses settings that need more than memory.
///
/// # Errors
/// The keys of those.
pub(super) fn check(settings: &Settings) -> Result<()> {
    let (channel, store) = (&settings.channel, &settings.store);
    let mut keys: Vec<String> = Vec::new();
    if channel.without_namespace.durable {
        keys.push("channel.without_namespace.durable".to_owned());
    }
    let durable = channel.namespaces.iter().filter(|namespace| namespace.options.durable);
    keys.extend(durable.map(|namespace| format!("durable of the namespace {}", namespace.name)));
    let switches = [
        ("inbox_size of a scope of the registry", settings.stores_messages()),
        ("store.directory", store.directory),
        ("security.use_primary", settings.security.use_primary),
        ("user_status.use_primary", settings.user_status.enabled && settings.user_status.use_primary),
        ("store.primary.url", store.primary.is_shared()),
        ("store.stats.enabled", store.stats.enabled),
        ("cluster.engine", settings.cluster.is_on()),
        ("http_server.tls_autocert.enabled", settings.http_server.tls_autocert.enabled),
    ];
    keys.extend(switches.into_iter().filter(|(_, is_on)| *is_on).map(|(key, _)| key.to_owned()));
    if keys.is_empty() {
        return Ok(());
    }
    bail!(
        "`serve --ephemeral` keeps all in memory, and this needs a database, another server or a file: {}. \
         Leave it out of the configuration of a test, or run `serve` with it",
        keys.join(", ")
    )
}

/// The process that has started this one.
pub(super) struct Parent(u32);

impl Parent {
    /// The parent of this moment. A parent that has ended before is not noticed.
    pub(super) fn now() -> Self {
        Parent(parent_id())
    }

    /// Waits until it has ended: then the system gives this process another parent. That is so on Linux and macOS, does
    /// not depend on the thread that has started this process, and cannot take a later process with the same number
    /// for the parent.
    pub(super) async fn ended(&self) {
        while parent_id() == self.0 {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

/// What a test needs to know.
#[derive(Serialize)]
struct Ready<'a> {
    pid: u32,
    url: &'a str,
    websocket_url: String,
    api_url: String,
    api_key: String,
    token_secret: &'a str,
}

/// What a ready file is known by.
#[derive(Deserialize)]
struct LeftReady {
    pid: u32,
    websocket_url: String,
}

/// The file that tells a test where the server is. It is removed when this is dropped.
pub(super) struct ReadyFile(Option<PathBuf>);

impl ReadyFile {
    /// No file, or one that is not there before the server listens: what an earlier server has left is removed, and
    /// nothing else is.
    ///
    /// # Errors
    /// When something else is there, or the file cannot be removed.
    pub(super) fn prepare(path: Option<&Path>) -> Result<Self> {
        let is_there = |path: &&Path| path.symlink_metadata().is_ok();
        if let Some(path) = path.filter(is_there) {
            if server_of(path).is_none() {
                bail!("{} exists and was not written by an earlier server: name another file", path.display());
            }
            std::fs::remove_file(path)
                .with_context(|| format!("failed to remove {}, which an earlier server has left", path.display()))?;
        }
        Ok(ReadyFile(path.map(Path::to_owned)))
    }

    /// Writes the file, if there is to be one, and then prints a line with the address.
    ///
    /// # Errors
    /// When one of them cannot be written.
    pub(super) fn tell(&self, settings: &Settings, running: &Running) -> Result<()> {
        let server = &settings.http_server;
        let has_tls = server.tls.enabled;
        let url = url_at("http", has_tls, running.address());
        let api = match running.internal_address().filter(|_| !settings.http_api.external) {
            Some(address) => url_at("http", server.has_internal_tls(), address),
            None => url.clone(),
        };
        let ready = Ready {
            pid: std::process::id(),
            url: &url,
            websocket_url: url_at("ws", has_tls, running.address()) + &settings.websocket.handler_prefix,
            api_url: format!("{api}/api"),
            api_key: configured_key(settings),
            token_secret: &settings.client.token.hmac_secret_key,
        };
        if let Some(path) = &self.0 {
            write_whole(path, &serde_json::to_vec(&ready)?)
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        let mut out = io::stdout().lock();
        writeln!(out, "listening on {url}")?;
        Ok(out.flush()?)
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        // Another server may have written it since, and who has started this one may have removed it.
        if let Some(path) = self.0.as_deref().filter(|path| server_of(path) == Some(std::process::id())) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The process of the server that has written a ready file; None = a server has not written it.
fn server_of(path: &Path) -> Option<u32> {
    let metadata = path.symlink_metadata().ok()?;
    if !metadata.is_file() || metadata.len() > READY_BYTES {
        return None;
    }
    let ready: LeftReady = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    ready.websocket_url.starts_with("ws").then_some(ready.pid)
}

/// Writes a file that only this account can read. Nobody sees a part of it.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut half = path.as_os_str().to_owned();
    half.push(format!(".{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
    let written = file.write_all(bytes).and_then(|()| std::fs::rename(&half, path));
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(&half);
    })
}
