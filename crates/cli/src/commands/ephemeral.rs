//! What `serve --ephemeral` does besides serving. It refuses settings that need more than memory, tells the test its
//! addresses, and ends with the process that started it.

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

/// Time between two checks whether the parent process still exists.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum bytes of a ready file.
const READY_BYTES: u64 = 16 * 1024;
/// The prefixes of the variables that the server uses: those that a configuration may name.
const VARIABLES: [&str; 2] = ["TOUCHLINE_VAR_", "CENTRIFUGO_VAR_"];

/// The variables that the server uses. Other variables of a developer's environment must not influence a test.
pub(super) fn variables(all: Vec<(String, String)>) -> Vec<(String, String)> {
    all.into_iter().filter(|(name, _)| VARIABLES.iter().any(|prefix| name.starts_with(prefix))).collect()
}

/// Refuses settings that need a database, another server or a file.
///
/// # Errors
/// One text with the keys of these settings.
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
        "`serve --ephemeral` keeps everything in memory, but these need a database, another server or a file: {}. \
         Remove them from the configuration of the test, or run `serve` with it",
        keys.join(", ")
    )
}

/// The process that started this one.
pub(super) struct Parent(u32);

impl Parent {
    /// The current parent process. A parent that has already ended is not noticed.
    pub(super) fn now() -> Self {
        Parent(parent_id())
    }

    /// Waits until the parent has ended, which is when the system gives this process another parent. This works on
    /// Linux and macOS and does not depend on the thread that started this process. A later process with the same
    /// number is not mistaken for the parent.
    pub(super) async fn ended(&self) {
        while parent_id() == self.0 {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
}

/// The content of a ready file: what a test needs to know.
#[derive(Serialize)]
struct Ready<'a> {
    pid: u32,
    url: &'a str,
    websocket_url: String,
    api_url: String,
    api_key: String,
    token_secret: &'a str,
}

/// The fields that identify a ready file.
#[derive(Deserialize)]
struct LeftReady {
    pid: u32,
    websocket_url: String,
}

/// The file that tells a test the addresses of the server. Dropping this value removes the file. `None` = there is no
/// file.
pub(super) struct ReadyFile(Option<PathBuf>);

impl ReadyFile {
    /// Prepares the ready file, which must not exist before the server listens. A ready file of an earlier server is
    /// removed; any other file is not.
    ///
    /// # Errors
    /// When another file has this path, or the file cannot be removed.
    pub(super) fn prepare(path: Option<&Path>) -> Result<Self> {
        let is_there = |path: &&Path| path.symlink_metadata().is_ok();
        if let Some(path) = path.filter(is_there) {
            if server_of(path).is_none() {
                bail!("{} exists and was not written by an earlier server: name another file", path.display());
            }
            std::fs::remove_file(path)
                .with_context(|| format!("failed to remove {}, which an earlier server left behind", path.display()))?;
        }
        Ok(ReadyFile(path.map(Path::to_owned)))
    }

    /// Writes the file, if there is one, and then prints a line with the address.
    ///
    /// # Errors
    /// When the file or the line cannot be written.
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
        // Another server may have written the file since, or the test may have removed it.
        if let Some(path) = self.0.as_deref().filter(|path| server_of(path) == Some(std::process::id())) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The process id of the server that wrote a ready file. `None` = the file was not written by a server.
fn server_of(path: &Path) -> Option<u32> {
    let metadata = path.symlink_metadata().ok()?;
    if !metadata.is_file() || metadata.len() > READY_BYTES {
        return None;
    }
    let ready: LeftReady = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    ready.websocket_url.starts_with("ws").then_some(ready.pid)
}

/// Writes a file that only this account can read. Other processes see the whole file or none.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut half = path.as_os_str().to_owned();
    half.push(format!(".{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
    let written = file.write_all(bytes).and_then(|()| std::fs::rename(&half, path));
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(&half);
    })
}
