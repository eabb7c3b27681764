//! Which endpoints get events: the endpoints that nodes register, whichever node writes the events.

use std::collections::BTreeMap;

use fastrand::Rng;
use touchline_engine::events::{EventKind, StateKey};
use touchline_engine::ledger::{EndpointWish, EventRoute, KeyChange, WishDescription, WishList};
use touchline_store::ledger::{EventLedger, LedgerBatch, LedgerCause, LedgerShare, OutboxEvent};

use super::desk::{Desk, KEYS_MAX, LEASE, Scribe, Told, WORD};
use super::real::{Real, wish};
use crate::stage::on_each;

/// A life of a node.
struct Writer {
    ledger: EventLedger,
    life: u64,
    number: u64,
    knows: u64,
}

impl Writer {
    fn enter(real: &Real, name: &str, wishes: Vec<EndpointWish>) -> Self {
        let ledger = real.ledger_of(name, wishes);
        let life = real.runtime.block_on(ledger.enter(LedgerCause::Restart)).expect("it enters");
        Writer { ledger, life: life.incarnation, number: 0, knows: life.wishes.version }
    }

    fn put(&mut self, real: &Real, events: Vec<OutboxEvent>) {
        self.number += 1;
        let batch = LedgerBatch { number: self.number, knows: self.knows, events, ..LedgerBatch::default() };
        real.runtime.block_on(self.ledger.write(self.life, &batch)).expect("it is written");
    }

    fn share(&self, real: &Real) -> LedgerShare {
        real.runtime.block_on(self.ledger.share(self.life, (&[], &[]), self.knows)).expect("it is read")
    }

    fn settle(&self, real: &Real) -> bool {
        real.runtime.block_on(self.ledger.settle()).expect("it is written")
    }
}

fn some_wish(random: &mut Rng) -> EndpointWish {
    let some = |random: &mut Rng, of: &[&str]| -> Vec<String> {
        of.iter().filter(|_| random.bool()).map(|word| (*word).to_owned()).collect()
    };
    let types = some(random, &["vacated", "connected", "user_online", "of_a_later_version"]).into_iter().collect();
    let namespaces = random.bool().then(|| some(random, &["", "chat", "news"]).into_iter().collect());
    let name = random.choice(["one", "two", "three"]).unwrap_or_default().to_owned();
    EndpointWish { name, description: WishDescription { types, namespaces, lanes: random.u32(1..5), delay_ms: 5 } }
}

fn some_event(random: &mut Rng, number: u64) -> OutboxEvent {
    let word = *random.choice(&[Some("vacated"), Some("connected"), Some("user_online"), None]).unwrap_or(&None);
    let namespace = random.choice([None, Some(""), Some("chat"), Some("other")]).flatten().map(Into::into);
    let namespace = if word == Some("vacated") { namespace } else { None };
    OutboxEvent { word, namespace, place: random.u64(..) & i64::MAX as u64, body: number.to_string() }
}

#[test]
fn every_node_tells_every_endpoint_that_some_node_has_named() {
    on_each("wishes", |url| {
        let mut real = Real::open(url);
        for seed in 0..super::seeds(40) {
            real.empty();
            let mut random = Rng::with_seed(seed);
            let (mut named, mut expected) = (Vec::<EndpointWish>::new(), BTreeMap::<String, Vec<String>>::new());
            let (mut writers, mut number) = (Vec::new(), 0);
            for step in 0..6 {
                let wishes: Vec<EndpointWish> = (0..random.u32(1..4)).map(|_| some_wish(&mut random)).collect();
                if !real.has_leases() {
                    // The only node does not know others.
                    writers.clear();
                    named.clear();
                }
                writers.push(Writer::enter(&real, &format!("n{step}"), wishes.clone()));
                named.extend(wishes);
                for _ in 0..random.u32(1..10) {
                    number += 1;
                    let event = some_event(&mut random, number);
                    let list = WishList { version: 0, wishes: named.clone() };
                    let route =
                        EventRoute { word: event.word, namespace: event.namespace.as_deref(), place: event.place };
                    for (endpoint, lane) in list.lanes(route) {
                        expected.entry(format!("{endpoint} {lane}")).or_default().push(event.body.clone());
                    }
                    let at = random.usize(..writers.len());
                    writers[at].put(&real, vec![event]);
                }
            }
            let rows = real.texts("SELECT endpoint || ' ' || lane || '=' || body FROM event_outbox ORDER BY id");
            let mut found = BTreeMap::<String, Vec<String>>::new();
            for row in &rows {
                let (place, body) = row.split_once('=').expect("it is written so");
                found.entry(place.to_owned()).or_default().push(body.to_owned());
            }
            assert_eq!(found, expected, "the seed was {seed}");
        }
    });
}

#[test]
fn an_endpoint_is_told_once_from_when_on_every_life_tells_it_all() {
    on_each("whole", |url| {
        let real = Real::open(url);
        let mut old = Writer::enter(&real, "old", vec![wish("e", &[WORD], 2)]);
        let share = old.share(&real);
        assert_eq!((share.wishes, share.is_settling), (None, false), "it was there before anybody told anything");
        let wider = vec![wish("e", &[WORD, "vacated"], 2)];
        let mut fresh = Writer::enter(&real, "fresh", wider);
        if real.has_leases() {
            let share = old.share(&real);
            let list = share.wishes.expect("it is new to the old node");
            assert!(!share.is_settling && !fresh.settle(&real) && list.is_told(EventKind::Vacated, None));
            assert_eq!(share.differing, ["e"]);
            assert_eq!(share.nodes.len(), 2);
            old.knows = list.version;
            old.put(&real, Vec::new());
        }
        assert!(fresh.share(&real).is_settling);
        assert!(fresh.settle(&real) && !fresh.settle(&real), "once");
        assert_eq!(real.outbox(), ["r start", "r start"], "in each lane");
        fresh.put(&real, Vec::new());
        // A new life writes events by all known wishes.
        let late = Writer::enter(&real, "late", vec![wish("e", &[WORD, "vacated"], 2)]);
        assert!(late.knows >= fresh.knows && !late.share(&real).is_settling);
    });
}

#[test]
fn what_no_node_names_any_more_is_told_no_more() {
    on_each("unnamed", |url| {
        let mut real = Real::open(url);
        if !real.has_leases() {
            return;
        }
        let old = Writer::enter(&real, "old", vec![wish("e", &[WORD], 1), wish("gone", &[WORD], 1)]);
        let fresh = Writer::enter(&real, "fresh", vec![wish("e", &["vacated"], 1)]);
        drop(old);
        let names = |real: &Real| real.texts("SELECT name FROM event_endpoint ORDER BY name");
        for _ in 0..7 {
            real.advance(10_001);
            fresh.share(&real);
        }
        real.runtime.block_on(fresh.ledger.tidy()).expect("it is written");
        assert_eq!(names(&real), ["e", "gone"], "an endpoint may come back within a day");
        real.advance(24 * 3_600_000);
        fresh.share(&real);
        real.runtime.block_on(fresh.ledger.tidy()).expect("it is written");
        assert_eq!(names(&real), ["e"]);
    });
}

#[test]
fn keys_that_are_too_many_are_forgotten_and_no_generation_is_given_twice() {
    on_each("keys", |url| {
        let mut real = Real::open(url);
        real.start("a");
        let life = real.enter("a", LedgerCause::Restart);
        let mut number = 0;
        let mut change = |real: &mut Real, name: &str, is_held: bool| {
            number += 1;
            let key = StateKey::User(name.into());
            let change = KeyChange { key, is_gained: is_held, is_held };
            real.write("a", life, &LedgerBatch { number, keys: vec![change], ..LedgerBatch::default() });
        };
        for name in ["u1", "u2", "u3", "u4", "u5"] {
            change(&mut real, name, true);
            change(&mut real, name, false);
            real.advance(LEASE.as_millis() as u64 - 1);
            real.write("a", life, &LedgerBatch::default());
            real.sweep("a");
        }
        real.tidy("a");
        let left = real.texts("SELECT key FROM event_key ORDER BY key");
        assert_eq!((left.len() as u64, &*left[0]), (KEYS_MAX, "u4"), "the oldest are gone");
        change(&mut real, "u1", true);
        let told = real.told();
        let of_first = told.iter().filter_map(|event| match event {
            Told::Key { key, generation, .. } if key.name() == "u1" => Some(*generation),
            _ => None,
        });
        assert_eq!(of_first.collect::<Vec<_>>(), [1, 2, 3], "it begins above all that were forgotten");
        assert_eq!(Scribe::read("r dropped"), Told::Reset);
    });
}
