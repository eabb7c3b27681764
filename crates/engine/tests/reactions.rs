//! Books of reactions on bad days: nodes are killed, cut off from each other and started again; messages are lost,
//! doubled and late. In the end all nodes have the same totals, which equal those of a plain count. No client ever sees
//! a total decrease.
//!
//! There are 1,000 days by default; `touchline_testkit::seeds` has the variables that change this.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use touchline_engine::reactions::{BookOutput, Contributor, ReactionBook, ReactionFault, ReactionLimits, RoundId};
use touchline_registry::HashSeed;
use touchline_testkit::seeds::{seeds, simulate};

const NODES: usize = 3;
const START_MS: u64 = 1_700_000_000_000;
const STEP_MS: u64 = 50;
/// After this much quiet time, every node knows what every other one knows: more comparisons than a book skips.
const CALM_MS: u64 = 90_000;
const CHANNELS: [&str; 3] = ["standing", "opened", "both"];
const OPTIONS: [&str; 2] = ["applause", "boo"];
/// How long a closed channel waits for nodes that do not report that they have counted everything.
const COMPLETE_PATIENCE_MS: u64 = 10_000;
const LIMITS: ReactionLimits = ReactionLimits { channels: 100, ttl_ms: 86_400_000, tick_ms: 250 };

/// A node in one of its lives, and what a plain count of its accepted reactions says: by channel, round and option.
struct Life {
    name: Arc<str>,
    started_ms: u64,
    book: ReactionBook,
    counted: BTreeMap<(usize, RoundId, usize), u64>,
    /// What its clients saw last: for each channel, the round and the sum.
    seen: BTreeMap<usize, (u64, u64)>,
}

struct OnItsWay {
    at_ms: u64,
    to: usize,
    message: Bytes,
}

/// The state of the network.
#[derive(Clone, Copy)]
struct Weather {
    /// How many of a hundred messages are lost.
    loss: u8,
    /// How many of a hundred messages are doubled.
    doubled: u8,
    /// The longest delay, milliseconds.
    delay_ms: u64,
}

struct World {
    random: fastrand::Rng,
    now_ms: u64,
    lives: Vec<Option<Life>>,
    started: u64,
    sides: [u8; NODES],
    weather: Weather,
    messages: Vec<OnItsWay>,
    /// What the lives that have ended had accepted.
    dead: BTreeMap<(usize, RoundId, usize), u64>,
    finished: Vec<(usize, RoundId)>,
}

fn options() -> Vec<String> {
    OPTIONS.iter().map(|option| (*option).to_owned()).collect()
}

fn standing(channel: usize) -> Vec<String> {
    if channel == 1 { Vec::new() } else { options() }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let weather = Weather { loss: random.u8(0..40), doubled: random.u8(0..40), delay_ms: random.u64(1..900) };
        let mut world = World {
            random,
            now_ms: START_MS,
            lives: (0..NODES).map(|_| None).collect(),
            started: 0,
            sides: [0; NODES],
            weather,
            messages: Vec::new(),
            dead: BTreeMap::new(),
            finished: Vec::new(),
        };
        (0..NODES).for_each(|place| world.start(place));
        world
    }

    fn start(&mut self, place: usize) {
        self.started += 1;
        let name: Arc<str> = format!("n{place}").into();
        let mut book = ReactionBook::new(&name, self.started, LIMITS, HashSeed::repeatable(self.started), self.now_ms);
        book.joined();
        self.lives[place] =
            Some(Life { name, started_ms: self.now_ms, book, counted: BTreeMap::new(), seen: BTreeMap::new() });
    }

    fn kill(&mut self, place: usize) {
        let Some(life) = self.lives[place].take() else { return };
        for (key, n) in life.counted {
            *self.dead.entry(key).or_default() += n;
        }
        self.messages.retain(|message| message.to != place);
    }

    fn send(&mut self, from: usize, to: usize, message: &Bytes) {
        if from == to || self.sides[from] != self.sides[to] || self.random.u8(0..100) < self.weather.loss {
            return;
        }
        let copies = if self.random.u8(0..100) < self.weather.doubled { 2 } else { 1 };
        for _ in 0..copies {
            let at_ms = self.now_ms + self.random.u64(1..=self.weather.delay_ms);
            self.messages.push(OnItsWay { at_ms, to, message: message.clone() });
        }
    }

    fn react(&mut self) {
        let (place, channel, option) =
            (self.random.usize(0..NODES), self.random.usize(0..CHANNELS.len()), self.random.usize(0..OPTIONS.len()));
        let n = self.random.u64(1..50);
        let now_ms = self.now_ms;
        let Some(life) = &mut self.lives[place] else { return };
        let name = CHANNELS[channel];
        let round = match life.book.open_reactions(name, (&standing(channel), 5)) {
            Some(open) if open.is_closed => return,
            Some(open) => open.round,
            None if standing(channel).is_empty() => return,
            None => RoundId::default(),
        };
        life.book.add(&name.into(), &round, &[(OPTIONS[option], n)], now_ms).expect("there is room");
        *life.counted.entry((channel, round, option)).or_default() += n;
    }

    /// Opens or closes a channel on some node.
    fn operate(&mut self) {
        let (place, channel) = (self.random.usize(0..NODES), self.random.usize(1..CHANNELS.len()));
        let closes_at_ms = if self.random.bool() { 0 } else { self.now_ms + self.random.u64(500..5_000) };
        let opens = self.random.bool();
        let now_ms = self.now_ms;
        let Some(life) = &mut self.lives[place] else { return };
        let name = CHANNELS[channel].into();
        if opens {
            let options = OPTIONS.iter().map(|option| Box::from(*option)).collect();
            life.book.open(&name, options, (5, closes_at_ms), now_ms).expect("there is room");
        } else {
            let _ = life.book.close(&name, !standing(channel).is_empty(), now_ms);
        }
    }

    fn step(&mut self) {
        self.now_ms += STEP_MS;
        let due: Vec<OnItsWay> = self.messages.extract_if(.., |message| message.at_ms <= self.now_ms).collect();
        for OnItsWay { to, message, .. } in due {
            if let Some(life) = &mut self.lives[to] {
                life.book.receive(&message, self.now_ms).expect("books write what books read");
            }
        }
        for place in 0..NODES {
            let Some(life) = &mut self.lives[place] else { continue };
            if life.book.due_ms().is_some_and(|at_ms| at_ms <= self.now_ms) {
                life.book.tick(self.now_ms);
            }
            let outputs: Vec<_> = life.book.outputs().collect();
            for output in outputs {
                self.perform(place, output);
            }
        }
    }

    fn perform(&mut self, place: usize, output: BookOutput) {
        match output {
            BookOutput::Send(Some(to), message) => {
                let to = to[1..].parse().expect("nodes are numbered");
                self.send(place, to, &message);
            }
            BookOutput::Send(None, message) => (0..NODES).for_each(|to| self.send(place, to, &message)),
            BookOutput::Show(channel, _) => {
                let index = CHANNELS.iter().position(|name| *name == &*channel).expect("it is one of them");
                let Some(life) = &mut self.lives[place] else { return };
                let Some(state) = life.book.state(&channel, &standing(index)) else { return };
                let now = (state.opened_ms, state.seq());
                let before = life.seen.insert(index, now).unwrap_or_default();
                assert!(before <= now, "{} saw {channel} fall from {before:?} to {now:?}", life.name);
            }
            BookOutput::Announce(channel) => {
                let Some(life) = &mut self.lives[place] else { return };
                let Some((round, _)) = life.book.round(&channel) else { return };
                // The node's only shard knows the round from now on, or counts nothing more in it.
                if life.book.is_finishing(&channel) {
                    life.book.complete(&channel, &round);
                } else if life.book.opening(&channel).is_some() {
                    life.book.begun(&channel, &round);
                }
            }
            BookOutput::Finish(channel, closed_ms) => self.finish(place, &channel, closed_ms),
        }
    }

    /// Publishes a closed channel, if this node is the first in sight and all nodes in sight have counted everything.
    fn finish(&mut self, place: usize, channel: &str, closed_ms: u64) {
        let (now_ms, index) = (self.now_ms, CHANNELS.iter().position(|name| *name == channel).expect("it is one"));
        let in_sight = |other: &usize| self.sides[*other] == self.sides[place] && self.lives[*other].is_some();
        let in_sight: Vec<usize> = (0..NODES).filter(in_sight).collect();
        let names: Vec<String> = in_sight.iter().map(|other| format!("n{other}")).collect();
        let Some(life) = &mut self.lives[place] else { return };
        let is_complete = life.book.is_complete_at(channel, names.iter().map(String::as_str));
        if in_sight[0] != place || !is_complete && now_ms < closed_ms + COMPLETE_PATIENCE_MS {
            return;
        }
        let (round, is_out) = life.book.round(channel).expect("it is closed");
        assert!(!is_out, "what is out is not asked for again");
        let state = life.book.state(channel, &standing(index)).expect("it is closed");
        life.book.finished(&channel.into(), now_ms);
        if is_complete {
            let of_others = in_sight.iter().filter_map(|other| self.lives[*other].as_ref());
            // A node that started after the end counts only what comes after it.
            let of_others = of_others.filter(|life| life.started_ms < closed_ms);
            for (option, text) in OPTIONS.iter().enumerate() {
                let key = (index, round.clone(), option);
                let counted: u64 = of_others.clone().filter_map(|life| life.counted.get(&key)).sum();
                let total = state.totals.iter().find(|(known, _)| **known == **text).map_or(0, |(_, total)| *total);
                assert!(total >= counted, "{channel}, {text}: {total} is published, {counted} were counted in sight");
            }
        }
        self.finished.push((index, round));
    }

    fn day(&mut self, hours: usize) {
        for _ in 0..hours {
            match self.random.u8(0..100) {
                0..70 => self.react(),
                70..76 => self.operate(),
                76..80 => self.sides = std::array::from_fn(|_| self.random.u8(0..2)),
                80..86 => self.sides = [0; NODES],
                86..89 => {
                    let place = self.random.usize(0..NODES);
                    self.kill(place);
                }
                89..93 => {
                    let place = self.random.usize(0..NODES);
                    if self.lives[place].is_none() {
                        self.start(place);
                    }
                }
                _ => {}
            }
            self.step();
        }
    }

    /// Repairs the network, and starts a node in every place.
    fn calm(&mut self) {
        self.sides = [0; NODES];
        self.weather = Weather { loss: 0, doubled: 10, delay_ms: 20 };
        for place in 0..NODES {
            if self.lives[place].is_none() {
                self.start(place);
            }
        }
        for _ in 0..CALM_MS / STEP_MS {
            self.step();
        }
    }

    fn check(&mut self, seed: u64) {
        for (channel, name) in CHANNELS.iter().enumerate() {
            let states: Vec<_> = self
                .lives
                .iter()
                .flatten()
                .map(|life| (life.book.state(name, &standing(channel)), life.book.round(name)))
                .collect();
            assert!(states.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}, {name}: {states:?}");
            let (Some(state), Some((round, is_published))) = states[0].clone() else { continue };
            assert!(!state.is_closed || is_published, "seed {seed}: what is closed is published in the end");
            for (option, text) in OPTIONS.iter().enumerate() {
                let key = (channel, round.clone(), option);
                let alive: u64 = self.lives.iter().flatten().filter_map(|life| life.counted.get(&key)).sum();
                let dead = self.dead.get(&key).copied().unwrap_or_default();
                let total = state.totals.iter().find(|(known, _)| **known == **text).map_or(0, |(_, total)| *total);
                assert!(
                    (alive..=alive + dead).contains(&total),
                    "seed {seed}, {name}, {text}: {total} is told, {alive} are of the living and {dead} of the dead"
                );
            }
        }
    }
}

fn run(seed: u64) -> World {
    let mut world = World::new(seed);
    let hours = world.random.usize(50..600);
    world.day(hours);
    world.calm();
    world.check(seed);
    world
}

#[test]
fn after_bad_days_all_nodes_have_the_plain_count() {
    simulate(seeds(1_000), [("closed rounds", 100), ("counts of dead nodes", 100)], |seed| {
        let world = run(seed);
        [world.finished.len() as u64, world.dead.len() as u64]
    });
}

/// Passes the messages of each of two books to the other one.
fn exchange(a: &mut ReactionBook, b: &mut ReactionBook, now_ms: u64) {
    for book in [&mut *a, &mut *b] {
        if book.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
            book.tick(now_ms);
        }
    }
    let (to_b, to_a) = (sent(a), sent(b));
    to_b.iter().for_each(|message| b.receive(message, now_ms).expect("it is one"));
    to_a.iter().for_each(|message| a.receive(message, now_ms).expect("it is one"));
}

#[test]
fn a_node_says_that_it_knows_a_round_and_that_it_has_counted_all_of_it() {
    let (mut a, mut b) = two_books();
    let channel = "opened".into();
    a.open(&channel, ["boo".into()].into(), (5, 0), START_MS).expect("there is room");
    assert!(!a.is_known_by("opened", ["a"]), "its own clients could be refused still");
    // The message is sent at once, not after a tick.
    exchange(&mut a, &mut b, START_MS + 1);
    exchange(&mut a, &mut b, START_MS + 1);
    assert!(!a.is_known_by("opened", ["b"]), "its clients could be refused still");
    let round = a.round("opened").expect("it is open").0;
    // The backend is faster than the shards.
    b.add(&channel, &round, &[("boo", 1)], START_MS + 1).expect("it is open");
    exchange(&mut a, &mut b, START_MS + 1);
    assert!(!a.is_known_by("opened", ["b"]), "that it counts says nothing of its clients");
    a.begun(&channel, &round);
    b.begun(&channel, &round);
    exchange(&mut a, &mut b, START_MS + 2);
    assert!(a.is_known_by("opened", ["a", "b"]) && b.is_known_by("opened", ["a", "b"]));
    a.complete(&channel, &round);
    assert!(!a.is_complete_at("opened", ["a"]), "it is open");
    assert_eq!(a.close(&channel, false, START_MS + 3), Ok(true));
    exchange(&mut a, &mut b, START_MS + 4);
    b.add(&channel, &round, &[("boo", 4)], START_MS + 5).expect("its shards had accepted it");
    b.complete(&channel, &round);
    assert!(a.is_finishing("opened") && !a.is_complete_at("opened", ["b"]));
    exchange(&mut a, &mut b, START_MS + 6);
    assert!(a.is_complete_at("opened", ["b"]) && !a.is_complete_at("opened", ["a", "b"]));
    let state = a.state("opened", &[]).expect("it is closed");
    assert_eq!(state.seq(), 5, "who has counted all has told all");
    a.finished(&channel, START_MS + 7);
    exchange(&mut a, &mut b, START_MS + 8);
    assert!(!a.is_finishing("opened") && !b.is_finishing("opened"));
}

#[test]
fn what_closes_by_itself_is_not_forgotten_before() {
    let (mut a, _) = two_books();
    let closes_at_ms = START_MS + 2 * LIMITS.ttl_ms;
    a.open(&"opened".into(), ["boo".into()].into(), (5, closes_at_ms), START_MS).expect("there is room");
    a.tick(closes_at_ms - 1);
    assert_eq!(a.len(), 1);
    a.tick(closes_at_ms + 2 * LIMITS.ttl_ms);
    assert!(a.is_finishing("opened"), "nor before it is published");
}

/// Two books whose messages the test passes on.
fn two_books() -> (ReactionBook, ReactionBook) {
    let book = |name, number| ReactionBook::new(name, number, LIMITS, HashSeed::repeatable(number), START_MS);
    (book("a", 1), book("b", 2))
}

fn sent(book: &mut ReactionBook) -> Vec<Bytes> {
    let messages = |output| if let BookOutput::Send(_, message) = output { Some(message) } else { None };
    book.outputs().filter_map(messages).collect()
}

fn total(book: &ReactionBook, option: &str) -> u64 {
    let state = book.state("standing", &options()).unwrap_or_default();
    state.totals.iter().find(|(known, _)| **known == *option).map_or(0, |(_, total)| *total)
}

#[test]
fn what_a_dead_node_has_told_stays_and_is_passed_on() {
    let (mut a, mut b) = two_books();
    let channel = "standing".into();
    a.add(&channel, &RoundId::default(), &[("boo", 5)], START_MS).expect("there is room");
    a.tick(START_MS + 250);
    sent(&mut a).iter().for_each(|message| b.receive(message, START_MS).expect("it is one"));
    a.add(&channel, &RoundId::default(), &[("boo", 7)], START_MS + 300).expect("there is room");
    drop(a);
    assert_eq!(total(&b, "boo"), 5, "what was not told is lost, and nothing else");
    let (mut again, _) = two_books();
    again.joined();
    sent(&mut again).iter().for_each(|message| b.receive(message, START_MS).expect("it is one"));
    for _ in 0..3 {
        let (to_new, to_old) = (sent(&mut b), sent(&mut again));
        to_new.iter().for_each(|message| again.receive(message, START_MS).expect("it is one"));
        to_old.iter().for_each(|message| b.receive(message, START_MS).expect("it is one"));
    }
    // It has the same name and number as before: the book takes records about that contributor for its own. No two
    // nodes share these.
    assert_eq!(again.contributor(), &Contributor::new("a", 1));
    let mut third = ReactionBook::new("c", 3, LIMITS, HashSeed::repeatable(3), START_MS);
    third.joined();
    for _ in 0..3 {
        sent(&mut third).iter().for_each(|message| b.receive(message, START_MS).expect("it is one"));
        sent(&mut b).iter().for_each(|message| third.receive(message, START_MS).expect("it is one"));
    }
    assert_eq!(total(&third, "boo"), 5, "a node that has come later has it from one that knew the dead one");
}

#[test]
fn a_book_has_room_for_so_many_channels_whoever_names_them() {
    let limits = ReactionLimits { channels: 2, ..LIMITS };
    let mut small = ReactionBook::new("s", 1, limits, HashSeed::repeatable(1), START_MS);
    let (mut large, _) = two_books();
    for number in 0..5 {
        let channel = format!("c{number}").into();
        large.add(&channel, &RoundId::default(), &[("boo", 1)], START_MS).expect("there is room");
    }
    large.tick(START_MS);
    sent(&mut large).iter().for_each(|message| small.receive(message, START_MS).expect("it is one"));
    assert_eq!((small.len(), small.dropped()), (2, 3));
    assert_eq!(small.full().map(Iterator::count), Some(2));
    // What was accepted before it was full is counted, up to a limit.
    for number in 0..7 {
        let channel = format!("own{number}").into();
        let expected = if number < 6 { Ok(()) } else { Err(ReactionFault::LimitExceeded) };
        assert_eq!(small.add(&channel, &RoundId::default(), &[("boo", 1)], START_MS), expected);
    }
    assert_eq!(small.open(&"other".into(), Box::default(), (1, 0), START_MS), Err(ReactionFault::LimitExceeded));
}

#[test]
fn a_later_round_begins_at_zero_and_takes_nothing_of_the_earlier_one() {
    let (mut a, mut b) = two_books();
    let channel = "standing".into();
    a.add(&channel, &RoundId::default(), &[("boo", 5)], START_MS).expect("there is room");
    let opened_ms = a.open(&channel, ["boo".into()].into(), (5, 0), START_MS).expect("there is room");
    assert_eq!(
        a.open(&channel, ["boo".into()].into(), (5, 0), START_MS + 9),
        Ok(opened_ms),
        "the same is open already"
    );
    assert_eq!(a.add(&channel, &RoundId::default(), &[("boo", 5)], START_MS), Err(ReactionFault::NotOpen));
    assert_eq!(total(&a, "boo"), 0);
    b.add(&channel, &RoundId::default(), &[("boo", 3)], START_MS).expect("it has not heard of it");
    a.tick(START_MS + 250);
    sent(&mut a).iter().for_each(|message| b.receive(message, START_MS).expect("it is one"));
    b.tick(START_MS + 250);
    sent(&mut b).iter().for_each(|message| a.receive(message, START_MS).expect("it is one"));
    assert_eq!((total(&a, "boo"), total(&b, "boo")), (0, 0));
    assert_eq!(a.close(&channel, true, START_MS), Ok(true));
    assert_eq!(a.close(&channel, true, START_MS), Ok(false));
    assert_eq!(a.close(&"none".into(), false, START_MS), Err(ReactionFault::NotOpen));
}

#[test]
fn what_nobody_changes_is_forgotten_by_others_first() {
    let (mut a, mut b) = two_books();
    a.add(&"standing".into(), &RoundId::default(), &[("boo", 5)], START_MS).expect("there is room");
    a.tick(START_MS);
    sent(&mut a).iter().for_each(|message| b.receive(message, START_MS).expect("it is one"));
    let over_ms = START_MS + LIMITS.ttl_ms + 1_000;
    a.tick(over_ms);
    b.tick(over_ms);
    assert_eq!((total(&a, "boo"), total(&b, "boo")), (5, 0));
    b.outputs().for_each(drop);
    assert!(b.is_empty() && b.due_ms().is_none(), "an empty book has nothing to do");
    a.tick(over_ms + 61_000);
    assert!(a.is_empty() && a.due_ms().is_some(), "what it wants done is not done");
    a.outputs().for_each(drop);
    assert_eq!(a.due_ms(), None);
}

#[test]
fn a_row_is_what_the_node_itself_has_counted() {
    let (mut a, mut b) = two_books();
    b.add(&"standing".into(), &RoundId::default(), &[("boo", 3)], START_MS).expect("there is room");
    assert_eq!(a.row("standing"), None);
    a.add(&"standing".into(), &RoundId::default(), &[("boo", 5)], START_MS).expect("there is room");
    let row = a.row("standing").expect("it has counted something");
    let contributor = a.contributor().as_str().to_owned();
    for _ in 0..2 {
        b.restore(&contributor, &row, START_MS).expect("it is one");
    }
    assert_eq!(total(&b, "boo"), 8);
    assert!(b.restore(&contributor, b"{}", START_MS).is_err() && b.receive(b"nonsense", START_MS).is_err());
}

proptest! {
    /// The result is the same whatever the order in which records arrive, and however often.
    #[test]
    fn merging_is_order_free(
        adds in prop::collection::vec((0_usize..3, 0_usize..2, 1_u64..1_000), 1..40),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..120),
    ) {
        let book = |number: u64| {
            ReactionBook::new(&format!("n{number}"), number, LIMITS, HashSeed::repeatable(number), START_MS)
        };
        let mut books: Vec<ReactionBook> = (0..3).map(book).collect();
        let mut rows: Vec<(String, Vec<u8>)> = Vec::new();
        let mut plain = [0_u64; 2];
        for (who, option, n) in adds {
            let channel = "standing".into();
            books[who].add(&channel, &RoundId::default(), &[(OPTIONS[option], n)], START_MS).expect("there is room");
            plain[option] += n;
            rows.push((books[who].contributor().as_str().into(), books[who].row("standing").expect("it counts")));
        }
        let mut reader = book(9);
        for index in order {
            let (contributor, row) = index.get(&rows);
            reader.restore(contributor, row, START_MS).expect("it is one");
        }
        for (contributor, row) in rows.iter().rev() {
            reader.restore(contributor, row, START_MS).expect("it is one");
        }
        prop_assert_eq!([total(&reader, OPTIONS[0]), total(&reader, OPTIONS[1])], plain);
    }
}
