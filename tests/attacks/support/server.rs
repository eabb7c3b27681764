//! A server process with its configuration file, log and memory.

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

/// A running server. It is killed when the value is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) directory: PathBuf,
    /// The address of HTTP and WebSocket.
    pub(crate) address: SocketAddr,
    /// The address of the port of lines.
    pub(crate) lines: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

/// Options with which each client may subscribe and read everything.
fn open(more: &Value) -> Value {
    let options = json!({
        "allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
        "allow_publish_for_client": true, "allow_publish_for_anonymous": true,
    });
    merged(options, more)
}

/// The default configuration of the attacks.
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

/// Puts one value over another: objects are merged, and any other value replaces the former value.
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

/// Makes a new directory and returns its path.
fn directory() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("touchline-attacks-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let directory = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the temporary directory is writable");
    directory
}

/// Writes a configuration that only its owner can read, into a new directory.
fn write(changes: &Value) -> (PathBuf, PathBuf) {
    let directory = directory();
    let file = directory.join("config.json");
    fs::write(&file, merged(configuration(), changes).to_string()).expect("the directory is ours");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the file is ours");
    (directory, file)
}

/// The output of `touchline serve` for a configuration that it must refuse.
pub(crate) fn refusal(changes: &Value) -> Option<String> {
    let (directory, file) = write(changes);
    let output =
        Command::new(BINARY).arg("check").arg(&file).current_dir(&directory).output().expect("the binary runs");
    let _ = fs::remove_dir_all(&directory);
    (!output.status.success())
        .then(|| String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout))
}

impl Server {
    /// Starts a server with the default configuration.
    pub(crate) fn start() -> Self {
        Self::with(&json!({}))
    }

    /// Starts a server with changes to the default configuration.
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

    /// Starts a server from a shell script. In the script `$0` is the binary and `$1` the configuration.
    pub(crate) fn in_shell(script: &str, changes: &Value) -> Self {
        let (directory, file) = write(changes);
        let mut command = Command::new("sh");
        command.args(["-c", script, BINARY]).arg(&file);
        Self::run(command, directory)
    }

    fn run(mut command: Command, directory: PathBuf) -> Self {
        command.current_dir(&directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let lines = BufReader::new(child.stderr.take().expect("the stream is piped")).lines();
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

    /// The address that follows some words in the log.
    fn said(&self, words: &str) -> Option<SocketAddr> {
        self.log().iter().find_map(|line| line.split_once(words)?.1.split_whitespace().next()?.parse().ok())
    }

    /// The lines that the server has logged.
    pub(crate) fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    /// The process id of the server.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The memory of the server in bytes.
    pub(crate) fn memory(&self) -> u64 {
        memory(self.id())
    }

    /// The most memory of the server since `forget_peak`, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        status(self.id(), "VmHWM:")
    }

    /// Resets the peak of memory that the kernel has recorded.
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

/// The memory of a process in bytes. 0: the process has ended.
pub(crate) fn memory(process: u32) -> u64 {
    status(process, "VmRSS:")
}

/// A value of `/proc/PID/status` in bytes.
fn status(process: u32, name: &str) -> u64 {
    let text = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
