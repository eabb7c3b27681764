//! A store under test, on each of the databases.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use touchline_config::{PrimarySettings, StoreSettings};
use touchline_protocol::stored::encode_publication;
use touchline_protocol::stream::{LoadId, Offset, Retention, StreamPosition};
use touchline_store::{Append, DatabaseUrl, PrimaryOptions, Store, StoreEvent, StoreRefusal, StoredHistory};
use touchline_testkit::postgres::{PostgresServer, WITHOUT_FSYNC};
use touchline_testkit::{PATIENCE, until};

pub(crate) const HOUR_MS: u64 = 3_600_000;

/// A store and its events.
pub(crate) struct Stage {
    pub(crate) store: Store,
    pub(crate) events: Mutex<Receiver<StoreEvent>>,
}

/// The retention of a channel whose position is remembered as long as its publications.
pub(crate) fn retention(size: usize, ttl_ms: u64) -> Retention {
    Retention { size, ttl_ms, meta_ttl_ms: ttl_ms }
}

/// The load after an offset.
pub(crate) fn behind(offset: u64) -> LoadId {
    LoadId { behind: Offset(offset), number: 0 }
}

/// The payload of a publication with this JSON object.
pub(crate) fn payload(object: &str) -> Bytes {
    encode_publication(now_ms(), object.len(), |out| out.extend_from_slice(object.as_bytes())).into()
}

/// A publication with the usual options.
pub(crate) fn publication(channel: &str, n: u64) -> Append {
    Append {
        channel: channel.into(),
        payload: payload(&format!(r#"{{"data":{n}}}"#)),
        time_ms: now_ms(),
        key: Box::default(),
        version: 0,
        version_epoch: Box::default(),
        retention: retention(100, HOUR_MS),
        done: Box::new(|_| ()),
    }
}

/// A callback that sends the result to a channel.
pub(crate) fn tells<T: Send + 'static>(
    to: &Sender<Result<T, StoreRefusal>>,
) -> Box<dyn FnOnce(Result<T, StoreRefusal>) + Send> {
    let to = to.clone();
    Box::new(move |result| {
        let _ = to.send(result);
    })
}

pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970").as_millis() as u64
}

pub(crate) fn settings(url: &str) -> PrimaryOptions {
    let primary = PrimarySettings { timeout: PATIENCE, pool_size: 2, read_queue: 1_000, ..PrimarySettings::default() };
    PrimaryOptions {
        store: StoreSettings { primary, commit_size: 100, commit_queue: 1_000, ..StoreSettings::default() },
        url: url.parse().expect("the address is good"),
        tls_ca: String::new(),
        notifier: String::new(),
        has_facts: false,
        seen_expires_s: 0,
        reactions_expire_ms: 0,
        retention: Arc::new(|_| None),
    }
}

/// The same settings with one change.
pub(crate) fn with(settings: &PrimaryOptions, change: impl FnOnce(&mut StoreSettings)) -> PrimaryOptions {
    let mut settings = settings.clone();
    change(&mut settings.store);
    settings
}

impl Stage {
    pub(crate) fn open(settings: &PrimaryOptions) -> Self {
        let (sender, events) = channel();
        let sender = Mutex::new(sender);
        let sink = move |event| {
            // At the end of a test the receiver has been dropped.
            let _ = sender.lock().expect("no test thread panics while it holds the lock").send(event);
        };
        Stage { store: Store::open(settings, sink).expect("the store opens"), events: Mutex::new(events) }
    }

    pub(crate) fn append(&self, mut append: Append) -> Result<StreamPosition, StoreRefusal> {
        let (sender, reply) = channel();
        append.done = tells(&sender);
        self.store.append(append);
        reply.recv_timeout(PATIENCE).expect("the request gets a reply")
    }

    pub(crate) fn offset(&self, append: Append) -> u64 {
        self.append(append).expect("it is stored").offset.0
    }

    /// The history after an offset.
    pub(crate) fn load(&self, of: &str, offset: u64, size: usize) -> StoredHistory {
        self.try_load(of, offset, size).expect("the history can be read")
    }

    /// The history after an offset. `None` = it cannot be read.
    pub(crate) fn try_load(&self, of: &str, offset: u64, size: usize) -> Option<StoredHistory> {
        self.store.load(of.into(), behind(offset), size, HOUR_MS);
        let events = self.events.lock().expect("no test thread panics while it holds the lock");
        loop {
            match events.recv_timeout(PATIENCE).expect("an event comes") {
                StoreEvent::Loaded { channel, history, .. } if &*channel == of => return history,
                _ => {}
            }
        }
    }

    /// The offsets and objects of a history.
    pub(crate) fn kept(&self, of: &str) -> Vec<(u64, String)> {
        let text = |object: &Bytes| String::from_utf8_lossy(object).into_owned();
        self.load(of, 0, 1_000).kept.iter().map(|kept| (kept.offset.0, text(&kept.object))).collect()
    }

    pub(crate) fn remove(&self, of: &str) {
        let (sender, reply) = channel();
        self.store.remove(of.into(), tells(&sender));
        assert_eq!(reply.recv_timeout(PATIENCE), Ok(Ok(())));
    }
}

/// Waits until a message with a lifetime of a millisecond has expired.
pub(crate) fn pass_a_millisecond() {
    let end_ms = now_ms() + 1;
    until("a millisecond has passed", || now_ms() > end_ms);
}

pub(crate) fn offsets(kept: &[(u64, String)]) -> Vec<u64> {
    kept.iter().map(|(offset, _)| *offset).collect()
}

/// Runs statements without the store. In PostgreSQL the tables are in a schema.
pub(crate) fn execute(settings: &PrimaryOptions, statements: &[&str]) {
    for statement in statements {
        match &settings.url {
            DatabaseUrl::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path).expect("it opens");
                connection.execute_batch(&statement.replace("touchline.", "")).expect("it is written");
            }
            DatabaseUrl::Postgres(url) => {
                let mut command = std::process::Command::new("psql");
                let done = command
                    .args([url.as_str(), "-q", "-v", "ON_ERROR_STOP=1", "-c", statement])
                    .status()
                    .expect("psql is there");
                assert!(done.success(), "{statement}");
            }
        }
    }
}

/// The directory of one test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a test on each database.
pub(crate) fn on_both(name: &str, test: impl Fn(&PrimaryOptions)) {
    on_each(name, |url| test(&settings(url)));
}

/// Runs a test that also controls the PostgreSQL server.
pub(crate) fn on_postgres(name: &str, test: impl Fn(&str, &PostgresServer)) {
    let scratch = Scratch(std::env::temp_dir().join(format!("touchline-store-{name}-{}", std::process::id())));
    let postgres = PostgresServer::start(&scratch.0);
    test(&postgres.url(), &postgres);
}

/// Runs a test with the address of each database.
pub(crate) fn on_each(name: &str, test: impl Fn(&str)) {
    on_each_with(name, "", test);
}

/// Like [`on_each`], with options of the PostgreSQL server.
pub(crate) fn on_each_with(name: &str, options: &str, test: impl Fn(&str)) {
    let scratch = Scratch(std::env::temp_dir().join(format!("touchline-store-{name}-{}", std::process::id())));
    test(&format!("sqlite:{}", scratch.0.join("sqlite/primary.db").display()));
    let postgres = PostgresServer::start_with(&scratch.0, &[], &format!("{WITHOUT_FSYNC} {options}"));
    test(&postgres.url());
    assert_ne!(
        postgres.sql("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'touchline%'"),
        "0",
        "it was PostgreSQL"
    );
}
