//! Statistics: rows are written, and curves and rankings are read, with the same results on both databases. Recording
//! never blocks.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::Bytes;
use touchline_config::StatsSettings;
use touchline_store::sketch::{Sketch, hash};
use touchline_store::stats::{
    Curve, ErasedEvents, EventCount, EventErasure, Point, Range, RankBy, RankedItem, Row, Stats, StatsOptions,
    StatsQuery, StatsResult,
};
use touchline_testkit::{PATIENCE, until};

use crate::stage::{now_ms, on_each, tells};

const HOUR_S: u64 = 3_600;

fn settings(url: &str) -> StatsOptions {
    StatsOptions {
        stats: StatsSettings { timeout: PATIENCE, queue_size: 100_000, ..StatsSettings::default() },
        url: url.parse().expect("the address is good"),
        tls_ca: String::new(),
        migrates: true,
    }
}

/// Waits until everything that was recorded is written.
fn settle(stats: &Stats) {
    until("all rows are written", || stats.metrics().waiting.load(Relaxed) == 0);
    assert_eq!(stats.metrics().dropped.load(Relaxed), 0);
}

fn ask(stats: &Stats, query: StatsQuery) -> StatsResult {
    let (sender, reply) = channel();
    stats.query(
        query,
        Box::new(move |result| {
            let _ = sender.send(result);
        }),
    );
    reply.recv_timeout(PATIENCE).expect("the query gets a reply").expect("the query succeeds")
}

fn top(stats: &Stats, rank_by: RankBy, range: Range) -> Vec<(String, [u64; 2])> {
    match ask(stats, StatsQuery::Top { rank_by, range, limit: 3 }) {
        StatsResult::Top(all) => all.into_iter().map(|RankedItem { name, figures }| (name, figures)).collect(),
        other => panic!("{other:?}"),
    }
}

fn audience(minute: u64, channel: &str, part: &str, (current, peak): (u64, u64), users: &[&str]) -> Row {
    let mut sketch = Sketch::default();
    users.iter().for_each(|user| sketch.add(hash(user.as_bytes())));
    Row::Audience { minute, channel: channel.into(), part: part.into(), current, peak, users: sketch }
}

#[test]
fn the_audience_of_a_match_is_one_curve() {
    on_each("curve", |url| {
        let stats = Stats::open(&settings(url)).expect("it opens");
        let kickoff = now_ms() / 60_000 - 200;
        // Two hours on two shards: all users arrive, stay and leave.
        for minute in 0..120 {
            let crowd = if minute < 60 { minute + 1 } else { 120 - minute };
            let users: Vec<String> = (0..crowd).map(|n| format!("fan-{n}")).collect();
            let users: Vec<&str> = users.iter().map(String::as_str).collect();
            let (one, two) = users.split_at(users.len() / 2);
            stats.record(audience(kickoff + minute, "match:1", "n/0", (crowd, crowd + 1), one));
            stats.record(audience(kickoff + minute, "match:1", "n/1", (0, 0), two));
            stats.record(audience(kickoff + minute, "match:2", "n/0", (7, 7), &["other"]));
        }
        stats.record(audience(kickoff, "match:1", "n/0", (0, 0), &["late"]));
        settle(&stats);
        let range = Range { from_s: kickoff * 60, to_s: (kickoff + 120) * 60 };
        let of = |step_s, range| match ask(&stats, StatsQuery::Audience { channel: "match:1".into(), range, step_s }) {
            StatsResult::Audience(curve) => curve,
            other => panic!("{other:?}"),
        };
        let curve = of(60, range);
        assert_eq!((curve.points.len(), curve.peak, curve.users), (120, 61, 60));
        let point = |minute: u64, n: u64| Point { time_s: (kickoff + minute) * 60, current: n, peak: n + 1, users: n };
        assert_eq!([curve.points[0], curve.points[59], curve.points[119]], [point(0, 1), point(59, 60), point(119, 1)]);
        let half = of(60, Range { from_s: range.from_s, to_s: range.from_s + 600 });
        assert_eq!(half.points, curve.points[..10]);
        let coarse = of(1_800, range);
        assert!(coarse.points.iter().all(|point| point.time_s % 1_800 == 0) && coarse.points.len() <= 5);
        assert_eq!((coarse.peak, coarse.users), (61, 60));
        assert_eq!(of(60, Range { from_s: 0, to_s: 60 }), Curve::default());
        let tops = top(&stats, RankBy::Channels, range);
        assert_eq!(tops, [("match:1".to_owned(), [61, 3_660]), ("match:2".to_owned(), [7, 840])]);
        stats.close();
    });
}

#[test]
fn events_connections_and_traffic_are_counted() {
    on_each("counts", |url| {
        let stats = Stats::open(&settings(url)).expect("it opens");
        let start_s = now_ms() / 1_000 / HOUR_S * HOUR_S - 2 * HOUR_S;
        let event = |second: u64, name: &str, user: &str, props: &'static str| Row::Event {
            time_ms: (start_s + second) * 1_000 + 1,
            name: name.into(),
            user: user.into(),
            props: Bytes::from_static(props.as_bytes()),
        };
        for (second, user, props) in [
            (0, "a", r#"{"team":"home"}"#),
            (10, "a", r#"{"team":"away"}"#),
            (70, "b", r#"{"team":"home","x":1}"#),
            (75, "", "{}"),
        ] {
            stats.record(event(second, "goal_seen", user, props));
        }
        stats.record(event(80, "share", "a", r#"{"team":true}"#));
        let closed_ms = start_s * 1_000 + 5_000;
        for (transport, agent, code, lasted) in [
            ("websocket", "mobile", 1_000, 1_000),
            ("websocket", "desktop", 1_006, 3_000),
            ("websocket", "mobile", 1_006, 2_000),
        ] {
            stats.record(Row::Connection { opened_ms: closed_ms - lasted, closed_ms, transport, agent, code });
        }
        for (part, publications, deliveries) in [("n/0", 1, 100), ("n/1", 2, 0), ("n/0", 10, 1_000)] {
            let minute = start_s / 60;
            stats.record(Row::Traffic {
                minute,
                namespace: "match".into(),
                part: part.into(),
                publications,
                deliveries,
            });
        }
        settle(&stats);
        let range = Range { from_s: start_s, to_s: start_s + HOUR_S };
        let owned = |name: &str, figures| (name.to_owned(), figures);
        assert_eq!(top(&stats, RankBy::Events, range), [owned("goal_seen", [4, 3]), owned("share", [1, 1])]);
        assert_eq!(top(&stats, RankBy::Transports, range), [owned("websocket", [3, 2_000])]);
        assert_eq!(top(&stats, RankBy::Agents, range), [owned("mobile", [2, 1_500]), owned("desktop", [1, 3_000])]);
        assert_eq!(top(&stats, RankBy::Codes, range), [owned("1006", [2, 2_500]), owned("1000", [1, 1_000])]);
        assert_eq!(top(&stats, RankBy::Namespaces, range), [owned("match", [1_100, 13])]);
        let events = |name: &str, by: &str, step_s, limit| {
            let query = StatsQuery::Events { name: name.into(), by: by.into(), range, step_s, limit };
            match ask(&stats, query) {
                StatsResult::Events(all) => all
                    .into_iter()
                    .map(|EventCount { time_s, name, value, count }| (time_s - start_s, name, value, count))
                    .collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            }
        };
        let row = |time, name: &str, value: &str, count| (time, name.to_owned(), value.to_owned(), count);
        let by_minute = [row(0, "goal_seen", "", 2), row(60, "goal_seen", "", 2), row(60, "share", "", 1)];
        assert_eq!(events("", "", 60, 100), by_minute);
        assert_eq!(events("", "", 60, 2), by_minute[..2]);
        let by_team =
            [row(0, "goal_seen", "", 1), row(0, "goal_seen", "\"away\"", 1), row(0, "goal_seen", "\"home\"", 2)];
        assert_eq!(events("goal_seen", "team", 3_600, 100), by_team);
        assert_eq!(events("share", "team", 3_600, 100), [row(0, "share", "true", 1)]);
        stats.close();
    });
}

#[test]
fn what_is_too_old_goes_and_what_has_no_room_is_counted() {
    on_each("retention", |url| {
        let day_ms = 24 * HOUR_S * 1_000;
        let event =
            |time_ms| Row::Event { time_ms, name: "e".into(), user: Box::default(), props: Bytes::from_static(b"{}") };
        let count = |stats: &Stats| match ask(
            stats,
            StatsQuery::Top {
                rank_by: RankBy::Events,
                range: Range { from_s: 0, to_s: now_ms() / 1_000 + 60 },
                limit: 9,
            },
        ) {
            StatsResult::Top(all) => all.first().map_or(0, |ranked| ranked.figures[0]),
            other => panic!("{other:?}"),
        };
        let with = |change: &dyn Fn(&mut StatsSettings)| {
            let mut settings = settings(url);
            change(&mut settings.stats);
            settings
        };
        let small = with(&|stats| stats.queue_size = 20_000);
        {
            let stats = Stats::open(&small).expect("it opens");
            (0..6_000).for_each(|n| stats.record(event(now_ms() - 10 * day_ms - n)));
            (0..10).for_each(|_| stats.record(event(now_ms() - day_ms)));
            settle(&stats);
            assert_eq!(count(&stats), 6_010);
            stats.close();
        }
        let stats = Stats::open(&with(&|stats| {
            // Five days.
            (stats.retention, stats.queue_size) = (Duration::from_millis(5 * day_ms), 100);
        }))
        .expect("it opens");
        until("the old rows are deleted", || count(&stats) <= 10);
        assert_eq!(count(&stats), 10, "and no other");
        (0..100_000).for_each(|_| stats.record(event(now_ms())));
        let metrics = stats.metrics();
        until("the accepted rows are written", || metrics.waiting.load(Relaxed) == 0);
        let (written, dropped) = (metrics.written.load(Relaxed), metrics.dropped.load(Relaxed));
        assert!(written >= 100 && dropped > 0, "{written} {dropped}");
        assert_eq!(written + dropped, 100_000);
        assert_eq!(count(&stats), 10 + written);
        stats.close();
    });
}

#[test]
fn a_row_that_can_not_be_kept_is_dropped_alone() {
    on_each("bad-row", |url| {
        let stats = Stats::open(&settings(url)).expect("it opens");
        let now_ms = now_ms();
        for n in 0..20 {
            // PostgreSQL refuses a text with NUL, and SQLite a number beyond 63 bits.
            let (opened_ms, agent) = if n == 7 { (u64::MAX, "bad\0") } else { (now_ms, "good") };
            let transport = "websocket";
            stats.record(Row::Connection { opened_ms, closed_ms: now_ms, transport, agent, code: 1_000 });
        }
        until("all rows are written", || stats.metrics().waiting.load(Relaxed) == 0);
        let metrics = stats.metrics();
        assert_eq!(
            [metrics.written.load(Relaxed), metrics.dropped.load(Relaxed), metrics.failures.load(Relaxed)],
            [19, 1, 0]
        );
        assert!(metrics.is_healthy());
        stats.close();
    });
}

/// Erases the events of a user step by step, and returns how many each step has deleted.
fn erase(stats: &Stats, user: &str) -> Vec<u64> {
    let (mut from, mut counts) = (0, Vec::new());
    loop {
        let (sender, reply) = channel();
        stats.erase(EventErasure { user: user.into(), from }, tells(&sender));
        let step = reply.recv_timeout(PATIENCE).expect("the step gets a reply").expect("the database answers");
        let ErasedEvents { count, next } = step;
        counts.push(count);
        match next {
            Some(next) => {
                assert!(next > from, "each step goes on");
                from = next;
            }
            None => return counts,
        }
    }
}

#[test]
fn the_events_of_a_user_are_erased_in_steps_and_no_others() {
    on_each("erased", |url| {
        let stats = Stats::open(&settings(url)).expect("it opens");
        let start_s = now_ms() / 1_000 / HOUR_S * HOUR_S - 2 * HOUR_S;
        let event = |n: u64, user: &str| Row::Event {
            time_ms: start_s * 1_000 + n * 60,
            name: "e".into(),
            user: user.into(),
            props: Bytes::from_static(b"{}"),
        };
        for n in 0..50_000 {
            stats.record(event(n, ["ann", "bob", "a%", ""][n as usize % 4]));
        }
        // The test does not wait until they are written, and the first step still comes after them.
        let counts = erase(&stats, "ann");
        assert_eq!(counts.iter().sum::<u64>(), 12_500, "{counts:?}");
        assert!(counts.len() >= 3 && counts.iter().all(|count| *count <= 6_000), "{counts:?}");
        let range = Range { from_s: start_s, to_s: start_s + HOUR_S };
        assert_eq!(top(&stats, RankBy::Events, range), [("e".to_owned(), [37_500, 3])]);
        assert_eq!([erase(&stats, "ann"), erase(&stats, "nobody")].concat().iter().sum::<u64>(), 0);
        assert_eq!(erase(&stats, "bob").iter().sum::<u64>(), 12_500);
        stats.record(event(0, "bob"));
        let (sender, reply) = channel();
        stats.settle(tells(&sender));
        assert_eq!(reply.recv_timeout(PATIENCE), Ok(Ok(())));
        assert_eq!(stats.metrics().waiting.load(Relaxed), 0, "what came before is written");
        assert_eq!(top(&stats, RankBy::Events, range), [("e".to_owned(), [25_001, 3])]);
        assert_eq!(stats.metrics().reading.load(Relaxed), 0);
        stats.close();
    });
}
