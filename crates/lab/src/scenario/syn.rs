//! Syn, the registry for Erlang that Touchline's grew out of: the same steps, on Erlang nodes of this machine.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::guard;
use crate::process::ChildProcess;
use crate::rival::Rival;

const PROGRAM: &str = include_str!("../../rivals/registry/syn_bench.erl");
const COOKIE: &str = "lab";

/// The compiled Syn and its own directory of ports. Dropping this value removes all of it.
pub(super) struct Syn {
    folder: PathBuf,
    /// The lab's own Erlang directory of nodes, so that no process is left behind.
    _directory: ChildProcess,
    port: String,
}

/// The results of one run.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct SynRun {
    pub(super) registered_per_s: f64,
    pub(super) known_ms: f64,
    pub(super) forgotten_ms: f64,
}

impl Syn {
    /// Compiles Syn out of this folder, which has its `src`.
    ///
    /// # Errors
    /// When Erlang is missing, or the folder does not hold Syn 3.
    pub(super) fn compile(source: &Path) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("touchline-lab-syn-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        guard::remove_with_lab(&folder);
        let program = folder.join("syn_bench.erl");
        std::fs::write(&program, PROGRAM)?;
        let sources =
            std::fs::read_dir(source.join("src")).with_context(|| format!("no src in {}", source.display()))?;
        let sources = sources.filter_map(|entry| Some(entry.ok()?.path()));
        let sources: Vec<PathBuf> =
            sources.filter(|path| path.extension().is_some_and(|ending| ending == "erl")).collect();
        let compiled =
            Command::new("erlc").arg("-o").arg(&folder).args(&sources).arg(&program).stdout(Stdio::null()).status();
        if !compiled.context("failed to start erlc: is Erlang installed?")?.success() {
            bail!("{} does not compile", source.display());
        }
        std::fs::copy(source.join("src/syn.app.src"), folder.join("syn.app")).context("no src/syn.app.src")?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
        let directory =
            Command::new("epmd").args(["-port", &port, "-address", "127.0.0.1"]).stdin(Stdio::null()).spawn();
        let directory = ChildProcess::of(directory.context("failed to start epmd")?, "epmd");
        Ok(Syn { folder, _directory: directory, port })
    }

    /// Runs all steps on so many nodes.
    ///
    /// # Errors
    /// When they fail.
    pub(super) fn run(&self, names: u32, nodes: u32) -> Result<SynRun> {
        let (port, folder) = (&self.port, self.folder.display());
        let words = format!(
            "env ERL_EPMD_PORT={port} erl -noshell -name syn1@127.0.0.1 -setcookie {COOKIE} -start_epmd false \
             -pa {folder} -kernel inet_dist_use_interface {{127,0,0,1}} -s syn_bench main {names} {nodes} {folder}"
        );
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut nodes = Rival::start(&words)?;
        // Erlang's log goes to the same place.
        loop {
            let line = nodes.line().context("Erlang ended before its steps did")?;
            if line.starts_with('{') {
                return serde_json::from_str(&line).with_context(|| format!("Erlang said {line:?}"));
            }
        }
    }
}

impl Drop for Syn {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
