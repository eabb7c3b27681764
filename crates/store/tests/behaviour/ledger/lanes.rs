//! The lanes of the outbox, and dead letters.

use touchline_store::ledger::{Burial, EventLedger, LedgerBatch, LedgerCause, OutboxEvent, OutboxLane, WaitingEvent};

use super::desk::{Desk, LEASE, WORD};
use super::real::{Real, wish};
use crate::stage::on_each;

fn lane(lane: u32) -> OutboxLane {
    OutboxLane { endpoint: "e".to_owned(), lane }
}

fn event(lane: u32, body: &str) -> OutboxEvent {
    OutboxEvent { word: Some(WORD), namespace: None, place: u64::from(lane), body: body.to_owned() }
}

/// A node with a current life.
struct Node<'r> {
    real: &'r Real,
    ledger: EventLedger,
    life: u64,
    number: u64,
}

impl<'r> Node<'r> {
    fn enter(real: &'r Real, name: &str) -> Self {
        Node::enter_with(real, real.ledger(name))
    }

    fn enter_with(real: &'r Real, ledger: EventLedger) -> Self {
        let life = real.runtime.block_on(ledger.enter(LedgerCause::Restart)).expect("it enters").incarnation;
        Node { real, ledger, life, number: 0 }
    }

    fn put(&mut self, events: Vec<OutboxEvent>) {
        self.number += 1;
        let batch = LedgerBatch { number: self.number, events, ..LedgerBatch::default() };
        self.real.runtime.block_on(self.ledger.write(self.life, &batch)).expect("it is written");
    }

    fn claim(&self, wanted: &[OutboxLane], idle: &[OutboxLane]) -> Vec<OutboxLane> {
        let share = self.real.runtime.block_on(self.ledger.share(self.life, (wanted, idle), 0)).expect("it claims");
        let mut mine: Vec<OutboxLane> = share.lanes.into_iter().map(|own| own.lane).collect();
        mine.sort();
        mine
    }

    fn fetch(&self, lane: OutboxLane, limit: u32) -> Vec<WaitingEvent> {
        let fetched = self.real.runtime.block_on(self.ledger.fetch(self.life, &[(lane, limit)])).expect("it reads");
        fetched.into_iter().flat_map(|(_, events)| events).collect()
    }

    fn bury(&self, id: u64) -> u64 {
        let burial = Burial { id, tries: 5, error: "the status is 400".to_owned() };
        self.real.runtime.block_on(self.ledger.bury(&lane(0), &[burial])).expect("it is buried")
    }

    fn dead(&self, endpoint: Option<&str>, behind: u64, limit: u32) -> Vec<(u64, String)> {
        let dead = self.real.runtime.block_on(self.ledger.dead_letters(endpoint, behind, limit)).expect("it reads");
        dead.into_iter().map(|letter| (letter.id, letter.body)).collect()
    }
}

fn bodies(events: &[WaitingEvent]) -> Vec<&str> {
    events.iter().map(|event| &*event.body).collect()
}

#[test]
fn a_lane_gives_its_oldest_events_again_until_they_are_finished() {
    on_each("lanes", |url| {
        let real = Real::open(url);
        let mut node = Node::enter(&real, "a");
        assert!(node.fetch(lane(0), 10).is_empty(), "nobody has claimed it");
        node.put(vec![event(0, "1"), event(1, "other"), event(0, "2"), event(0, "3")]);
        node.put(vec![event(0, "4")]);
        let all: Vec<OutboxLane> = (0..4).map(lane).collect();
        assert_eq!(node.claim(&[lane(0), lane(1)], &[]), all, "also those that the description alone asks for");
        let first = node.fetch(lane(0), 2);
        assert_eq!(bodies(&first), ["1", "2"]);
        assert_eq!(node.fetch(lane(0), 2), first, "they have not arrived yet");
        let ids: Vec<u64> = first.iter().map(|event| event.id).collect();
        real.runtime.block_on(node.ledger.finish(&lane(0), &ids)).expect("it is written");
        real.runtime.block_on(node.ledger.finish(&lane(0), &ids)).expect("it does nothing");
        assert_eq!(bodies(&node.fetch(lane(0), 10)), ["3", "4"]);
        assert_eq!(bodies(&node.fetch(lane(1), 10)), ["other"]);
        assert!(node.fetch(lane(2), 10).is_empty());
    });
}

#[test]
fn lanes_are_shared_and_those_of_a_node_that_is_gone_go_to_another() {
    on_each("shares", |url| {
        let mut real = Real::open(url);
        if !real.has_leases() {
            return;
        }
        let wanted: Vec<OutboxLane> = (0..4).map(lane).collect();
        let mut one = Node::enter(&real, "one");
        one.put(vec![event(3, "x")]);
        assert_eq!(one.claim(&wanted, &[]), wanted, "it is alone");
        let two = Node::enter(&real, "two");
        assert_eq!(two.claim(&wanted, &[]), [], "all are taken");
        assert_eq!(one.claim(&wanted, &[]).len(), 4, "something may be under way everywhere");
        assert_eq!(one.claim(&wanted, &wanted[2..]), wanted[..2], "it gives its idle ones up");
        assert_eq!(two.claim(&wanted, &[]), wanted[2..]);
        assert!(one.fetch(lane(3), 1).is_empty(), "it is the other's");
        assert_eq!(bodies(&two.fetch(lane(3), 1)), ["x"]);
        let (one_ledger, two_ledger, two_life) = (one.ledger, two.ledger, two.life);
        real.advance(LEASE.as_millis() as u64);
        let fetched = real.runtime.block_on(two_ledger.fetch(two_life, &[(lane(3), 1)])).expect("it reads");
        assert!(fetched.is_empty(), "its lease is over");
        drop((one_ledger, two_ledger));
        let three = Node::enter(&real, "three");
        assert_eq!(three.claim(&wanted, &[]), wanted);
        assert_eq!(bodies(&three.fetch(lane(3), 1)), ["x"]);
    });
}

#[test]
fn dead_letters_are_listed_retried_dropped_and_bounded() {
    on_each("dead", |url| {
        let mut real = Real::open(url);
        let mut node = Node::enter(&real, "a");
        node.put((0..8).map(|n| event(0, &n.to_string())).collect());
        node.claim(&[lane(0)], &[]);
        let waiting = node.fetch(lane(0), 10);
        let dropped: Vec<u64> = waiting[..7].iter().map(|event| node.bury(event.id)).collect();
        assert_eq!(dropped, [0, 0, 0, 0, 0, 1, 1], "five are kept");
        assert_eq!(bodies(&node.fetch(lane(0), 10)), ["7"], "they wait no more");
        let dead = node.dead(None, 0, 100);
        assert_eq!(dead.iter().map(|(_, body)| &**body).collect::<Vec<_>>(), ["2", "3", "4", "5", "6"]);
        assert_eq!(node.dead(Some("e"), dead[1].0, 2), dead[2..4], "a page behind a number");
        assert!(node.dead(Some("other"), 0, 100).is_empty());
        let retried = real.runtime.block_on(node.ledger.retry_dead(&[dead[0].0, dead[1].0, 999]));
        assert_eq!(retried.expect("it is written"), 2);
        assert_eq!(bodies(&node.fetch(lane(0), 10)), ["7", "2", "3"], "behind what waits");
        assert_eq!(real.runtime.block_on(node.ledger.drop_dead(&[dead[2].0])).expect("it is written"), 1);
        assert_eq!(node.dead(None, 0, 100), dead[3..]);
        let Node { ledger, .. } = node;
        real.runtime.block_on(ledger.tidy()).expect("it is written");
        assert_eq!(real.runtime.block_on(ledger.dead_letters(None, 0, 9)).expect("it reads").len(), 2);
        real.advance(101_000);
        real.runtime.block_on(ledger.tidy()).expect("it is written");
        assert!(real.runtime.block_on(ledger.dead_letters(None, 0, 9)).expect("it reads").is_empty(), "too old");
    });
}

#[test]
fn what_waits_is_bounded_and_its_loss_is_told_first() {
    on_each("bounded", |url| {
        let mut real = Real::open(url);
        let mut node = Node::enter(&real, "a");
        node.claim(&[lane(0)], &[]);
        node.put((0..20).map(|n| event(0, &n.to_string())).collect());
        let tidy = |node: &Node<'_>| real.runtime.block_on(node.ledger.tidy()).expect("it is written");
        assert_eq!(tidy(&node).dropped, [("e".to_owned(), 5)], "fifteen are kept");
        let waiting = node.fetch(lane(0), 100);
        assert_eq!(bodies(&waiting)[..2], ["r dropped", "5"], "the oldest are gone");
        assert_eq!((waiting.len(), tidy(&node).dropped.len()), (16, 0), "what tells the loss is none too many");
        node.put((20..23).map(|n| event(0, &n.to_string())).collect());
        assert_eq!(tidy(&node).dropped, [("e".to_owned(), 3)]);
        let again = node.fetch(lane(0), 100);
        assert_eq!(bodies(&again)[..2], ["r dropped", "8"], "one tells all losses");
        // An event that was in delivery when it was dropped is finished, and this removes nothing else.
        let ids: Vec<u64> = waiting[..5].iter().map(|event| event.id).collect();
        real.runtime.block_on(node.ledger.finish(&lane(0), &ids)).expect("it is written");
        assert_eq!(bodies(&node.fetch(lane(0), 2)), ["r dropped", "9"]);
        real.runtime.block_on(node.ledger.finish(&lane(0), &[again[0].id])).expect("it is written");
        assert_eq!(bodies(&node.fetch(lane(0), 1)), ["9"], "it has arrived");
        let Node { ledger, .. } = node;
        drop(ledger);
        real.empty();
    });
}

#[test]
fn an_endpoint_that_nobody_knows_is_forgotten() {
    on_each("tidy", |url| {
        let mut real = Real::open(url);
        let mut node = Node::enter(&real, "a");
        node.claim(&[lane(0)], &[]);
        node.put((0..9).map(|n| event(0, &n.to_string())).collect());
        let Node { ledger, .. } = node;
        real.advance(8 * 24 * 3_600_000);
        assert_eq!(real.runtime.block_on(ledger.tidy()).expect("it is written").retired, 9);
        assert!(real.outbox().is_empty());
    });
}

#[test]
fn lanes_are_shared_among_the_nodes_that_have_their_endpoint() {
    on_each("havers", |url| {
        let real = Real::open(url);
        if !real.has_leases() {
            return;
        }
        let wanted: Vec<OutboxLane> = (0..4).map(lane).collect();
        let _other = Node::enter_with(&real, real.ledger_of("other", vec![wish("f", &[WORD], 2)]));
        let one = Node::enter(&real, "one");
        assert_eq!(one.claim(&wanted, &[]), wanted, "the other one delivers nothing there");
    });
}

#[test]
fn what_waits_is_measured() {
    on_each("measured", |url| {
        let mut real = Real::open(url);
        let mut node = Node::enter(&real, "a");
        node.put(vec![event(1, "four"), event(1, "seven77")]);
        let Node { ledger, life, .. } = node;
        real.advance(3_000);
        let share = real.runtime.block_on(ledger.share(life, (&[lane(0), lane(1)], &[]), 0)).expect("it is read");
        let mut lanes = share.lanes;
        lanes.sort_by(|one, two| one.lane.cmp(&two.lane));
        let figures: Vec<_> = lanes.iter().map(|own| (own.lane.lane, own.events, own.size, own.oldest_ms)).collect();
        assert_eq!(figures, [(0, 0, 0, 0), (1, 2, 11, 3_000), (2, 0, 0, 0), (3, 0, 0, 0)]);
    });
}
