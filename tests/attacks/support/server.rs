//! A server process with its configuration file, log and memory.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use touchline_testkit::Folder;
use touchline_testkit::process::TestProgram;

const BINARY: &str = env!("CARGO_BIN_EXE_touchline");
pub(crate) const KEY: &str = "api-key";
pub(crate) const SECRET: &str = "token-secret";

/// A running server. It is killed when the value is dropped.
pub(crate) struct Server {
    program: TestProgram,
    folder: Folder,
    /// The address of HTTP and WebSocket.
    pub(crate) address: SocketAddr,
    /// The address of the port of lines.
    pub(crate) lines: SocketAddr,
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

/// Writes a configuration that only its owner can read, into a new directory.
fn write(changes: &Value) -> (Folder, PathBuf) {
    let folder = Folder::new("attacks");
    let file = folder.write("config.json", merged(configuration(), changes).to_string());
    (folder, file)
}

/// The output of `touchline serve` for a configuration that it must refuse.
pub(crate) fn refusal(changes: &Value) -> Option<String> {
    let (folder, file) = write(changes);
    let mut command = Command::new(BINARY);
    let output = command.arg("check").arg(&file).current_dir(folder.path()).output().expect("the binary runs");
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
        let (folder, file) = write(changes);
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(&file);
        Self::run(command, folder)
    }

    /// Starts `serve` with arguments instead of a configuration.
    pub(crate) fn run_with(arguments: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.arg("serve").args(arguments);
        Self::run(command, Folder::new("attacks"))
    }

    /// Starts a server from a shell script. In the script `$0` is the binary and `$1` the configuration.
    pub(crate) fn in_shell(script: &str, changes: &Value) -> Self {
        let (folder, file) = write(changes);
        let mut command = Command::new("sh");
        command.args(["-c", script, BINARY]).arg(&file);
        Self::run(command, folder)
    }

    fn run(mut command: Command, folder: Folder) -> Self {
        let program = TestProgram::start(command.current_dir(folder.path()));
        let address = program.address();
        let words = "lines over TCP address=";
        let has_lines = program.errors.text().contains(words);
        let lines = if has_lines { program.address_after(words) } else { SocketAddr::from(([127, 0, 0, 1], 0)) };
        Server { program, folder, address, lines }
    }

    /// The lines that the server has logged.
    pub(crate) fn log(&self) -> Vec<String> {
        self.program.errors.text().lines().map(str::to_owned).collect()
    }

    /// The directory of the server.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process id of the server.
    pub(crate) fn id(&self) -> u32 {
        self.program.id()
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
