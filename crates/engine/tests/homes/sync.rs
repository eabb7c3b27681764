//! Random days of one replicated channel: its home on one side, a stream in the cluster on the other. Reports are lost,
//! loads fail, links are cut. The subscribers get each publication once and in order until they are asked to subscribe
//! again. In the end no request waits.

use proptest::prelude::*;
use touchline_engine::channels::{BackendCommand, Submitted};
use touchline_engine::request::{Appended, BackendEvent, ChannelEvent, WaitingRequest};
use touchline_engine::{ChannelRequest, Channels, ConnectionId, Response};
use touchline_protocol::stream::{ChannelName, LoadId, Offset};

use crate::world::{START_MS, World, epoch, history, loaded, payload, subscribe};

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The stream appends a publication; the report to the node may be lost.
    Append {
        is_told: bool,
    },
    Subscribe,
    /// The cluster answers its oldest request.
    Answer {
        fails: bool,
    },
    Link(bool),
    Pass,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => any::<bool>().prop_map(|is_told| Step::Append { is_told }),
        2 => Just(Step::Subscribe),
        6 => prop::bool::weighted(0.2).prop_map(|fails| Step::Answer { fails }),
        1 => any::<bool>().prop_map(Step::Link),
        2 => Just(Step::Pass),
    ];
    prop::collection::vec(step, 1..80)
}

struct Day {
    channels: Channels,
    name: ChannelName,
    now_ms: u64,
    top: u64,
    is_linked: bool,
    asked: Vec<BackendCommand>,
    waiting: Vec<WaitingRequest>,
    slots: u32,
    /// The connections that are subscribed.
    subscribed: Vec<ConnectionId>,
    /// The offset up to which all subscribers have everything; `None` = there are none, or they have to subscribe
    /// again.
    has_all_to: Option<u64>,
}

impl Day {
    fn new() -> Self {
        let channels = World::in_cluster(history()).channels;
        let (asked, waiting, subscribed) = Default::default();
        Day {
            channels,
            name: "a".into(),
            now_ms: START_MS,
            top: 0,
            is_linked: true,
            asked,
            waiting,
            slots: 0,
            subscribed,
            has_all_to: None,
        }
    }

    fn submit(&mut self, request: impl Into<WaitingRequest>) {
        let request = request.into();
        let connection = request.request().subscriber().expect("all requests are of subscribers");
        match self.channels.submit(&self.name, request, self.now_ms) {
            Submitted::Wait(request) => self.waiting.push(request),
            Submitted::Done(Response::Subscribed(subscribed)) => {
                assert!(self.channels.is_live(&self.name), "nobody subscribes to a cache that is not live");
                self.subscribed.push(connection);
                let position = subscribed.position.offset.0;
                assert_eq!(*self.has_all_to.get_or_insert(position), position, "all that was before is recovered");
            }
            Submitted::Done(Response::Refused(_) | Response::Done) => {}
            other => panic!("{other:?}"),
        }
        self.settle();
    }

    fn apply(&mut self, event: BackendEvent) {
        self.channels.apply(&self.name, event, self.now_ms);
        self.settle();
    }

    /// Does the same as a shard: deliveries, then waiting requests, then commands.
    fn settle(&mut self) {
        let mut gone = Vec::new();
        for (_, delivery) in self.channels.deliveries() {
            match delivery.event {
                ChannelEvent::Publication { publication, .. } => {
                    let before = self.has_all_to.expect("only subscribers get publications");
                    assert_eq!(publication.offset.0, before + 1, "each once, in order, without a gap");
                    self.has_all_to = Some(before + 1);
                }
                ChannelEvent::Broken => {
                    self.has_all_to = None;
                    gone.append(&mut self.subscribed);
                }
                ChannelEvent::Membership(_) => panic!("nobody announces anything"),
            }
        }
        for connection in gone {
            self.submit(ChannelRequest::Unsubscribe { connection, is_answered: true });
        }
        self.asked.extend(self.channels.backend_commands());
        if !self.channels.take_ready().is_empty() {
            std::mem::take(&mut self.waiting).into_iter().for_each(|request| self.submit(request));
        }
    }

    /// Answers the oldest request. Returns false if there is none.
    fn answer(&mut self, fails: bool) -> bool {
        if self.asked.is_empty() {
            return false;
        }
        match self.asked.remove(0) {
            BackendCommand::SetInterest { is_wanted: true, .. } => self.apply(BackendEvent::Subscribed),
            BackendCommand::SetInterest { is_wanted: false, .. } => {}
            BackendCommand::Load { .. } if fails || !self.is_linked => self.apply(BackendEvent::Loaded(None)),
            BackendCommand::Load { load: LoadId { behind, number }, .. } => {
                let mut answer = loaded(behind.0.min(self.top), self.top);
                (answer.behind, answer.number) = (behind, number);
                self.apply(BackendEvent::Loaded(Some(Box::new(answer))));
            }
            other => panic!("{other:?}"),
        }
        true
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append { is_told } => {
                self.top += 1;
                if is_told && self.is_linked {
                    let (offset, previous) = (Offset(self.top), Offset(self.top - 1));
                    let payload = payload(self.top, START_MS);
                    self.apply(BackendEvent::Appended(Appended { offset, previous, epoch: Some(epoch()), payload }));
                }
            }
            Step::Subscribe => {
                self.slots += 1;
                self.submit(subscribe(self.slots));
            }
            Step::Answer { fails } => drop(self.answer(fails)),
            Step::Link(is_linked) => {
                self.is_linked = is_linked;
                self.channels.set_linked(is_linked, self.now_ms);
                self.settle();
            }
            Step::Pass => {
                self.now_ms += 150;
                self.channels.expire(self.now_ms);
                self.settle();
            }
        }
    }
}

proptest! {
    #[test]
    fn a_day_ends_with_a_live_cache_and_no_request_that_waits(steps in steps()) {
        let mut day = Day::new();
        steps.into_iter().for_each(|step| day.step(step));
        day.step(Step::Link(true));
        for _ in 0..3 {
            day.step(Step::Pass);
            day.step(Step::Subscribe);
            while day.answer(false) {}
        }
        prop_assert!(day.waiting.is_empty(), "{:?}", day.waiting);
        prop_assert!(day.channels.is_live("a"));
        prop_assert_eq!(day.has_all_to, Some(day.top));
    }
}
