//! A simulated database that all nodes share. It keeps the logs of durable channels. It freezes, is slow, fills up,
//! loses replies, and loses its notices to other nodes, which it says later.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use touchline_engine::request::{Appended, BackendEvent, Loaded};
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, Offset, Runs, StreamPosition};
use touchline_testkit::seeds::SeededRandom;

use super::world::SIZE;

/// The longest time that a request takes while nothing is wrong, milliseconds.
const LATENCY_MS: u64 = 30;
/// After this time a request fails, milliseconds. It may be executed nevertheless.
const LIMIT_MS: u64 = 5_000;

/// A request of a node to the database.
pub(super) enum StoreRequest {
    /// Appends a publication: the number of the request, and the payload.
    Append(u64, Bytes),
    Load(LoadId),
}

/// What the database reports to a node.
pub(super) enum StoreNotice {
    Event(ChannelName, BackendEvent),
    /// The result of an append: its offset, or `None` if it is not known.
    Appended(u64, Option<u64>),
    /// Notices may have been lost.
    Missed,
}

struct WaitingStoreRequest {
    node: u64,
    channel: ChannelName,
    at_ms: u64,
    fails_ms: u64,
    is_answered: bool,
    request: StoreRequest,
}

/// The database, with the requests that wait and the notices that are under way.
#[derive(Default)]
pub(super) struct SimulatedStore {
    logs: BTreeMap<ChannelName, Vec<Bytes>>,
    waiting: Vec<WaitingStoreRequest>,
    notices: VecDeque<(u64, u64, StoreNotice)>,
    pub(super) is_frozen: bool,
    pub(super) is_full: bool,
    /// The percentage of lost replies.
    pub(super) loses_replies: u64,
    /// The nodes that receive no notices now.
    pub(super) deaf: Vec<u64>,
}

impl SimulatedStore {
    pub(super) fn epoch() -> Epoch {
        Epoch::from_bits(9)
    }

    /// Everything that a channel has ever stored, beginning with offset 1.
    pub(super) fn log(&self, channel: &str) -> &[Bytes] {
        self.logs.get(channel).map_or(&[], Vec::as_slice)
    }

    pub(super) fn request(
        &mut self,
        node: u64,
        channel: ChannelName,
        request: StoreRequest,
        (now_ms, random): (u64, &mut SeededRandom),
    ) {
        let at_ms = now_ms + random.below(LATENCY_MS);
        let fails_ms = now_ms + LIMIT_MS;
        self.waiting.push(WaitingStoreRequest { node, channel, at_ms, fails_ms, is_answered: false, request });
    }

    /// A node is dead, so it receives nothing more. What it has requested may still be executed.
    pub(super) fn forget(&mut self, node: u64) {
        self.notices.retain(|(_, to, _)| *to != node);
        self.deaf.retain(|deaf| *deaf != node);
    }

    /// Notices reach a node again. It learns that some may be lost.
    pub(super) fn listen(&mut self, node: u64, now_ms: u64) {
        self.deaf.retain(|deaf| *deaf != node);
        self.notices.push_back((now_ms, node, StoreNotice::Missed));
    }

    /// Executes what is due. Returns the notices, in their order, with the number of the node.
    pub(super) fn step(&mut self, now_ms: u64, nodes: &[u64], random: &mut SeededRandom) -> Vec<(u64, StoreNotice)> {
        for request in self.waiting.iter_mut().filter(|request| !request.is_answered && request.fails_ms <= now_ms) {
            request.is_answered = true;
            let notice = match &request.request {
                StoreRequest::Append(number, _) => StoreNotice::Appended(*number, None),
                StoreRequest::Load(_) => StoreNotice::Event(request.channel.clone(), BackendEvent::Loaded(None)),
            };
            self.notices.push_back((now_ms, request.node, notice));
        }
        while !self.is_frozen
            && let Some(next) = self.waiting.iter().position(|request| request.at_ms <= now_ms)
        {
            let request = self.waiting.remove(next);
            self.run(request, (now_ms, nodes), random);
        }
        let mut due = Vec::new();
        self.notices.retain_mut(|(at_ms, node, notice)| {
            let is_due = *at_ms <= now_ms;
            if is_due {
                due.push((*node, std::mem::replace(notice, StoreNotice::Missed)));
            }
            !is_due
        });
        due
    }

    fn run(
        &mut self,
        WaitingStoreRequest { node, channel, is_answered, request, .. }: WaitingStoreRequest,
        (now_ms, nodes): (u64, &[u64]),
        random: &mut SeededRandom,
    ) {
        let reply = match request {
            StoreRequest::Load(load) => StoreNotice::Event(channel.clone(), self.load(&channel, load)),
            StoreRequest::Append(number, _) if self.is_full => StoreNotice::Appended(number, None),
            StoreRequest::Append(number, payload) => {
                let log = self.logs.entry(channel.clone()).or_default();
                log.push(payload.clone());
                let offset = Offset(log.len() as u64);
                let position = StreamPosition { offset, epoch: Self::epoch() };
                let epoch = Some(Self::epoch());
                let appended = Appended { offset, previous: offset.previous(), epoch, payload };
                for other in nodes.iter().filter(|other| **other != node && !self.deaf.contains(other)) {
                    let event = BackendEvent::Advanced(position);
                    let at_ms = now_ms + random.below(LATENCY_MS);
                    self.notices.push_back((at_ms, *other, StoreNotice::Event(channel.clone(), event)));
                }
                let event = StoreNotice::Event(channel.clone(), BackendEvent::Appended(appended));
                self.notices.push_back((now_ms, node, event));
                StoreNotice::Appended(number, Some(offset.0))
            }
        };
        if !is_answered {
            let is_lost = matches!(reply, StoreNotice::Appended(..)) && random.chance(self.loses_replies);
            let reply = match reply {
                StoreNotice::Appended(number, _) if is_lost => StoreNotice::Appended(number, None),
                reply => reply,
            };
            self.notices.push_back((now_ms, node, reply));
        }
    }

    fn load(&self, channel: &str, LoadId { behind, number }: LoadId) -> BackendEvent {
        let log = self.log(channel);
        let top = log.len() as u64;
        let floor = behind.0.max(top.saturating_sub(SIZE as u64)).min(top.max(behind.0));
        let kept = (floor + 1..=top).map(|offset| (Offset(offset), log[offset as usize - 1].clone())).collect();
        BackendEvent::Loaded(Some(Box::new(Loaded {
            epoch: Self::epoch(),
            behind,
            number,
            kept,
            top: Offset(top),
            floor: Offset(floor),
            is_aged: false,
            runs: Runs::default(),
        })))
    }
}
