//! Each acknowledged publication is stored after killed processes, after lost power, and after disks that failed for a
//! time.

mod disk;
mod ledger;
mod server;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::json;

use disk::Disk;
use ledger::{Ledger, history};
use server::Home;
use touchline_testkit::nats::NatsServer;
use touchline_testkit::postgres::PostgresServer;
use touchline_testkit::process::TestProgram;
use touchline_testkit::{PATIENCE, comes, until, until_eq, until_some};

const CHANNELS: usize = 5;
const PUBLISHERS: usize = 8;
/// The number of publications that may wait in the servers of these tests.
const QUEUE: usize = 32;

/// How often a server is killed: the value of TOUCHLINE_CRASHES, or 60.
fn crashes() -> usize {
    std::env::var("TOUCHLINE_CRASHES").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// Publishes on one connection into all channels until the server is gone.
fn publish_until_the_end(ledger: &Ledger, home: &Home, next: &AtomicU64) {
    let mut client = home.client();
    loop {
        let number = next.fetch_add(1, Relaxed);
        if !ledger.publish(&mut client, number as usize % CHANNELS, number) {
            return;
        }
    }
}

/// Starts one server `count` times. Each time all publishers publish, and `end` ends the server at a random moment.
fn lives(home: &Home, ledger: &Ledger, count: usize, random: &mut Rng, mut end: impl FnMut(TestProgram, &mut Rng)) {
    let next = AtomicU64::new(0);
    for life in 0..count {
        let server = home.start();
        let mut client = home.client();
        if life % 10 == 1 {
            ledger.check(&mut client, CHANNELS);
            // A publisher without an answer repeats with the same key: it gets the first offset or a new one, and never
            // two.
            ledger.unknown().into_iter().for_each(|(of, number)| assert!(ledger.publish(&mut client, of, number)));
        }
        let lasting = Duration::from_millis(random.u64(..80));
        std::thread::scope(|scope| {
            for _ in 0..PUBLISHERS {
                scope.spawn(|| publish_until_the_end(ledger, home, &next));
            }
            // waits: the server is killed at a random moment.
            std::thread::sleep(lasting);
            end(server, random);
        });
    }
    let _server = home.start();
    ledger.check(&mut home.client(), CHANNELS);
    println!("{} acknowledged, {} unknown", ledger.acknowledged(), ledger.unknown().len());
    assert!(ledger.acknowledged() > count, "hardly anything was published");
}

#[test]
fn whoever_is_killed_has_lost_nothing_that_was_acknowledged_and_followers_have_it_all() {
    kill_again_and_again(&Home::new("killed"), crashes());
}

#[test]
fn on_postgresql_too() {
    let scratch = Home::new("killed-postgres-data");
    let postgres = PostgresServer::start(scratch.path());
    kill_again_and_again(&Home::new("killed-postgres").on(postgres.url()), crashes() / 4);
}

fn kill_again_and_again(home: &Home, count: usize) {
    let ledger = Ledger::default();
    let first = home.start();
    let watch = home.watch("kept:0");
    // The follower must receive the first publication live. After that it can recover.
    let (mut client, mut number) = (home.client(), 1_000_000_000);
    until("the follower receives a publication", || {
        number += 1;
        ledger.publish(&mut client, 0, number);
        !watched(&watch).is_empty()
    });
    drop(first);
    lives(home, &ledger, count, &mut Rng::with_seed(7), |server, _| drop(server));
    let _server = home.start();
    let found = history(&mut home.client(), 0);
    until_eq(Some(found.top), || watched(&watch).last().map(|(offset, _)| *offset));
    let offsets: Vec<u64> = watched(&watch).into_iter().map(|(offset, _)| offset).collect();
    let expected: Vec<u64> = (offsets[0]..=found.top).collect();
    assert_eq!(offsets, expected, "the follower got each publication once, in order");
}

/// Stops the threads when it is dropped, also if a test fails.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn postgresql_may_be_killed_under_a_server_that_goes_on() {
    let scratch = Home::new("postgres-killed-data");
    let postgres = PostgresServer::start(scratch.path());
    let home = Home::new("postgres-killed").on(postgres.url());
    let _server = home.start();
    let (ledger, next, stop) = (Ledger::default(), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let end = StopAtTheEnd(&stop);
        for _ in 0..PUBLISHERS {
            scope.spawn(|| {
                let mut client = home.client();
                while !stop.load(Relaxed) {
                    let number = next.fetch_add(1, Relaxed);
                    ledger.publish(&mut client, number as usize % CHANNELS, number);
                }
            });
        }
        for _ in 0..(crashes() / 40).max(1) {
            let before = ledger.acknowledged();
            postgres.kill();
            until_eq(503, || home.health());
            postgres.again();
            until("the server recovers", || ledger.acknowledged() >= before + 200);
        }
        drop(end);
    });
    let mut client = home.client();
    ledger.check(&mut client, CHANNELS);
    // A request may still get a connection that the kill has cut: the publication has a key, so it can be sent again.
    for (of, number) in ledger.unknown() {
        until("the publication is acknowledged", || ledger.publish(&mut client, of, number));
    }
    ledger.check(&mut client, CHANNELS);
}

#[test]
fn what_an_application_commits_in_postgresql_is_published_once_and_in_order_through_restarts() {
    let scratch = Home::new("outbox-data");
    let postgres = PostgresServer::start(scratch.path());
    let home = Home::new("outbox").on(postgres.url());
    let mut server = Some(home.start());
    let postgres = &postgres;
    let publish = |of: usize, number: usize| format!("SELECT touchline_publish('kept:{of}', '{{\"n\": {number}}}'); ");
    let rounds = 12;
    for round in 0..rounds {
        // Transactions run at the same time, each with its own channel. Some are rolled back, and the server is killed
        // while they run.
        std::thread::scope(|scope| {
            for of in 0..4 {
                let numbers = (0..5).map(|n| publish(of, round * 10 + n)).collect::<String>();
                let undone = format!("BEGIN; {} ROLLBACK;", publish(of, 9_000 + round));
                scope.spawn(move || postgres.sql(&(undone + "BEGIN; " + &numbers + "COMMIT;")));
            }
            if round % 3 == 1 {
                drop(server.take());
                server = Some(home.start());
            }
        });
    }
    until_eq("0".to_owned(), || postgres.sql("SELECT count(*) FROM touchline.outbox"));
    let expected: Vec<u64> = (0..rounds as u64).flat_map(|round| (0..5).map(move |n| round * 10 + n)).collect();
    for of in 0..4 {
        let found = history(&mut home.client(), of);
        assert_eq!(found.kept.into_values().collect::<Vec<_>>(), expected, "channel {of}");
    }
    postgres.sql("SELECT touchline_publish('plain', '1')");
    until_eq("not durable".to_owned(), || postgres.sql("SELECT refused FROM touchline.outbox"));
}

/// The offsets that a `touchline watch` has printed, each with its number.
fn watched(watch: &TestProgram) -> Vec<(u64, u64)> {
    let text = watch.out.text();
    let values = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    values.filter_map(|value| Some((value["offset"].as_u64()?, value["data"]["n"].as_u64()?))).collect()
}

#[test]
fn nodes_of_a_cluster_share_postgresql() {
    let scratch = Home::new("shared-postgres-data");
    let postgres = PostgresServer::start(scratch.path());
    let nats = NatsServer::start("");
    let homes =
        ["one", "two"].map(|name| Home::new(&format!("shared-postgres-{name}")).on(postgres.url()).joined(&nats.url()));
    let _servers = homes.each_ref().map(Home::start);
    let watches = homes.each_ref().map(|home| home.watch("kept:0"));
    let ledger = Ledger::default();
    let mut number = 0;
    until("each follower receives a publication", || {
        number += 1;
        assert!(ledger.publish(&mut homes[number as usize % 2].client(), 0, number));
        watches.iter().all(|watch| !watched(watch).is_empty())
    });
    std::thread::scope(|scope| {
        for (index, home) in homes.iter().enumerate() {
            let ledger = &ledger;
            scope.spawn(move || {
                let mut client = home.client();
                (0..200).for_each(|n| assert!(ledger.publish(&mut client, 0, 10_000 * (index as u64 + 1) + n)));
            });
        }
    });
    // Each node answers from its own knowledge, so the test waits until all nodes have it.
    until("each node has all acknowledged publications", || {
        homes.iter().all(|home| history(&mut home.client(), 0).top >= ledger.acknowledged() as u64)
    });
    ledger.check(&mut homes[0].client(), 1);
    let found = history(&mut homes[1].client(), 0);
    for watch in &watches {
        until_eq(Some(found.top), || watched(watch).last().map(|(offset, _)| *offset));
        let seen = watched(watch);
        let all: Vec<(u64, u64)> = found.kept.range(seen[0].0..).map(|(offset, number)| (*offset, *number)).collect();
        assert_eq!(seen, all, "each follower gets each publication once, in order");
    }
    homes[0].client().api("history_remove", &json!({"channel": "kept:0"}));
    for home in &homes {
        until("the node removes the history", || history(&mut home.client(), 0).kept.is_empty());
        assert_eq!(history(&mut home.client(), 0).top, found.top, "the position stays");
    }
}

#[test]
fn a_slow_postgresql_stops_only_those_who_need_it() {
    let scratch = Home::new("slow-postgres-data");
    let postgres = PostgresServer::start(scratch.path());
    let home = Home::new("slow-postgres").on(postgres.url());
    let _server = home.start();
    let (mut plain, mut durable) = (home.client(), home.client());
    assert!(durable.api("publish", &json!({"channel": "kept:0", "data": {"n": 1}}))["result"].is_object());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            postgres
                .sql("BEGIN; LOCK TABLE touchline.publication IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(6); COMMIT;");
            is_over.store(true, Relaxed);
        });
        let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'touchline.publication'::regclass \
                     AND mode = 'AccessExclusiveLock' AND granted";
        until("the table is locked", || postgres.sql(locks) != "0");
        let waiting = scope.spawn(|| durable.api("publish", &json!({"channel": "kept:0", "data": {"n": 2}})));
        // After this publication the queue accepts QUEUE publications. The rest is refused at once.
        let waiting_locks = "SELECT count(*) FROM pg_locks WHERE relation = 'touchline.publication'::regclass \
                             AND NOT granted";
        until("the publication waits for the table", || postgres.sql(waiting_locks) != "0");
        let crowd: Vec<_> = (0..QUEUE + 2 * PUBLISHERS)
            .map(|n| {
                let (home, is_over) = (&home, &is_over);
                scope.spawn(move || {
                    let answer = home.client().api("publish", &json!({"channel": "kept:1", "data": {"n": n}}));
                    (answer["error"]["code"] == 111, is_over.load(Relaxed))
                })
            })
            .collect();
        let reading = scope.spawn(|| history(&mut home.client(), 0).top);
        let mut served = 0;
        while !is_over.load(Relaxed) {
            assert!(plain.api("publish", &json!({"channel": "plain", "data": 1}))["result"].is_object());
            assert!(plain.api("info", &json!({}))["result"].is_object());
            served += 1;
        }
        assert!(served > 100, "only {served} were served meanwhile");
        // The request that needs the locked table waits, and gets its answer.
        let answer = waiting.join().expect("the thread does not panic");
        assert_eq!(answer["result"]["offset"], 2, "{answer}");
        let crowd: Vec<_> = crowd.into_iter().map(|one| one.join().expect("the thread does not panic")).collect();
        let refused = crowd.iter().filter(|(is_refused, _)| *is_refused).count();
        assert!((PUBLISHERS..=2 * PUBLISHERS).contains(&refused), "{refused} of {} were refused", crowd.len());
        assert!(!crowd.contains(&(true, true)), "a refused publisher does not wait for the table");
        assert!(reading.join().is_ok_and(|top| top >= 1));
    });
}

#[test]
fn without_postgresql_a_node_starts_serves_what_does_not_need_it_and_says_so() {
    let scratch = Home::new("postgres-late-data");
    let postgres = PostgresServer::start(scratch.path());
    postgres.kill();
    let home = Home::new("postgres-late").on(postgres.url());
    let _server = home.start_unready();
    let mut client = home.client();
    let refused = client.api("publish", &json!({"channel": "kept:0", "data": {"n": 1}}));
    assert_eq!(refused["error"]["code"], 4010, "{refused}");
    assert_eq!(client.api("history", &json!({"channel": "kept:0", "limit": -1}))["error"]["code"], 4010);
    assert!(client.api("publish", &json!({"channel": "plain", "data": 1}))["result"].is_object());
    assert_eq!(home.health(), 503);
    postgres.again();
    until_eq(200, || home.health());
    assert_eq!(client.api("publish", &json!({"channel": "kept:0", "data": {"n": 1}}))["result"]["offset"], 1);
}

#[test]
fn lost_power_loses_nothing_that_was_acknowledged() {
    let home = Home::new("power");
    let disk = Disk::new(home.path(), &home.data());
    let variables = disk.variables();
    let home = home.with(variables);
    let ledger = Ledger::default();
    let (mut lost, mut seed) = (0, 11);
    // A moment may come in which everything is on the disk. Then the power fails again.
    while lost == 0 {
        assert!(seed < 61, "the power never took anything");
        lives(&home, &ledger, crashes() / 4, &mut Rng::with_seed(seed), |server, random| {
            drop(server);
            lost += disk.lose_power(random);
        });
        seed += 1;
    }
}

#[test]
fn lost_power_under_postgresql_too_though_it_would_not_wait_for_the_disk_by_itself() {
    let scratch = Home::new("power-postgres-data");
    let disk = Disk::new(scratch.path(), &scratch.path().join("postgres"));
    let postgres = PostgresServer::start_with(
        scratch.path(),
        &disk.variables(),
        "-c synchronous_commit=off -c wal_writer_delay=10s",
    );
    let home = Home::new("power-postgres").on(postgres.url());
    let ledger = Ledger::default();
    let mut lost = 0;
    lives(&home, &ledger, (crashes() / 20).max(1), &mut Rng::with_seed(13), |server, random| {
        postgres.kill();
        drop(server);
        lost += disk.lose_power(random);
        postgres.again();
    });
    assert!(lost > 0, "the power never took anything");
}

#[test]
fn a_disk_that_fails_under_postgresql_is_told_too() {
    // In order: the directory of the tables has no room, the whole database has no room, and syncs of its log fail.
    for (part, fault) in [("postgres/base", "28"), ("postgres", "28"), ("postgres/pg_wal", "s5")] {
        let scratch = Home::new("failing-postgres-data");
        let disk = Disk::new(scratch.path(), &scratch.path().join(part));
        let postgres = PostgresServer::start_with(scratch.path(), &disk.variables(), "");
        let home = Home::new("failing-postgres").on(postgres.url());
        let _server = home.start();
        // PostgreSQL ends when it cannot write its log. This call starts it again, as a supervisor does.
        fail_and_work_again(&home, &disk, fault, &Ledger::default(), || postgres.again());
    }
}

#[test]
fn a_disk_that_fails_is_told_and_nothing_is_delivered_until_it_works_again() {
    let home = Home::new("failing");
    let disk = Disk::new(home.path(), &home.data());
    let variables = disk.variables();
    let home = home.with(variables);
    let _server = home.start();
    let ledger = Ledger::default();
    // The disk is full (ENOSPC), broken (EIO) or read-only (EROFS), or a sync fails.
    for fault in ["28", "5", "30", "s5"] {
        fail_and_work_again(&home, &disk, fault, &ledger, || ());
    }
}

/// Lets a disk fail under a running server, and then work again.
fn fail_and_work_again(home: &Home, disk: &Disk, fault: &str, ledger: &Ledger, look_after: impl Fn()) {
    let (mut client, mut number) = (home.client(), ledger.acknowledged() as u64 * 1_000);
    let mut publish = || {
        number += 1;
        ledger.publish(&mut client, 0, number)
    };
    assert!(publish());
    let before = history(&mut home.client(), 0);
    let watch = home.watch("kept:0");
    disk.fail(Some(fault));
    let began = Instant::now();
    let mut since = 0;
    while publish() {
        since += 1;
        assert!(began.elapsed() < PATIENCE, "{fault}: publications are acknowledged without a disk");
    }
    let refused = home.client().api("publish", &json!({"channel": "kept:1", "data": {"n": 0}}));
    assert_eq!(refused["error"]["code"], 4010, "{fault}: {refused}");
    assert_eq!(home.health(), 503, "{fault}");
    let read = home.client().api("history", &json!({"channel": "kept:0", "limit": -1}));
    let is_what_was_stored = read["result"]["offset"] == before.top + since || read["error"]["code"] == 4010;
    assert!(is_what_was_stored, "{fault}: {since} behind {}, and it reads {read}", before.top);
    disk.fail(None);
    until_eq(200, || {
        look_after();
        home.health()
    });
    assert!(publish(), "{fault}: the disk works again");
    ledger.check(&mut home.client(), 1);
    let found = history(&mut home.client(), 0);
    until_eq(Some(found.top), || watched(&watch).last().map(|(offset, _)| *offset));
    let seen = watched(&watch);
    let all: Vec<(u64, u64)> = found.kept.range(seen[0].0..).map(|(offset, number)| (*offset, *number)).collect();
    assert_eq!(seen, all, "{fault}: a follower gets each stored publication once, in order");
}

#[test]
fn one_data_directory_has_one_server() {
    let home = Home::new("shared");
    let _server = home.start();
    let other = Home::new("shared-other");
    fs::copy(home.path().join("config.json"), other.path().join("config.json")).expect("both are ours");
    let port = format!("\"port\":{}", home.address.port());
    let text = fs::read_to_string(other.path().join("config.json")).expect("it is text");
    fs::write(other.path().join("config.json"), text.replace(&port, "\"port\":0")).expect("the test owns it");
    assert!(other.refusal().contains("another process uses"), "{}", other.refusal());
}

#[test]
fn a_schema_of_postgresql_does_not_go_while_a_node_uses_it() {
    let scratch = Home::new("down-postgres-data");
    let postgres = PostgresServer::start(scratch.path());
    let home = Home::new("down-postgres").on(postgres.url());
    let server = home.start();
    assert!(home.client().api("publish", &json!({"channel": "kept:0", "data": {"n": 1}}))["result"]["offset"] == 1);
    let said = home.migrate("down --yes");
    assert!(said.contains("connections of running nodes use this database: stop them first"), "{said}");
    assert!(home.client().api("publish", &json!({"channel": "kept:0", "data": {"n": 2}}))["result"]["offset"] == 2);
    drop(server);
    // PostgreSQL notices a moment later that connections are gone.
    let migrate = |action: &str| {
        until_some("the connections of the node end", || {
            Some(home.migrate(action)).filter(|said| !said.contains("connections of running nodes"))
        })
    };
    let said = migrate("down --yes");
    assert!(said.contains("primary   7  not made"), "{said}");
    let said = migrate("down --yes");
    assert!(said.contains("primary   6  not made"), "{said}");
    let said = migrate("down --yes");
    assert!(said.contains("primary   5  not made"), "{said}");
    let said = migrate("down --yes");
    assert!(said.contains("primary   4  not made"), "{said}");
    let said = migrate("down --yes");
    assert!(said.contains("primary   3  not made"), "{said}");
    let said = migrate("down --yes");
    assert!(said.contains("primary   2  not made"), "{said}");
    let said = migrate("down");
    assert!(said.contains("touchline.publication: 2 rows would be deleted") && said.contains("--yes"), "{said}");
    let said = migrate("down --yes");
    assert!(said.contains("primary   1  not made"), "{said}");
}

#[test]
fn schemas_go_up_and_down_by_hand_and_a_newer_one_is_refused() {
    let home = Home::new("schema");
    let says = |action: &str, wanted: &str| {
        let said = home.migrate(action);
        assert!(said.contains(wanted), "{action}: {said}");
    };
    says("status", "not made  durable history");
    says("up", "primary   2  made      channel directory and inbox");
    says("up", "primary   3  made      shared facts");
    says("up", "primary   5  made      when users were connected last");
    says("up", "primary   6  made      endpoints of lifecycle events");
    says("up", "primary   7  made      totals of reactions");
    says("down", "touchline: reaction: 0 rows would be deleted");
    says("down --yes", "primary   7  not made  totals of reactions");
    says("down", "touchline: event_endpoint: 0 rows would be deleted");
    says("down --yes", "primary   6  not made  endpoints of lifecycle events");
    says("down", "touchline: user_seen: 0 rows would be deleted");
    says("down --yes", "primary   5  not made  when users were connected last");
    says("down", "touchline: event_outbox: 0 rows would be deleted");
    says("down --yes", "primary   4  not made  lifecycle events");
    says("down", "touchline: fact: 0 rows would be deleted");
    says("down --yes", "primary   3  not made  shared facts");
    says("down", "touchline: inbox_message: 0 rows would be deleted");
    says("down --yes", "primary   2  not made  channel directory and inbox");
    says("down --yes", "primary   1  not made  durable history");
    says("status --database stats", "stats   1  not made  connections, events, audience and traffic");
    says("up --database stats", "stats   1  made      connections, events, audience and traffic");
    says("down --yes --database stats", "stats   1  not made  connections, events, audience and traffic");
    let server = home.start();
    assert!(home.client().api("publish", &json!({"channel": "kept:0", "data": {"n": 1}}))["result"]["offset"] == 1);
    says("status", "primary   1  made      durable history");
    says("up", "another process uses");
    drop(server);
    says("status", "primary   1  made      durable history");
    let database = rusqlite::Connection::open(home.data().join("primary.db")).expect("it is a database");
    database.execute("INSERT INTO touchline_migration VALUES (99, 'of tomorrow', '')", []).expect("the test owns it");
    drop(database);
    assert!(home.refusal().contains("run the newer program"), "{}", home.refusal());
    says("down", "run the newer program");
}

#[test]
fn a_file_with_a_damaged_page_is_told_and_stays_so() {
    let home = Home::new("damaged");
    let server = home.start();
    let mut client = home.client();
    let publication = json!({"channel": "kept:0", "data": {"n": 1}});
    (0..200).for_each(|_| assert!(client.api("publish", &publication)["result"].is_object()));
    drop(server);
    let file = home.data().join("primary.db");
    let database = rusqlite::Connection::open(&file).expect("it is a database");
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("no process has the database open");
    let root = "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = 'publication'";
    let (page, size): (usize, usize) =
        database.query_row(root, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("the table is there");
    drop(database);
    let mut bytes = fs::read(&file).expect("it can be read");
    bytes[(page - 1) * size..page * size].fill(0xa5);
    fs::write(&file, bytes).expect("the test owns it");
    let _server = home.start();
    let refused =
        client.call("publish", &publication).or_else(|_| client.call("publish", &publication)).expect("an answer");
    assert_eq!(refused["error"]["code"], 4010, "{refused}");
    assert_eq!(client.api("history", &json!({"channel": "kept:0", "limit": -1}))["error"]["code"], 4010);
    assert!(client.api("publish", &json!({"channel": "plain", "data": 1}))["result"].is_object());
    // The writer checks each second whether the database works again. Parts of it do work.
    assert!(!comes(Duration::from_secs(3), || home.health() != 503), "a damaged database does not repair itself");
}

#[test]
fn a_file_that_is_no_database_is_told_at_the_start() {
    let home = Home::new("broken");
    fs::write(home.data().join("primary.db"), vec![b'x'; 8192]).expect("the test owns it");
    let refusal = home.refusal();
    assert!(refusal.contains("primary.db") && refusal.contains("not an SQLite database"), "{refusal}");
}
