//! A PostgreSQL server of its own for a test or a scenario, run as a user that it accepts, which can be killed. It ends
//! when it is dropped.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(180);

/// A server, its data, its port.
pub(crate) struct Postgres {
    programs: PathBuf,
    data: PathBuf,
    port: u16,
    variables: Vec<(&'static str, PathBuf)>,
    options: String,
}

impl Postgres {
    /// Makes the server's data directory below `scratch`, and starts the server.
    pub(crate) fn start(scratch: &Path) -> Self {
        Postgres::start_with(scratch, &[], "")
    }

    /// The same with more in the server's environment, and with options of its own.
    pub(crate) fn start_with(scratch: &Path, variables: &[(&'static str, PathBuf)], options: &str) -> Self {
        assert!(Postgres::is_installed(), "PostgreSQL is not installed (Debian package postgresql)");
        let data = scratch.join("postgres");
        let port = free_port();
        let programs = programs().unwrap_or_default();
        let postgres = Postgres { programs, data, port, variables: variables.to_vec(), options: options.to_owned() };
        fs::create_dir_all(&postgres.data).expect("the directory is ours");
        if is_root() {
            let owned = Command::new("chown").arg("postgres:postgres").arg(&postgres.data).status();
            assert!(owned.is_ok_and(|status| status.success()), "there is a user named postgres");
        }
        let data = postgres.data.display().to_string();
        postgres.run("initdb", &[], &["--pgdata", &data, "--auth", "trust", "--username", "postgres", "--no-sync"]);
        postgres.again();
        postgres
    }

    /// Whether PostgreSQL is installed.
    pub(crate) fn is_installed() -> bool {
        programs().is_some()
    }

    /// Starts the server (again), unless it runs.
    pub(crate) fn again(&self) {
        if self.is_running() {
            return;
        }
        let Postgres { port, options, .. } = self;
        let options = format!(
            "-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 {options}"
        );
        let (data, log) = (self.data.display().to_string(), self.data.join("log").display().to_string());
        self.run(
            "pg_ctl",
            &self.variables,
            &["--pgdata", &data, "--log", &log, "--options", &options, "--wait", "start"],
        );
    }

    /// Ends the server at once, as a crash would.
    pub(crate) fn kill(&self) {
        let data = self.data.display().to_string();
        self.run("pg_ctl", &[], &["--pgdata", &data, "--mode", "immediate", "--wait", "stop"]);
    }

    /// The URL of the database, as a configuration has it.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs SQL as an application would, and returns the output.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let output = Command::new(self.programs.join("psql"))
            .args([&self.url(), "-qAt", "-c", sql])
            .output()
            .expect("psql runs");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Whether the server runs.
    fn is_running(&self) -> bool {
        // The first line of its file is the number of its process.
        let file = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        file.lines().next().is_some_and(|process| Path::new("/proc").join(process).exists())
    }

    fn run(&self, program: &str, variables: &[(&'static str, PathBuf)], arguments: &[&str]) {
        let program = self.programs.join(program);
        let mut command = if is_root() {
            // PostgreSQL refuses to run as root.
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(&program);
            command
        } else {
            Command::new(&program)
        };
        let began = Instant::now();
        let said = self.data.with_extension("said");
        let out = fs::File::create(&said).expect("the directory is ours");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(out);
        let status = command.status().expect("PostgreSQL's programs run");
        assert!(status.success(), "{}: {}", program.display(), fs::read_to_string(&said).unwrap_or_default());
        assert!(began.elapsed() < PATIENCE, "{} took too long", program.display());
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The server may have stopped already.
            let _ = std::panic::catch_unwind(|| self.kill());
        } else {
            self.kill();
        }
    }
}

/// A free port, below those that the kernel gives to outgoing connections: one of these could take the port at any time
/// while the server restarts.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = 10_000 + (RandomState::new().hash_one(()) % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The directory of PostgreSQL's programs: Debian does not put it on the path.
fn programs() -> Option<PathBuf> {
    let debian =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|version| version.path().join("bin"));
    let path = std::env::var("PATH").unwrap_or_default();
    debian.chain(path.split(':').map(PathBuf::from)).find(|directory| directory.join("initdb").exists())
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("id runs");
    output.stdout.trim_ascii() == b"0"
}
