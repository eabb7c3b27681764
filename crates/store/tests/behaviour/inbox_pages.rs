//! The pages of inboxes that an operator sees, and the messages that an operator drops.

use std::sync::mpsc::channel;

use bytes::Bytes;
use touchline_store::{
    DroppedMessages, InboxDrop, InboxListing, InboxMessage, InboxNames, InboxPage, InboxPlace, InboxSearch,
    StoreRefusal,
};
use touchline_testkit::PATIENCE;

use crate::stage::{HOUR_MS, Stage, execute, now_ms, on_both};

fn place(scope: &str, name: &str) -> InboxPlace {
    InboxPlace { scope: scope.into(), name: name.into() }
}

/// Stores a message for a name, and returns its id.
fn queue(stage: &Stage, at: &InboxPlace, message: &str, ttl_ms: u64) -> u64 {
    let (sender, reply) = channel();
    let message = InboxMessage {
        scope: (&*at.scope).into(),
        name: at.name.clone(),
        message: Bytes::from(message.to_owned()),
        expires_ms: now_ms() + ttl_ms,
        limit: 1_000_000,
    };
    stage.store.queue_message(message, Box::new(move |result| assert!(sender.send(result).is_ok())));
    reply.recv_timeout(PATIENCE).expect("a reply").expect("there is room")
}

fn sent(time_ms: u64) -> String {
    format!(r#"{{"data":1,"time":{time_ms}}}"#)
}

fn names(stage: &Stage, search: &InboxSearch) -> InboxNames {
    let (sender, reply) = channel();
    stage.store.inbox_names(search.clone(), Box::new(move |result| assert!(sender.send(result).is_ok())));
    reply.recv_timeout(PATIENCE).expect("a reply").expect("it can be read")
}

fn found(page: &InboxNames) -> Vec<&str> {
    page.names.iter().map(|summary| &*summary.place.name).collect()
}

fn page(stage: &Stage, at: &InboxPlace, behind: u64, limit: usize) -> InboxPage {
    let (sender, reply) = channel();
    let listing = InboxListing { place: at.clone(), behind, limit };
    stage.store.inbox_page(listing, Box::new(move |result| assert!(sender.send(result).is_ok())));
    reply.recv_timeout(PATIENCE).expect("a reply").expect("it can be read")
}

fn ids(page: &InboxPage) -> Vec<u64> {
    page.messages.iter().map(|message| message.id).collect()
}

fn dropped(stage: &Stage, dropped: InboxDrop) -> Result<DroppedMessages, StoreRefusal> {
    let (sender, reply) = channel();
    stage.store.drop_messages(dropped, Box::new(move |result| assert!(sender.send(result).is_ok())));
    reply.recv_timeout(PATIENCE).expect("a reply")
}

#[test]
fn names_with_messages_are_counted_page_by_page() {
    on_both("inbox-names", |settings| {
        let stage = Stage::open(settings);
        assert_eq!(names(&stage, &InboxSearch { limit: 10, ..InboxSearch::default() }), InboxNames::default());
        for name in ["bike-1", "bike-2", "bike-3", "car", "dead"] {
            let ttl_ms = if name == "dead" { 1 } else { HOUR_MS };
            queue(&stage, &place("devices", name), &sent(1_700_000_000_000), ttl_ms);
        }
        queue(&stage, &place("devices", "bike-2"), &sent(1_700_000_000_001), HOUR_MS);
        queue(&stage, &place("others", "bike-9"), r#"{"data":"no time"}"#, HOUR_MS);
        crate::stage::pass_a_millisecond();
        let all = names(&stage, &InboxSearch { limit: 10, ..InboxSearch::default() });
        assert_eq!((found(&all), &all.next), (vec!["bike-1", "bike-2", "bike-3", "car", "bike-9"], &None));
        let two = &all.names[1];
        assert_eq!((two.waiting, two.bytes, two.has_more), (2, 2 * sent(1_700_000_000_000).len() as u64, false));
        assert_eq!((two.oldest_ms, all.names[4].oldest_ms), (Some(1_700_000_000_000), None));
        let of_scope = InboxSearch { scope: Some("devices".into()), limit: 2, ..InboxSearch::default() };
        let (mut search, mut seen) = (of_scope.clone(), Vec::new());
        loop {
            let page = names(&stage, &search);
            assert!(page.names.len() <= 2);
            seen.extend(page.names.iter().map(|summary| summary.place.clone()));
            let Some(next) = page.next else { break };
            search.after = next;
        }
        assert_eq!(seen, ["bike-1", "bike-2", "bike-3", "car"].map(|name| place("devices", name)));
        let with_prefix = |prefix: &str, limit: usize| {
            let search = InboxSearch { prefix: prefix.into(), limit, ..of_scope.clone() };
            let page = names(&stage, &search);
            (found(&page).join(" "), page.next.map(|place| place.name.to_string()))
        };
        assert_eq!(with_prefix("bike-", 10), ("bike-1 bike-2 bike-3".into(), None));
        assert_eq!(with_prefix("bike-2", 10), ("bike-2".into(), None));
        assert_eq!(with_prefix("bike-", 2), ("bike-1 bike-2".into(), Some("bike-2".into())));
        assert_eq!(with_prefix("truck", 10), (String::new(), None));
        let without_scope = InboxSearch { prefix: "bike-9".into(), limit: 10, ..InboxSearch::default() };
        assert_eq!(found(&names(&stage, &without_scope)), ["bike-9"]);
        stage.store.close();
    });
}

/// A page takes a bounded time, however many names and messages there are.
#[test]
fn no_page_counts_or_visits_more_than_its_bounds() {
    on_both("inbox-bounds", |settings| {
        let stage = Stage::open(settings);
        queue(&stage, &place("a", "first"), &sent(7), HOUR_MS);
        let row = "'{\"data\":1,\"time\":8}', 9000000000000, 1";
        let numbers =
            |up_to: u32| format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {up_to})");
        let many = |up_to: u32, name: &str| {
            format!(
                "INSERT INTO touchline.inbox_message (scope, name, message, expires_ms, format) {} \
                 SELECT 'b', {name}, {row} FROM n",
                numbers(up_to)
            )
        };
        execute(settings, &[&many(1_500, "'full'"), &many(12_000, "'name-' || i")]);
        let all = names(&stage, &InboxSearch { limit: 2, ..InboxSearch::default() });
        let counts: Vec<_> = all.names.iter().map(|summary| (summary.waiting, summary.has_more)).collect();
        assert_eq!(counts, [(1, false), (1_000, true)]);
        assert!(all.next.is_some());
        // Without a scope the prefix is only compared. So a page may be empty, and the next one continues.
        let mut search = InboxSearch { prefix: "none".into(), limit: 5, ..InboxSearch::default() };
        let first = names(&stage, &search);
        assert_eq!(first.names, []);
        search.after = first.next.expect("not all names were visited");
        assert_eq!(names(&stage, &search), InboxNames::default());
        stage.store.close();
    });
}

#[test]
fn messages_are_listed_up_to_a_size() {
    on_both("inbox-page", |settings| {
        let stage = Stage::open(settings);
        let bike = place("devices", "bike");
        let large = format!(r#"{{"data":"{}","time":7}}"#, "x".repeat(600_000));
        let all: Vec<u64> = (0..4).map(|_| queue(&stage, &bike, &large, HOUR_MS)).collect();
        queue(&stage, &place("devices", "bike2"), &sent(1), HOUR_MS);
        queue(&stage, &bike, &sent(1), 1);
        crate::stage::pass_a_millisecond();
        let first = page(&stage, &bike, 0, 100);
        assert_eq!((ids(&first), first.has_more), (all[..2].to_vec(), true), "a MiB is reached");
        assert!(first.messages[0].expires_ms > now_ms() && first.messages[0].message == large);
        let second = page(&stage, &bike, all[1], 100);
        assert_eq!((ids(&second), second.has_more), (all[2..].to_vec(), false));
        let one = page(&stage, &bike, 0, 1);
        assert_eq!((ids(&one), one.has_more), (vec![all[0]], true));
        assert_eq!(page(&stage, &place("devices", "none"), 0, 100), InboxPage::default());
        stage.store.close();
    });
}

#[test]
fn messages_are_dropped_by_their_ids_or_up_to_one() {
    on_both("inbox-drop", |settings| {
        let stage = Stage::open(settings);
        let (bike, car) = (place("devices", "bike"), place("devices", "car"));
        let of_bike: Vec<u64> = (0..5).map(|time| queue(&stage, &bike, &sent(time), HOUR_MS)).collect();
        let of_car = queue(&stage, &car, &sent(7), HOUR_MS);
        let drop_of = |place: &InboxPlace, ids: Option<Vec<u64>>, until: u64, limit: u64| {
            dropped(&stage, InboxDrop { place: place.clone(), ids, until, limit }).expect("they are dropped")
        };
        let told = drop_of(&bike, Some(vec![of_bike[1], of_car, of_car + 100]), u64::MAX >> 1, 1_000);
        assert_eq!(told, DroppedMessages { count: 1, top: of_bike[4] }, "only what is of the name");
        assert_eq!(drop_of(&bike, None, u64::MAX >> 1, 2).count, 2, "the oldest");
        assert_eq!(ids(&page(&stage, &bike, 0, 100)), of_bike[3..]);
        assert_eq!(drop_of(&bike, None, of_bike[3], 100), DroppedMessages { count: 1, top: of_bike[4] });
        assert_eq!(drop_of(&bike, None, u64::MAX >> 1, 100).count, 1);
        assert_eq!(drop_of(&bike, None, u64::MAX >> 1, 100), DroppedMessages::default());
        assert_eq!(ids(&page(&stage, &car, 0, 100)), [of_car]);
        stage.store.close();
    });
}
