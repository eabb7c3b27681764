//! A store in a test's hands, on each of the databases.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use touchline_protocol::stream::{LoadId, Offset, Retention};
use touchline_store::{
    Append, AppendedAt, PAYLOAD_HEAD_SIZE, Settings, Store, StoreEvent, StoreRefusal, StoredHistory, Url,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const HOUR_MS: u64 = 3_600_000;

/// A store, and what comes of it.
pub(crate) struct Stage {
    pub(crate) store: Store,
    pub(crate) incoming: Mutex<Receiver<StoreEvent>>,
}

/// What a channel keeps that remembers its position as long as its publications.
pub(crate) fn retention(size: usize, ttl_ms: u64) -> Retention {
    Retention { size, ttl_ms, meta_ttl_ms: ttl_ms }
}

/// The load behind an offset.
pub(crate) fn behind(offset: u64) -> LoadId {
    LoadId { behind: Offset(offset), number: 0 }
}

/// A publication with what most of them have.
pub(crate) fn publication(channel: &str, n: u64) -> Append {
    let mut payload = vec![b'P'; PAYLOAD_HEAD_SIZE];
    payload.extend_from_slice(format!(r#"{{"data":{n}}}"#).as_bytes());
    Append {
        channel: channel.into(),
        payload: payload.into(),
        time_ms: now_ms(),
        key: Box::default(),
        version: 0,
        version_epoch: Box::default(),
        retention: retention(100, HOUR_MS),
        done: Box::new(|_| ()),
    }
}

/// Tells what comes of something.
pub(crate) fn tells<T: Send + 'static>(
    to: &Sender<Result<T, StoreRefusal>>,
) -> Box<dyn FnOnce(Result<T, StoreRefusal>) + Send> {
    let to = to.clone();
    Box::new(move |outcome| {
        let _ = to.send(outcome);
    })
}

pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970").as_millis() as u64
}

pub(crate) fn settings(url: &str) -> Settings {
    Settings {
        primary: url.parse().expect("the address is good"),
        tls_ca: String::new(),
        timeout: PATIENCE,
        notifier: String::new(),
        retention: Arc::new(|_| None),
        migrates: true,
        commit_delay: Duration::ZERO,
        commit_size: 100,
        commit_queue: 1_000,
        pool_size: 2,
        read_queue: 1_000,
    }
}

impl Stage {
    pub(crate) fn open(settings: &Settings) -> Self {
        let (sender, incoming) = channel();
        let sender = Mutex::new(sender);
        let hand = move |incoming| {
            // Nobody listens any more at the end of a test.
            let _ = sender.lock().expect("nobody panics with it").send(incoming);
        };
        Stage { store: Store::open(settings, hand).expect("the store opens"), incoming: Mutex::new(incoming) }
    }

    pub(crate) fn append(&self, mut append: Append) -> Result<AppendedAt, StoreRefusal> {
        let (sender, answer) = channel();
        append.done = tells(&sender);
        self.store.append(append);
        answer.recv_timeout(PATIENCE).expect("it is answered")
    }

    pub(crate) fn offset(&self, append: Append) -> u64 {
        self.append(append).expect("it is stored").offset.0
    }

    /// The history behind an offset.
    pub(crate) fn load(&self, of: &str, offset: u64, size: usize) -> StoredHistory {
        self.try_load(of, offset, size).expect("it can be had")
    }

    /// The same; none = it is refused.
    pub(crate) fn try_load(&self, of: &str, offset: u64, size: usize) -> Option<StoredHistory> {
        self.store.load(of.into(), behind(offset), size, HOUR_MS);
        let incoming = self.incoming.lock().expect("nobody panics with it");
        loop {
            match incoming.recv_timeout(PATIENCE).expect("it comes") {
                StoreEvent::Loaded { channel, history, .. } if &*channel == of => return history,
                _ => {}
            }
        }
    }

    /// Offsets and numbers of a history.
    pub(crate) fn kept(&self, of: &str) -> Vec<(u64, String)> {
        let text = |object: &Bytes| String::from_utf8_lossy(object).into_owned();
        self.load(of, 0, 1_000).kept.iter().map(|kept| (kept.offset.0, text(&kept.object))).collect()
    }

    pub(crate) fn remove(&self, of: &str) {
        let (sender, answer) = channel();
        self.store.remove(of.into(), tells(&sender));
        assert_eq!(answer.recv_timeout(PATIENCE), Ok(Ok(())));
    }

    pub(crate) fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !condition(self) {
            assert!(began.elapsed() < PATIENCE, "in vain: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(crate) fn offsets(kept: &[(u64, String)]) -> Vec<u64> {
    kept.iter().map(|(offset, _)| *offset).collect()
}

/// Carries statements out behind the store's back. In PostgreSQL tables are in a schema.
pub(crate) fn execute(settings: &Settings, statements: &[&str]) {
    for statement in statements {
        match &settings.primary {
            Url::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path).expect("it opens");
                connection.execute_batch(&statement.replace("touchline.", "")).expect("it is written");
            }
            Url::Postgres(url) => {
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

/// A directory of a test's own.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a test on each database.
pub(crate) fn on_both(name: &str, test: impl Fn(&Settings)) {
    on_each(name, |url| test(&settings(url)));
}

/// Runs a test with PostgreSQL in its hands.
pub(crate) fn on_postgres(name: &str, test: impl Fn(&str, &crate::postgres::Postgres)) {
    let scratch = Scratch(std::env::temp_dir().join(format!("touchline-store-{name}-{}", std::process::id())));
    let postgres = crate::postgres::Postgres::start(&scratch.0);
    test(&postgres.url(), &postgres);
}

/// Runs a test with the address of each database.
pub(crate) fn on_each(name: &str, test: impl Fn(&str)) {
    let scratch = Scratch(std::env::temp_dir().join(format!("touchline-store-{name}-{}", std::process::id())));
    test(&format!("sqlite:{}", scratch.0.join("sqlite/primary.db").display()));
    let postgres = crate::postgres::Postgres::start(&scratch.0);
    test(&postgres.url());
    assert_ne!(
        postgres.sql("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'touchline%'"),
        "0",
        "it was PostgreSQL"
    );
}
