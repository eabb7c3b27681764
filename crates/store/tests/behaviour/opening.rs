//! If a database does not open, the error names the cause and the remedy, and never a password.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use touchline_store::migrate::PRIMARY;
use touchline_store::{DatabaseUrl, OpenError, PostgresError, PrimaryOptions, Schema, Store, StoreRefusal};
use touchline_testkit::ports::free_port;
use touchline_testkit::postgres::PostgresServer;

use crate::stage::{Stage, publication, settings};

/// Everything that was logged in this process.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(part: &str) -> Vec<String> {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&log).lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

/// A separate directory, which is removed when the value is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("touchline-store-opening-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn refusal(url: &str) -> OpenError {
    match Store::open(&settings(url), |_| {}) {
        Err(error) => error,
        Ok(_) => panic!("{url} opens"),
    }
}

fn refusal_of_file(path: &Path) -> String {
    let refused = refusal(&format!("sqlite:{}", path.display()));
    let text = refused.to_string();
    assert!(text.contains(&path.with_extension("").display().to_string()), "{text} names the file");
    text
}

#[test]
fn a_file_that_cannot_be_a_database_says_why() {
    let directory = Directory::new("file");
    let path = |name: &str| directory.0.join(name);
    std::fs::create_dir_all(path("folder.db")).expect("the directory is ours");
    std::fs::write(path("junk.db"), "a file of something else, longer than the head of a database".repeat(20))
        .expect("the directory is ours");
    std::fs::write(path("below"), "").expect("the directory is ours");
    for (name, cause) in [("folder.db", "is a directory"), ("junk.db", "file is not a database; move this file away")] {
        let text = refusal_of_file(&path(name));
        assert!(text.contains(cause), "{name}: {text}");
    }
    let text = refusal(&format!("sqlite:{}", path("below/primary.db").display())).to_string();
    assert!(text.contains("below") && text.contains("can't be used"), "{text}");
    // No account can write there, not even root.
    let text = refusal_of_file(Path::new("/proc/touchline.db"));
    assert!(text.contains("can't be used"), "{text}");
}

#[test]
fn postgresql_that_refuses_says_why_and_shows_no_password() {
    let directory = Directory::new("login");
    let hba = directory.0.join("hba.conf");
    let rules = "host all postgres 127.0.0.1/32 trust\nhost all reader 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(&hba, rules).expect("the directory is ours");
    let postgres = PostgresServer::start_with(&directory.0, &[], &format!("-c hba_file={}", hba.display()));
    postgres.sql("CREATE ROLE reader LOGIN PASSWORD 'right'");
    postgres.sql("CREATE ROLE stranger LOGIN");
    let url = postgres.url();
    let server = url.strip_suffix("/postgres").expect("the URL names the database");
    let as_user = |user: &str| format!("{server}/postgres").replace("postgres@", &format!("{user}:tops3cret@"));
    for (url, cause, remedy) in [
        (as_user("reader"), "password authentication failed", "set the user and the password"),
        (as_user("stranger"), "no pg_hba.conf entry", "allow this user from this machine in pg_hba.conf"),
        (format!("{server}/no_such"), "database \"no_such\" does not exist", "createdb"),
        (as_user("reader").replace("tops3cret", "right"), "permission denied", "GRANT CREATE"),
    ] {
        let refused = refusal(&url);
        let text = refused.to_string();
        assert!(matches!(refused, OpenError::Postgres(_)), "{text}");
        assert!(text.contains(cause) && text.contains(remedy), "{text}");
        for shown in [text, format!("{refused:?}")] {
            assert!(!shown.contains("tops3cret") && !shown.contains(":right@"), "{shown}");
        }
    }
}

#[test]
fn postgresql_that_is_away_is_logged_once_with_its_cause_and_without_its_password() {
    let logging = tracing_subscriber::fmt().with_ansi(false).with_writer(|| LogWriter).try_init();
    assert!(logging.is_ok(), "no other test sets the log");
    let port = free_port();
    let url = format!("postgres://postgres:tops3cret@127.0.0.1:{port}/postgres");
    let parsed: DatabaseUrl = url.parse().expect("the address is good");
    let Err(refused) = Schema::open(&PRIMARY, &parsed, "") else { panic!("nothing listens there") };
    assert!(matches!(refused, OpenError::Postgres(PostgresError::Unreachable { .. })), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("Connection refused") && text.contains("check that PostgreSQL is running"), "{text}");
    // A server that is down may come up later, so the store opens without it.
    let stage = Stage::open(&PrimaryOptions { notifier: "one".to_owned(), ..settings(&url) });
    for n in 0..20 {
        assert_eq!(stage.append(publication("a", n)), Err(StoreRefusal::Failed));
        assert!(stage.try_load("a", 0, 10).is_none());
    }
    stage.store.close();
    let lines = logged(&format!("127.0.0.1:{port}/postgres"));
    let failures: Vec<&String> = lines.iter().filter(|line| line.contains("the primary database fails")).collect();
    assert_eq!((failures.len(), lines.len()), (1, 1), "one line for writes, reads and notifications: {lines:?}");
    assert!(failures[0].contains("Connection refused"), "{lines:?}");
    assert!(logged("tops3cret").is_empty() && !format!("{text}{refused:?}").contains("tops3cret"));
}
