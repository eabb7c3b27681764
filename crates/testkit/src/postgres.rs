//! A separate PostgreSQL server for a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::ports::free_port;
use crate::wait::PATIENCE;

/// The option of a server that does not wait for its disk.
pub const WITHOUT_FSYNC: &str = "-c fsync=off";

/// A server with its data and its port. It ends when the value is dropped. PostgreSQL refuses to run as root: then the
/// server runs as the user `postgres`.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    data: PathBuf,
    port: u16,
    variables: Vec<(&'static str, PathBuf)>,
    options: String,
}

impl PostgresServer {
    /// Makes the server's data directory below `scratch`, and starts the server. A process that is killed loses nothing
    /// without `fsync`; only a machine that stops would.
    #[track_caller]
    pub fn start(scratch: &Path) -> Self {
        PostgresServer::start_with(scratch, &[], WITHOUT_FSYNC)
    }

    /// Starts a server with more variables in its environment, and with other options on its command line.
    #[track_caller]
    pub fn start_with(scratch: &Path, variables: &[(&'static str, PathBuf)], options: &str) -> Self {
        assert!(PostgresServer::is_installed(), "PostgreSQL is not installed (Debian package postgresql)");
        let data = scratch.join("postgres");
        let port = free_port();
        let programs = programs().unwrap_or_default();
        let postgres =
            PostgresServer { programs, data, port, variables: variables.to_vec(), options: options.to_owned() };
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
    pub fn is_installed() -> bool {
        programs().is_some()
    }

    /// Starts the server again, unless it runs.
    #[track_caller]
    pub fn again(&self) {
        if self.is_running() {
            return;
        }
        let PostgresServer { port, options, .. } = self;
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

    /// Ends the server as in a crash.
    #[track_caller]
    pub fn kill(&self) {
        let data = self.data.display().to_string();
        self.run("pg_ctl", &[], &["--pgdata", &data, "--mode", "immediate", "--wait", "stop"]);
    }

    /// The URL of the database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs SQL with `psql`, and returns the output. A statement that the server ended because of a deadlock has done
    /// nothing, and runs again.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        loop {
            let output = Command::new(self.programs.join("psql"))
                .args([&self.url(), "-qAt", "-c", sql])
                .output()
                .expect("psql runs");
            let error = String::from_utf8_lossy(&output.stderr);
            if !error.contains("deadlock detected") {
                assert!(output.status.success(), "{sql}: {error}");
                return String::from_utf8_lossy(&output.stdout).trim().to_owned();
            }
        }
    }

    /// Whether the server runs.
    fn is_running(&self) -> bool {
        // The first line of its file is the number of its process.
        let file = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        file.lines().next().is_some_and(|process| Path::new("/proc").join(process).exists())
    }

    #[track_caller]
    fn run(&self, program: &str, variables: &[(&'static str, PathBuf)], arguments: &[&str]) {
        let program = self.programs.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(&program);
            command
        } else {
            Command::new(&program)
        };
        let said = self.data.with_extension("said");
        let out = fs::File::create(&said).expect("the directory is ours");
        command
            .env("PGCTLTIMEOUT", PATIENCE.as_secs().to_string())
            .envs(variables.iter().map(|(name, value)| (name, value)));
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(out);
        let status = command.status().expect("PostgreSQL's programs run");
        assert!(status.success(), "{}: {}", program.display(), fs::read_to_string(&said).unwrap_or_default());
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The server may have stopped already.
            let _ = std::panic::catch_unwind(|| self.kill());
        } else {
            self.kill();
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
