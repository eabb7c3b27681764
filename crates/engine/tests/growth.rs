//! A durable channel that another node publishes to: the store reports that the channel has grown, and its log is read
//! a while later. In whatever order these happen, the cache ends with everything that was stored, and a subscriber gets
//! each publication once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use touchline_engine::channels::{BackendCommand, Submitted};
use touchline_engine::request::{BackendEvent, ChannelEvent, Loaded, Publish, Subscribe, WaitingRequest};
use touchline_engine::{ChannelOptions, ChannelRequest, ChannelSettings, Channels, ConnectionId, Namespaces, Response};
use touchline_protocol::publication::Content;
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, Offset, Runs, StreamPosition};
use touchline_registry::HashSeed;

const NOW_MS: u64 = 1_700_000_000_000;

/// The next thing that happens.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Another node stores a publication.
    Store,
    /// The store's oldest report that the channel has grown arrives.
    Tell,
    /// The oldest load is read from the database.
    Read,
    /// The oldest result of a read arrives.
    Answer,
}

struct World {
    channels: Channels,
    name: ChannelName,
    stored: Vec<(Offset, Bytes)>,
    told: VecDeque<u64>,
    asked: VecDeque<(u64, u64)>,
    read: VecDeque<Loaded>,
    /// The offsets that were delivered to the subscriber.
    given: usize,
}

impl World {
    fn new() -> Self {
        let options = ChannelOptions {
            history_size: 1_000,
            history_ttl: Duration::from_secs(600),
            force_recovery: true,
            durable: true,
            ..ChannelOptions::default()
        };
        let settings = ChannelSettings { without_namespace: options, ..ChannelSettings::default() };
        let channels = Channels::new(Arc::new(Namespaces::new(settings)), 1, 7, HashSeed::repeatable(7)).with_store();
        let (stored, told, asked, read) = Default::default();
        let mut world = World { channels, name: "a".into(), stored, told, asked, read, given: 0 };
        let connection = ConnectionId { shard: 0, slot: 1, generation: 1 };
        let Submitted::Wait(request) =
            world.submit(ChannelRequest::Subscribe(Box::new(Subscribe { connection, recover: None })))
        else {
            panic!("nothing is known of the channel yet");
        };
        world.take(Step::Read);
        world.take(Step::Answer);
        assert!(matches!(world.submit(request), Submitted::Done(Response::Subscribed(_))));
        world
    }

    fn submit(&mut self, request: impl Into<WaitingRequest>) -> Submitted {
        let outcome = self.channels.submit(&self.name, request, NOW_MS);
        self.collect();
        outcome
    }

    fn apply(&mut self, event: BackendEvent) {
        self.channels.apply(&self.name, event, NOW_MS);
        self.collect();
    }

    fn collect(&mut self) {
        for act in self.channels.backend_commands() {
            let BackendCommand::LoadStored { load: LoadId { behind, number }, .. } = act else { panic!("{act:?}") };
            self.asked.push_back((behind.0, number));
        }
        let given = self.channels.deliveries();
        self.given += given
            .into_iter()
            .filter(|(_, delivery)| matches!(delivery.event, ChannelEvent::Publication { .. }))
            .count();
    }

    /// Takes a step. Returns false if there is nothing to do for it.
    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Store => {
                let content = Content { data: Bytes::from_static(b"1"), ..Content::default() };
                let publish = ChannelRequest::Publish(Box::new(Publish { content, ..Publish::default() }));
                let Submitted::Store(storing) = self.submit(publish) else { panic!("the store keeps it") };
                let offset = self.stored.len() as u64 + 1;
                self.stored.push((Offset(offset), storing.payload.into()));
                self.told.push_back(offset);
                true
            }
            Step::Tell => self
                .told
                .pop_front()
                .map(|top| {
                    self.apply(BackendEvent::Advanced(StreamPosition {
                        offset: Offset(top),
                        epoch: Epoch::from_bits(7),
                    }))
                })
                .is_some(),
            Step::Read => {
                let Some((behind, number)) = self.asked.pop_front() else { return false };
                let kept = self.stored.iter().filter(|(offset, _)| offset.0 > behind).cloned().collect();
                let top = self.stored.len() as u64;
                let runs = Runs::default();
                self.read.push_back(Loaded {
                    epoch: Epoch::from_bits(7),
                    behind: Offset(behind),
                    number,
                    kept,
                    top: Offset(top),
                    floor: Offset(behind),
                    is_aged: false,
                    runs,
                });
                true
            }
            Step::Answer => {
                self.read.pop_front().map(|loaded| self.apply(BackendEvent::Loaded(Some(Box::new(loaded))))).is_some()
            }
        }
    }

    /// Lets everything arrive that is under way.
    fn settle(&mut self) {
        while self.take(Step::Tell) || self.take(Step::Read) || self.take(Step::Answer) {}
    }

    fn top(&mut self) -> u64 {
        match self.submit(ChannelRequest::History(Box::default())) {
            Submitted::Done(Response::History { position, .. }) => position.offset.0,
            other => panic!("{other:?}"),
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        prop_oneof![3 => Just(Step::Store), 3 => Just(Step::Tell), 2 => Just(Step::Read), 2 => Just(Step::Answer)];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn a_cache_ends_with_all_that_was_stored(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.settle();
        prop_assert_eq!(world.top(), world.stored.len() as u64);
        prop_assert_eq!(world.given, world.stored.len());
    }
}

#[test]
fn what_is_told_while_an_earlier_reading_is_under_way_is_asked_for() {
    let mut world = World::new();
    for step in [Step::Store, Step::Tell, Step::Read, Step::Store, Step::Tell, Step::Answer] {
        assert!(world.take(step));
    }
    world.settle();
    assert_eq!((world.top(), world.given), (2, 2));
}
