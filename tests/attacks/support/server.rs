//! A server process with a configuration file, its log and its memory.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::{PATIENCE, comes};

const BINARY: &str = env!("CARGO_BIN_EXE_touchline");
pub(crate) const KEY: &str = "api-key";
pub(crate) const SECRET: &str = "token-secret";

/// A running server; it is killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) directory: PathBuf,
    /// Where HTTP and WebSocket are served.
    pub(crate) address: SocketAddr,
    /// Where lines are served.
    pub(crate) lines: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

/// Options that let everybody subscribe, and read what there is to read.
fn open(more: &Value) -> Value {
    let options = json!({
        "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
        "allow_publish_for_client": true, "allow_publish_for_anonymous": true,
    });
    merged(options, more)
}

/// The configuration that attacks are made on, unless they change it.
pub(crate) fn configuration() -> Value {
    let history = json!({
        "name": "big", "history_size": 300, "history_ttl": "600s", "force_recovery": true,
        "allow_history_for_client": true, "allow_history_for_anonymous": true,
    });
    let room = json!({
        "name": "room", "presence": true, "allow_presence_for_client": true, "allow_presence_for_anonymous": true,
    });
    let namespaces = [
        open(&json!({"name": "watch"})),
        open(&history),
        open(&room),
        open(&json!({"name": "filtered", "allow_tags_filter": true})),
        json!({"name": "shut"}),
    ];
    json!({
        "http_server": {"address": "127.0.0.1", "port": 0},
        "tcp": {"enabled": true, "address": "127.0.0.1", "port": 0},
        "http_stream": {"enabled": true},
        "http_api": {"key": KEY},
        "client": {"token": {"hmac_secret_key": SECRET}, "allow_anonymous_connect_without_token": true},
        "channel": {"namespaces": namespaces, "without_namespace": open(&json!({}))},
        "registry": {"scopes": [{
            "name": "devices", "allow_register": ["*"], "allow_join": ["*"],
            "allow_lookup_for_client": true, "allow_for_anonymous": true,
            "allow_send_for_client": true, "allow_call_for_client": true,
        }]},
        "health": {"enabled": true}, "prometheus": {"enabled": true},
        "node": {"shards": 2},
        "shutdown": {"spread": "50ms", "timeout": "1s"},
        "log": {"level": "info"},
    })
}

/// One value over another: objects are merged, anything else replaces what was there.
pub(crate) fn merged(mut under: Value, over: &Value) -> Value {
    for (key, value) in over.as_object().into_iter().flatten() {
        let below = &mut under[key];
        *below = if value.is_object() && below.is_object() { merged(below.take(), value) } else { value.clone() };
    }
    under
}

/// The default configuration with one more namespace.
pub(crate) fn with_namespace(options: &Value) -> Value {
    let mut namespaces = configuration()["channel"]["namespaces"].clone();
    if let Some(list) = namespaces.as_array_mut() {
        list.push(open(options));
    }
    json!({"channel": {"namespaces": namespaces}})
}

/// A directory of our own.
fn directory() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("touchline-attacks-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let directory = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the temporary directory is writable");
    directory
}

/// Writes a configuration that only its owner can read, into a directory of its own.
fn write(changes: &Value) -> (PathBuf, PathBuf) {
    let directory = directory();
    let file = directory.join("config.json");
    fs::write(&file, merged(configuration(), changes).to_string()).expect("the directory is ours");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the file is ours");
    (directory, file)
}

/// What `touchline serve` says of a configuration that it must refuse.
pub(crate) fn refusal(changes: &Value) -> Option<String> {
    let (directory, file) = write(changes);
    let output =
        Command::new(BINARY).arg("check").arg(&file).current_dir(&directory).output().expect("the binary runs");
    let _ = fs::remove_dir_all(&directory);
    (!output.status.success())
        .then(|| String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout))
}

impl Server {
    /// Starts one with the default configuration.
    pub(crate) fn start() -> Self {
        Self::with(&json!({}))
    }

    /// Starts one whose configuration is changed.
    pub(crate) fn with(changes: &Value) -> Self {
        let (directory, file) = write(changes);
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(&file);
        Self::run(command, directory)
    }

    /// Starts `serve` with arguments instead of a configuration.
    pub(crate) fn run_with(arguments: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.arg("serve").args(arguments);
        Self::run(command, directory())
    }

    /// Starts one from a shell's script; `$0` is the binary, `$1` the configuration.
    pub(crate) fn in_shell(script: &str, changes: &Value) -> Self {
        let (directory, file) = write(changes);
        let mut command = Command::new("sh");
        command.args(["-c", script, BINARY]).arg(&file);
        Self::run(command, directory)
    }

    fn run(mut command: Command, directory: PathBuf) -> Self {
        command.current_dir(&directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let log = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&log);
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| lock(&written).push(line)));
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Server { child, directory, address: nowhere, lines: nowhere, log };
        let mut found = None;
        let is_ready = comes(PATIENCE, || {
            found = server.said("ready address=");
            found.is_some() || server.child.try_wait().is_ok_and(|status| status.is_some())
        });
        server.address = found.unwrap_or_else(|| panic!("it does not start ({is_ready}): {}", server.log().join("\n")));
        server.lines = server.said("lines over TCP address=").unwrap_or(nowhere);
        server
    }

    /// The address behind some words of the log.
    fn said(&self, words: &str) -> Option<SocketAddr> {
        self.log().iter().find_map(|line| line.split_once(words)?.1.split_whitespace().next()?.parse().ok())
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    /// The process's number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Bytes of memory that it has.
    pub(crate) fn memory(&self) -> u64 {
        memory(self.id())
    }

    /// The most bytes of memory that it had since `forget_peak`.
    pub(crate) fn peak(&self) -> u64 {
        status(self.id(), "VmHWM:")
    }

    /// Begins to look for the most memory anew.
    pub(crate) fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.id()), "5").expect("the process is ours");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

fn lock(log: &Mutex<Vec<String>>) -> std::sync::MutexGuard<'_, Vec<String>> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of memory that a process has; 0 = it has ended.
pub(crate) fn memory(process: u32) -> u64 {
    status(process, "VmRSS:")
}

/// A figure of `/proc/PID/status` in bytes.
fn status(process: u32, name: &str) -> u64 {
    let text = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
