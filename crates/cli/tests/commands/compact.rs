//! `touchline compact`, on files and on PostgreSQL, with and without a node.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::process::TestProgram;
use touchline_testkit::until;

use crate::{text, touchline};

/// A directory with a configuration. It is removed at the end of the test.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("touchline-compact-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("the temporary directory is writable");
        let place = Place(path);
        place.configure(&format!("sqlite:{}", place.file().display()), false);
        place
    }

    fn file(&self) -> PathBuf {
        self.0.join("primary.db")
    }

    fn configure(&self, url: &str, has_stats: bool) {
        let stats = self.0.join("stats.db");
        let configuration = format!(
            "client.token.hmac_secret_key = \"a secret of this test, long enough for HS256\"\n\
             store.primary.url = \"{url}\"\nstore.stats.url = \"sqlite:{}\"\nstore.stats.enabled = {has_stats}\n",
            stats.display()
        );
        std::fs::write(self.0.join("touchline.toml"), configuration).expect("the test owns it");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = touchline(arguments);
        command.env("TOUCHLINE_CONFIG", self.0.join("touchline.toml")).current_dir(&self.0);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// The bytes before and after, as the command prints them for a database.
    fn good(&self, arguments: &[&str], database: &str) -> (u64, u64) {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        let said = text(&output.stdout);
        let line = said.lines().find_map(|line| line.strip_prefix(&format!("{database}: ")));
        let numbers: Vec<u64> =
            line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert_eq!(numbers.len(), 2, "{said}");
        (numbers[0], numbers[1])
    }

    fn bad(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    /// Fills the file with rows and deletes all but one.
    fn fill(&self) {
        let connection = rusqlite::Connection::open(self.file()).expect("it opens");
        let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) \
             INSERT INTO inbox_message (scope, name, message, expires_ms, format) \
             SELECT 's', 'n' || i, hex(randomblob(500)), 9000000000000, 1 FROM n; \
             DELETE FROM inbox_message WHERE id > 1";
        connection.execute_batch(rows).expect("it is written");
    }
}

/// The number of rows in a file. The file must be whole.
fn rows(path: &Path) -> u64 {
    let connection = rusqlite::Connection::open(path).expect("it opens");
    let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("it is read");
    assert_eq!(verdict, "ok");
    connection.query_row("SELECT count(*) FROM inbox_message", [], |row| row.get(0)).expect("it is read")
}

#[test]
fn a_file_gives_back_what_its_rows_have_left() {
    let place = Place::new("file");
    assert!(place.bad(&["compact"]).contains("there is no database"));
    assert!(!place.file().exists(), "nothing is made");
    assert!(place.run(&["migrate", "up"]).status.success());
    let (before, after) = place.good(&["compact"], "primary");
    assert!(after <= before, "{before} {after}: an empty one");
    place.fill();
    let (before, after) = place.good(&["compact"], "primary");
    assert!(before > 4_000_000 && after < 1_000_000, "{before} {after}");
    assert_eq!(rows(&place.file()), 1);
    assert!(place.run(&["migrate", "status"]).status.success());
    assert!(place.run(&["migrate", "up", "--database", "stats"]).status.success());
    place.configure(&format!("sqlite:{}", place.file().display()), true);
    place.good(&["compact"], "stats");
    place.good(&["compact", "--database", "stats"], "stats");
}

#[test]
fn what_is_no_database_of_ours_is_not_touched() {
    let place = Place::new("other");
    let write = |content: &[u8]| std::fs::write(place.file(), content).expect("the test owns it");
    write(b"this is no database, and it is long enough to be looked at by anybody who wants to know");
    assert!(place.bad(&["compact"]).contains("file is not a database"));
    write(b"");
    assert!(place.bad(&["compact"]).contains("it is not the primary database"));
    std::fs::remove_file(place.file()).expect("the test owns it");
    let other = rusqlite::Connection::open(place.file()).expect("it is made");
    other.execute_batch("CREATE TABLE shop (article)").expect("it is written");
    drop(other);
    let content = std::fs::read(place.file()).expect("the test owns it");
    assert!(place.bad(&["compact"]).contains("it is not the primary database"));
    assert_eq!(std::fs::read(place.file()).expect("the test owns it"), content);
    std::fs::remove_file(place.file()).expect("the test owns it");
    std::fs::create_dir(place.file()).expect("the test owns it");
    assert!(!place.bad(&["compact"]).is_empty(), "a directory");
    let left: Vec<_> =
        std::fs::read_dir(&place.0).expect("the test owns it").flatten().map(|one| one.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("compacting")), "{left:?}");
}

#[test]
fn a_database_that_a_node_has_is_not_compacted() {
    let place = Place::new("node");
    assert!(place.run(&["migrate", "up"]).status.success());
    // A node holds this lock while it runs.
    let lock = std::fs::File::create(place.file().with_extension("lock")).expect("the test owns it");
    lock.lock().expect("the lock is free");
    let said = place.bad(&["compact"]);
    assert!(said.contains("a node uses this database") && said.contains("stop the node"), "{said}");
    drop(lock);
    place.good(&["compact"], "primary");
}

#[test]
fn a_lock_that_root_makes_is_for_the_account_of_the_node() {
    let place = Place::new("lock");
    assert!(place.run(&["migrate", "up"]).status.success());
    let lock = place.file().with_extension("lock");
    std::fs::remove_file(&lock).expect("migrate has made it");
    let node = 65_534;
    // Only root can change the owner. Without root the owner stays the same.
    let _ = std::os::unix::fs::chown(place.file(), Some(node), Some(node));
    place.good(&["compact"], "primary");
    let owner = |path: &Path| std::fs::metadata(path).map(|found| (found.uid(), found.gid())).expect("it is there");
    assert_eq!(owner(&lock), owner(&place.file()));
}

#[test]
fn a_role_that_does_not_own_the_tables_compacts_nothing() {
    let place = Place::new("owner");
    let postgres = PostgresServer::start(&place.0.join("postgres"));
    place.configure(&postgres.url(), false);
    assert!(place.run(&["migrate", "up"]).status.success());
    postgres.sql("CREATE ROLE guest LOGIN");
    postgres.sql("GRANT USAGE ON SCHEMA touchline TO guest");
    postgres.sql("GRANT SELECT ON ALL TABLES IN SCHEMA touchline TO guest");
    let url = postgres.url().replace("postgres@", "guest@");
    assert_ne!(url, postgres.url());
    place.configure(&url, false);
    for arguments in [&["compact"][..], &["compact", "--full"]] {
        let said = place.bad(arguments);
        assert!(said.contains("the role guest does not own touchline.") && said.contains("GRANT postgres"), "{said}");
    }
    postgres.sql("GRANT postgres TO guest");
    place.good(&["compact"], "primary");
}

#[test]
fn whoever_kills_it_leaves_the_database_whole() {
    let place = Place::new("kill");
    assert!(place.run(&["migrate", "up"]).status.success());
    place.fill();
    // Each run is killed a little later than the one before.
    for step in 0..30 {
        let mut run = place.command(&["compact"]).stdout(Stdio::null()).spawn().expect("the binary runs");
        // waits: each run is killed at another moment.
        std::thread::sleep(std::time::Duration::from_millis(step * 4));
        let _ = run.kill();
        let _ = run.wait();
        assert_eq!(rows(&place.file()), 1, "step {step}");
        if step % 10 == 9 {
            place.fill();
        }
    }
    // The files of the killed runs do not disturb the next run.
    place.good(&["compact"], "primary");
    let left: Vec<_> =
        std::fs::read_dir(&place.0).expect("the test owns it").flatten().map(|one| one.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("compacting")), "{left:?}");
}

#[test]
fn tables_of_postgresql_are_cleared_or_written_anew() {
    let place = Place::new("postgres");
    let postgres = PostgresServer::start(&place.0.join("postgres"));
    place.configure(&postgres.url(), false);
    assert!(place.bad(&["compact"]).contains("there is no database"));
    assert!(place.run(&["migrate", "up"]).status.success());
    postgres.sql(
        "INSERT INTO touchline.inbox_message (scope, name, message, expires_ms, format) \
         SELECT 's', 'n' || i, repeat(md5(i::text), 20), 9000000000000, 1 FROM generate_series(1, 5000) i",
    );
    postgres.sql("DELETE FROM touchline.inbox_message WHERE id % 50 > 0");
    // Rows at the end of the table stay, so PostgreSQL cannot return the end of the file to the system.
    let (before, _) = place.good(&["compact"], "primary");
    let (_, after) = place.good(&["compact", "--full"], "primary");
    assert!(after < before, "{before} {after}");
    assert_eq!(postgres.sql("SELECT count(*) FROM touchline.inbox_message"), "100");
    // A connection with the application name of a node stays open.
    let url = postgres.url();
    let mut node = Command::new("psql");
    let _node = TestProgram::start(node.args([&url, "-qc", "SELECT pg_sleep(600)"]).env("PGAPPNAME", "touchline"));
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'touchline'";
    until("the node connects", || postgres.sql(count) != "0");
    let said = place.bad(&["compact", "--full"]);
    assert!(said.contains("running nodes use this database") && said.contains("stop the nodes"), "{said}");
    place.good(&["compact"], "primary");
}
