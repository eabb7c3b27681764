//! The size limit of the database: writes that enlarge it are refused in time, and writes that shrink it never.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;

use touchline_protocol::fact::{Fact, FactChange, FactKey};
use touchline_store::{Append, DatabaseUrl, InboxMessage, PrimaryOptions, Store, StoreEvent, StoreRefusal};
use touchline_testkit::{PATIENCE, until};

use crate::stage::{HOUR_MS, Stage, now_ms, on_each_with, payload, publication, retention, settings, tells, with};

const MIB: u64 = 1_024 * 1_024;
const LIMIT: u64 = 16 * MIB;
/// How much the files may exceed the limit: the log of one commit, or what two looks at PostgreSQL do not see.
const SLACK: u64 = 4 * MIB;
/// The number of consecutive bursts without a stored publication that end a flood. PostgreSQL is measured in between.
const IN_VAIN: u32 = 25;

fn limited(url: &str) -> PrimaryOptions {
    with(&settings(url), |store| store.primary.max_size = LIMIT)
}

/// PostgreSQL itself vacuums deleted rows once per minute; here only the store does.
fn on_both(name: &str, test: impl Fn(&PrimaryOptions)) {
    on_each_with(name, "-c autovacuum=off", |url| test(&limited(url)));
}

/// A publication of a few KiB that cannot be compressed much.
fn large(channel: &str, seed: u64) -> Append {
    let mut random = fastrand::Rng::with_seed(seed);
    let text: String = (0..4_000).map(|_| random.alphanumeric()).collect();
    Append {
        payload: payload(&format!(r#"{{"data":"{text}"}}"#)),
        retention: retention(1_000_000, HOUR_MS),
        ..publication(channel, 0)
    }
}

/// Publishes bursts until all of a burst are refused, and returns how many publications were stored.
fn flood(stage: &Stage, channel: &str) -> u64 {
    let (mut stored, mut seed, mut in_vain) = (0, 0, 0);
    // This is far more than fits.
    for _ in 0..4_000 {
        let (sender, results) = std::sync::mpsc::channel();
        for _ in 0..50 {
            seed += 1;
            stage.store.append(Append { done: tells(&sender), ..large(channel, seed) });
        }
        let results: Vec<_> = (0..50).map(|_| results.recv_timeout(PATIENCE).expect("a result comes")).collect();
        let refused = results.iter().filter(|result| result.is_err()).count();
        assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(StoreRefusal::DatabaseFull))), "{results:?}");
        stored += 50 - refused as u64;
        in_vain = if refused == 50 && is_at_limit(stage) { in_vain + 1 } else { 0 };
        if in_vain == IN_VAIN {
            return stored;
        }
        if refused > 0 {
            // In PostgreSQL the next look may find room, because charges exceed what is written.
            // waits: the store looks at the size of the database every 100 ms.
            std::thread::sleep(std::time::Duration::from_millis(120));
        }
    }
    panic!("the limit was not reached: {stored} were stored, {:?} are used", stage.store.metrics().size.used());
}

/// Whether the last look has found less room than one burst needs.
fn is_at_limit(stage: &Stage) -> bool {
    stage.store.metrics().size.used().is_some_and(|used| used > LIMIT / 16 * 15 - MIB)
}

/// The size of the files as other programs see them, bytes.
fn on_disk(options: &PrimaryOptions) -> u64 {
    match &options.url {
        DatabaseUrl::Sqlite(path) => {
            let size = |path: String| std::fs::metadata(path).map_or(0, |found| found.len());
            size(path.display().to_string()) + size(format!("{}-wal", path.display()))
        }
        DatabaseUrl::Postgres(url) => {
            let sum = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c \
                 JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'touchline' AND c.relkind = 'r'";
            psql(url, sum).parse().expect("it is a number")
        }
    }
}

#[test]
fn a_flood_ends_at_the_limit_and_removals_make_room() {
    on_both("size", |options| {
        let stage = Stage::open(options);
        let before = stage.offset(publication("kept", 1));
        let stored = flood(&stage, "flood");
        assert!(stored > 500, "{stored} of some 4 KiB");
        assert!(on_disk(options) <= LIMIT + SLACK, "{}", on_disk(options));
        let size = &stage.store.metrics().size;
        assert!(size.is_full() && !size.is_disk_short() && size.refused.load(Relaxed) >= 50);
        assert!(stage.store.metrics().is_healthy(), "a full database does not fail");
        assert_eq!(stage.load("flood", 0, 10).top.0, stored, "what is acknowledged is there, and no more");
        assert_eq!(stage.kept("kept").len() as u64, before);

        stage.remove("flood");
        until("there is room again", || stage.append(publication("kept", 2)).is_ok());
        until("the refusals end", || !stage.store.metrics().size.is_full());
        until("all of it is gone", || stage.store.metrics().size.used().is_some_and(|used| used < LIMIT / 2));
        // Room inside the files of PostgreSQL is an estimate, which a slow machine renews late.
        let again = std::cell::Cell::new(0);
        until("most of the room is used again", || {
            again.set(again.get() + flood(&stage, "again"));
            again.get() > stored / 2
        });
        assert!(on_disk(options) <= LIMIT + SLACK, "{}", on_disk(options));
        stage.store.close();
    });
}

#[test]
fn a_start_at_the_limit_knows_it() {
    on_both("size-start", |options| {
        let stage = Stage::open(options);
        let mut stored = flood(&stage, "flood");
        stage.store.close();
        for _ in 0..3 {
            let stage = Stage::open(options);
            assert_eq!(stage.load("flood", 0, 10).top.0, stored);
            // Closing a file empties its log, which frees a little room.
            stored += flood(&stage, "flood");
            stage.store.close();
            assert!(on_disk(options) <= LIMIT + SLACK, "{}", on_disk(options));
        }
        let stage = Stage::open(&with(options, |store| store.primary.max_size = 2 * LIMIT));
        assert_eq!(stage.offset(large("flood", 1)), stored + 1, "a higher limit lets it grow");
        stage.store.close();
    });
}

#[test]
fn what_must_not_be_refused_goes_on_at_the_limit() {
    on_both("size-small", |options| {
        let options = &PrimaryOptions { has_facts: true, notifier: "one".into(), ..options.clone() };
        let stage = Stage::open(options);
        let message = |n: u64| InboxMessage {
            scope: "bike".into(),
            name: "one".into(),
            message: format!(r#"{{"data":{n},"time":{}}}"#, now_ms()).into(),
            expires_ms: now_ms() + HOUR_MS,
            limit: 1_000,
        };
        let (sender, ids) = channel();
        stage.store.queue_message(message(1), tells(&sender));
        let id = ids.recv_timeout(PATIENCE).expect("a result comes").expect("it is stored");
        flood(&stage, "flood");

        let key = FactKey { kind: "user_block".into(), name: "ann".into() };
        let (sender, done) = channel();
        let ban = Fact { key: key.clone(), value: "{}".into(), expires_s: 0 };
        stage.store.change_fact(FactChange::Put(ban), tells(&sender));
        stage.store.change_fact(FactChange::Remove(key), tells(&sender));
        stage.store.discard_messages(vec![id], tells(&sender));
        stage.store.forget("none".into(), tells(&sender));
        let results: Vec<_> = (0..4).map(|_| done.recv_timeout(PATIENCE).expect("a result comes")).collect();
        assert_eq!(results, [Ok(()); 4]);
        assert_eq!(stage.load("new", 0, 10).top.0, 0, "a channel that nobody has published into can be read");
        let sent = (0..200).map(|n| {
            let (sender, ids) = channel();
            stage.store.queue_message(InboxMessage { message: vec![b'1'; 4_000].into(), ..message(n) }, tells(&sender));
            ids.recv_timeout(PATIENCE).expect("a result comes")
        });
        assert!(
            sent.filter(|result| *result == Err(StoreRefusal::DatabaseFull)).count() > 0,
            "messages make it larger"
        );
        stage.store.close();
    });
}

#[test]
fn nodes_that_share_a_database_share_its_size() {
    on_both("size-nodes", |options| {
        if matches!(options.url, DatabaseUrl::Sqlite(_)) {
            return;
        }
        let node = |name: &str| Stage::open(&PrimaryOptions { notifier: name.into(), ..options.clone() });
        let stages = [node("one"), node("two"), node("three")];
        std::thread::scope(|scope| {
            for (stage, channel) in stages.iter().zip(["a", "b", "c"]) {
                scope.spawn(move || flood(stage, channel));
            }
        });
        // Three nodes may each write a 32nd of the limit unseen, at least 1 MiB, and a sixteenth is an estimate.
        assert!(on_disk(options) <= LIMIT + 3 * MIB + LIMIT / 16, "{}", on_disk(options));
        stages[0].remove("a");
        for stage in &stages {
            until("every node has room again", || stage.append(publication("kept", 2)).is_ok());
            stage.store.close();
        }
    });
}

#[test]
fn a_disk_with_less_than_its_reserve_refuses() {
    on_both("size-disk", |options| {
        let is_file = matches!(options.url, DatabaseUrl::Sqlite(_));
        let stage = Stage::open(&with(options, |store| store.primary.disk_reserve = 1 << 60));
        let appended = stage.append(publication("a", 1));
        assert_eq!(appended.is_err(), is_file, "the disk of a PostgreSQL server is out of sight: {appended:?}");
        assert_eq!(stage.store.metrics().size.is_disk_short(), is_file);
        stage.store.close();
    });
}

/// A file system in memory of a given size in MiB. There is none if this account may not mount one.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(mib: u64) -> Option<Self> {
        let path = std::env::temp_dir().join(format!("touchline-store-disk-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory is made");
        let size = format!("size={mib}m");
        let mut mount = std::process::Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path).output();
        let disk = SmallDisk(path);
        mount.is_ok_and(|output| output.status.success()).then_some(disk)
    }

    fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.0).expect("it is there");
        found.f_bavail * found.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).output();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_flood_on_a_small_disk_leaves_the_reserve_to_bans_and_the_next_start() {
    let Some(disk) = SmallDisk::mount(72) else {
        eprintln!("left out: it needs the right to mount a file system");
        return;
    };
    let reserve = 24 * MIB;
    let options = settings(&format!("sqlite:{}/p.db", disk.0.display()));
    let options = with(&PrimaryOptions { has_facts: true, ..options }, |store| {
        store.primary.max_size = 0;
        store.primary.disk_reserve = reserve;
    });
    for round in 0..3 {
        let stage = Stage::open(&options);
        let stored = flood(&stage, &format!("flood{round}"));
        assert!(round > 0 || stored > 4_000, "{stored} of some 4 KiB");
        // The free space may be below the reserve by what the commit of one batch wrote to the log.
        assert!(disk.free() > reserve - 2 * MIB, "round {round}: {} are free", disk.free());
        assert!(stage.store.metrics().size.is_disk_short());
        let (sender, done) = channel();
        for n in 0..200 {
            let key = FactKey { kind: "user_block".into(), name: format!("user{n}").into() };
            stage.store.change_fact(FactChange::Put(Fact { key, value: "{}".into(), expires_s: 0 }), tells(&sender));
        }
        assert!((0..200).all(|_| done.recv_timeout(PATIENCE) == Ok(Ok(()))), "bans are kept");
        stage.store.close();
    }
    let stage = Stage::open(&options);
    stage.remove("flood0");
    until("its rows are gone", || stage.store.metrics().size.reusable() > 8 * MIB);
    stage.store.close();
}

#[test]
fn a_killed_flood_leaves_a_database_within_its_limit() {
    on_both("size-kill", |options| {
        let run = std::process::Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", "size::the_flood_that_is_killed", "--ignored", "--nocapture"])
            .env("FLOOD_URL", url_of(options))
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut run = run.expect("it starts");
        let out = run.stdout.take().expect("it is piped");
        // The process has stored some publications.
        let stored = std::io::BufRead::lines(std::io::BufReader::new(out)).map_while(Result::ok);
        let stored = stored.filter(|line| line.ends_with("stored")).nth(20);
        run.kill().expect("it runs");
        let _ = run.wait();
        assert!(stored.is_some(), "the flood has not begun");
        let stage = Stage::open(options);
        assert!(stage.load("killed", 0, 10).top.0 > 0);
        flood(&stage, "flood");
        assert!(on_disk(options) <= LIMIT + SLACK, "{}", on_disk(options));
        stage.store.close();
    });
}

#[test]
fn rows_that_an_open_transaction_can_see_leave_no_room_until_it_ends() {
    on_both("size-pinned", |options| {
        let DatabaseUrl::Postgres(url) = &options.url else { return };
        let stage = Stage::open(options);
        let stored = flood(&stage, "flood");
        let mut reader = Reader::begin(url);
        stage.remove("flood");
        flood(&stage, "pinned");
        assert!(on_disk(options) <= LIMIT + SLACK, "{}", on_disk(options));
        stage.store.close();
        // As after a crash, PostgreSQL does not know of deleted rows, and a node that starts does not either.
        psql(url, "SELECT pg_stat_reset()");
        let stage = Stage::open(options);
        flood(&stage, "pinned");
        assert!(on_disk(options) <= LIMIT + SLACK, "{}", on_disk(options));
        reader.end();
        let again = std::cell::Cell::new(0);
        until("its end makes room", || {
            again.set(again.get() + flood(&stage, "again"));
            again.get() > stored / 2
        });
        assert!(on_disk(options) <= LIMIT + SLACK, "{}", on_disk(options));
        stage.store.close();
    });
}

/// A transaction that sees all publications of its beginning until it ends.
struct Reader<'a> {
    url: &'a str,
    child: std::process::Child,
}

impl<'a> Reader<'a> {
    fn begin(url: &'a str) -> Self {
        let mut child = std::process::Command::new("psql")
            .args([url, "-qtA"])
            .args(["-c", "BEGIN ISOLATION LEVEL REPEATABLE READ"])
            .args(["-c", "SELECT count(*) FROM touchline.publication"])
            .args(["-c", "SELECT pg_sleep(600)"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("psql is there");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("it is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("it counts");
        assert!(line.trim().parse::<u64>().is_ok_and(|count| count > 500), "{line}");
        Reader { url, child }
    }

    /// Ends the session of the server: it would not notice soon that its client is gone.
    fn end(&mut self) {
        psql(
            self.url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND query = 'SELECT pg_sleep(600)'",
        );
        let _ = self.child.wait();
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a statement returns.
fn psql(url: &str, statement: &str) -> String {
    let output = std::process::Command::new("psql").args([url, "-qtA", "-c", statement]).output();
    String::from_utf8_lossy(&output.expect("psql is there").stdout).trim().to_owned()
}

fn url_of(options: &PrimaryOptions) -> String {
    match &options.url {
        DatabaseUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
        DatabaseUrl::Postgres(url) => url.clone(),
    }
}

/// The test above runs this as a separate process.
#[test]
#[ignore = "a part of another test"]
fn the_flood_that_is_killed() {
    let Ok(url) = std::env::var("FLOOD_URL") else { return };
    let store = Store::open(&limited(&url), |_: StoreEvent| ()).expect("it opens");
    for seed in 0.. {
        let (sender, results) = channel();
        store.append(Append { done: tells(&sender), ..large("killed", seed) });
        if matches!(results.recv_timeout(PATIENCE), Ok(Ok(_))) {
            println!("{seed} stored");
        }
    }
}
