//! One home, and its output as lines of text.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use touchline_engine::channels::{BackendCommand, DurablePublication, Submitted};
use touchline_engine::request::{
    Appended, BackendEvent, ChannelEvent, ClientPosition, History, Loaded, Publish, Recover, Subscribe, WaitingRequest,
};
use touchline_engine::{
    ChannelOptions, ChannelRequest, ChannelSettings, Channels, ConnectionId, Namespace, Namespaces, RecoveryMode,
    Response,
};
use touchline_protocol::publication::Content;
use touchline_protocol::stream::{
    ChannelName, Epoch, LoadId, Offset, Retention, Run, RunId, RunStart, Runs, StreamPosition,
};
use touchline_registry::HashSeed;

pub(crate) const START_MS: u64 = 1_000_000;
/// The seed of all homes, and the first epoch that it gives (SplitMix64, whose first three numbers for this seed are
/// published).
pub(crate) const SEED: u64 = 1_234_567;
pub(crate) const EPOCHS: [&str; 3] = ["feFrqDFc", "fDdifmrq", "xdFeFrwC"];

pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) channels: Channels,
    /// The requests that wait until their channel is live, in order.
    waiting: VecDeque<(ChannelName, WaitingRequest)>,
    /// The number of the last requested load.
    asked: u64,
}

/// Options of a channel that keeps the last five publications for a minute.
pub(crate) fn history() -> ChannelOptions {
    ChannelOptions { history_size: 5, history_ttl: Duration::from_secs(60), ..ChannelOptions::default() }
}

/// The epoch of logs in a cluster or a store.
pub(crate) fn epoch() -> Epoch {
    Epoch::from_bits(7)
}

pub(crate) fn connection(shard: u16, slot: u32) -> ConnectionId {
    ConnectionId { shard, slot, generation: 1 }
}

pub(crate) fn subscribe(slot: u32) -> ChannelRequest {
    ChannelRequest::Subscribe(Box::new(Subscribe { connection: connection(0, slot), recover: None }))
}

/// A subscribe from a client that has everything up to an offset.
pub(crate) fn recover(slot: u32, offset: u64, epoch: &str) -> ChannelRequest {
    recover_with(
        slot,
        Recover {
            offset: Offset(offset),
            epoch: epoch.into(),
            mode: RecoveryMode::Stream,
            limit: 100,
            size_max: usize::MAX,
        },
    )
}

pub(crate) fn recover_with(slot: u32, recover: Recover) -> ChannelRequest {
    ChannelRequest::Subscribe(Box::new(Subscribe { connection: connection(0, slot), recover: Some(recover) }))
}

pub(crate) fn unsubscribe(slot: u32) -> ChannelRequest {
    ChannelRequest::Unsubscribe { connection: connection(0, slot), is_answered: true }
}

/// An unsubscribe that a session sends before it knows the outcome of its subscribe.
pub(crate) fn give_up(slot: u32) -> ChannelRequest {
    ChannelRequest::Unsubscribe { connection: connection(0, slot), is_answered: false }
}

pub(crate) fn publish(data: u32) -> ChannelRequest {
    publish_with(data, |_| {})
}

pub(crate) fn publish_with(data: u32, change: impl FnOnce(&mut Publish)) -> ChannelRequest {
    let content = Content { data: data.to_string().into(), ..Content::default() };
    let mut publish = Publish { content, ..Publish::default() };
    change(&mut publish);
    ChannelRequest::Publish(Box::new(publish))
}

pub(crate) fn read(since: Option<(u64, &str)>) -> ChannelRequest {
    ChannelRequest::History(Box::new(History {
        since: since.map(|(offset, epoch)| ClientPosition { offset: Offset(offset), epoch: epoch.into() }),
        ..History::default()
    }))
}

/// The payload that other nodes have stored: `{"data":OFFSET}`.
pub(crate) fn payload(offset: u64, time_ms: u64) -> Bytes {
    DurablePublication::payload(time_ms, format!(r#"{{"data":{offset}}}"#).as_bytes())
}

pub(crate) fn stored(previous: u64, offset: u64) -> BackendEvent {
    BackendEvent::Appended(Appended {
        offset: Offset(offset),
        previous: Offset(previous),
        epoch: None,
        payload: payload(offset, START_MS),
    })
}

/// Builds runs from their numbers and ids, and from where they begin in the channel.
pub(crate) fn runs(known: &[(u64, u64)], first: &[(u64, u64)]) -> Runs {
    let known = known.iter().map(|&(number, id)| Run { number, id: RunId(id) }).collect();
    let first = first.iter().map(|&(number, first)| RunStart { number, first: Offset(first) }).collect();
    Runs { known, first }
}

/// The log after an offset and up to another, as the log backend has it after all requested loads.
pub(crate) fn loaded(behind: u64, top: u64) -> Loaded {
    let kept = (behind + 1..=top).map(|offset| (Offset(offset), payload(offset, START_MS))).collect();
    Loaded {
        epoch: epoch(),
        behind: Offset(behind),
        number: u64::MAX,
        kept,
        top: Offset(top),
        floor: Offset(behind),
        is_aged: false,
        runs: Runs::default(),
    }
}

/// A report that other nodes have published in a channel of the same epoch, up to an offset.
pub(crate) fn grown(top: u64) -> BackendEvent {
    BackendEvent::Advanced(StreamPosition { offset: Offset(top), epoch: epoch() })
}

pub(crate) fn load(loaded: Loaded) -> BackendEvent {
    BackendEvent::Loaded(Some(Box::new(loaded)))
}

/// An input of a home.
pub(crate) enum Input {
    Request(WaitingRequest),
    Event(BackendEvent),
}

impl From<ChannelRequest> for Input {
    fn from(request: ChannelRequest) -> Self {
        Input::Request(request.into())
    }
}

impl From<BackendEvent> for Input {
    fn from(event: BackendEvent) -> Self {
        Input::Event(event)
    }
}

impl World {
    /// A home that keeps all channels in memory.
    pub(crate) fn alone(options: ChannelOptions) -> Self {
        World::with(options, 1, |_| {}, |channels| channels)
    }

    /// A home in a cluster that is linked.
    pub(crate) fn in_cluster(options: ChannelOptions) -> Self {
        let mut world = World::with(options, 1, |_| {}, Channels::in_cluster);
        world.channels.set_linked(true, START_MS);
        world
    }

    /// A home with a store for durable channels.
    pub(crate) fn with_store(options: ChannelOptions) -> Self {
        World::with(ChannelOptions { durable: true, ..options }, 1, |_| {}, Channels::with_store)
    }

    /// A home whose channels without a namespace have these options. Channels of the namespace `plain` keep nothing.
    pub(crate) fn with(
        options: ChannelOptions,
        shards: usize,
        change: impl FnOnce(&mut ChannelSettings),
        more: impl FnOnce(Channels) -> Channels,
    ) -> Self {
        let plain = Namespace { name: "plain".into(), options: ChannelOptions::default() };
        let kept = Namespace { name: "kept".into(), options: ChannelOptions { durable: false, ..history() } };
        let mut settings =
            ChannelSettings { without_namespace: options, namespaces: vec![plain, kept], ..ChannelSettings::default() };
        change(&mut settings);
        let channels = more(Channels::new(Arc::new(Namespaces::new(settings)), shards, SEED, HashSeed::repeatable(7)));
        World { now_ms: START_MS, channels, waiting: VecDeque::new(), asked: 0 }
    }

    /// Submits a request to the channel `a`, or a report about it. Returns all output.
    pub(crate) fn submit(&mut self, input: impl Into<Input>) -> Vec<String> {
        self.submit_to("a", input)
    }

    pub(crate) fn submit_to(&mut self, channel: &str, input: impl Into<Input>) -> Vec<String> {
        let mut lines = Vec::new();
        match input.into() {
            Input::Request(request) => self.take(&channel.into(), request, &mut lines),
            Input::Event(event) => self.channels.apply(&channel.into(), event, self.now_ms),
        }
        self.settle(lines)
    }

    /// Returns what still has to be done.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        self.settle(Vec::new())
    }

    /// Establishes or cuts the link to the cluster.
    pub(crate) fn link(&mut self, is_linked: bool) -> Vec<String> {
        self.channels.set_linked(is_linked, self.now_ms);
        self.rest()
    }

    /// Lets time pass, and what has expired is dropped.
    pub(crate) fn pass(&mut self, ms: u64) -> Vec<String> {
        self.now_ms += ms;
        self.channels.expire(self.now_ms);
        self.rest()
    }

    /// Does the same as a shard: first the reply, then deliveries and commands to backends, then the waiting requests
    /// that are ready.
    fn settle(&mut self, mut lines: Vec<String>) -> Vec<String> {
        loop {
            lines.extend(self.channels.deliveries().map(|(shard, delivery)| {
                let event = match delivery.event {
                    ChannelEvent::Publication { publication, previous } => {
                        let previous = previous
                            .map(|previous| format!(", a change of {}", data(previous.json())))
                            .unwrap_or_default();
                        format!("{} at {}{previous}", data(publication.json()), publication.offset)
                    }
                    ChannelEvent::Membership(push) => String::from_utf8_lossy(push.json()).into_owned(),
                    ChannelEvent::Broken => "broken".into(),
                };
                format!("to shard {shard}, {} of {}: {event}", delivery.channel, delivery.subscriber_count)
            }));
            for (done, number) in self.channels.backend_commands().into_iter().map(act) {
                assert!(
                    number.is_none_or(|number| number == self.asked + 1),
                    "loads are numbered in their order: {done}"
                );
                self.asked = number.unwrap_or(self.asked);
                lines.push(done);
            }
            let ready = self.channels.take_ready();
            if ready.is_empty() {
                return lines;
            }
            for (channel, request) in std::mem::take(&mut self.waiting) {
                if ready.contains(&channel) {
                    self.take(&channel, request, &mut lines);
                } else {
                    self.waiting.push_back((channel, request));
                }
            }
        }
    }

    fn take(&mut self, channel: &ChannelName, request: WaitingRequest, lines: &mut Vec<String>) {
        match self.channels.submit(channel, request, self.now_ms) {
            Submitted::Done(response) => lines.push(answer(response)),
            Submitted::Wait(request) => {
                self.waiting.push_back((channel.clone(), request));
                lines.push("waits".into());
            }
            Submitted::Append { namespace, payload, idempotency_key: key } => {
                lines.push(format!("the cluster keeps in {namespace:?}, key {key:?}: {}", object(&payload)));
            }
            Submitted::Purge(namespace) => lines.push(format!("the cluster removes of {namespace:?}")),
            Submitted::Store(DurablePublication {
                payload,
                time_ms,
                idempotency_key,
                version,
                version_epoch,
                retention: Retention { size, ttl_ms, meta_ttl_ms },
            }) => {
                let version = format!("version {version} of {version_epoch:?}");
                let kept = format!("{size} for {ttl_ms} and {meta_ttl_ms} ms");
                lines.push(format!(
                    "the store keeps {kept}, at {time_ms}, key {idempotency_key:?}, {version}: {}",
                    object(&payload)
                ));
            }
            Submitted::Remove => lines.push("the store removes".into()),
        }
    }
}

/// The text of a command, and the number of its load.
fn act(act: BackendCommand) -> (String, Option<u64>) {
    let done = match &act {
        BackendCommand::SetInterest { channel, is_wanted: true } => format!("follow {channel}"),
        BackendCommand::SetInterest { channel, is_wanted: false } => format!("follow {channel} no more"),
        BackendCommand::Load { channel, namespace, load: LoadId { behind, .. } } => {
            format!("load {channel} of {namespace:?} behind {behind}")
        }
        BackendCommand::Check { channel, namespace, load: LoadId { behind, .. } } => {
            format!("check {channel} of {namespace:?} behind {behind}")
        }
        BackendCommand::LoadStored { channel, load: LoadId { behind, .. } } => {
            format!("load {channel} behind {behind}")
        }
        BackendCommand::Broadcast { channel, payload } => format!("pass on in {channel}: {}", object(payload)),
        BackendCommand::BeginRun { channel, lost: run, first } => {
            format!("{channel} was set back in run {} from {first} on", run.0)
        }
        BackendCommand::BeginStreamRun { namespace, lost: run } => {
            format!("the stream of {namespace:?} was set back in run {}", run.0)
        }
        BackendCommand::Unreadable { channel, unreadable } => {
            format!("{channel} has a payload of format {}", unreadable.format)
        }
    };
    let number = match act {
        BackendCommand::Load { load, .. }
        | BackendCommand::Check { load, .. }
        | BackendCommand::LoadStored { load, .. } => Some(load.number),
        _ => None,
    };
    (done, number)
}

fn answer(response: Response) -> String {
    match response {
        Response::Subscribed(subscribed) => {
            let at = position(&subscribed.position);
            let recovered = match subscribed.recovered {
                None => String::new(),
                Some(None) => ", nothing recovered".into(),
                Some(Some(found)) => {
                    format!(", recovered {:?}", found.iter().map(|found| found.offset.0).collect::<Vec<_>>())
                }
            };
            format!("subscribed{at}{recovered}{}", if subscribed.is_denied { ", denied" } else { "" })
        }
        Response::Published(None) => "published".into(),
        Response::Published(Some(at)) => format!("published{}", position(&at)),
        Response::History { publications, position: at } => {
            format!(
                "history {:?}{}",
                publications.iter().map(|found| found.offset.0).collect::<Vec<_>>(),
                position(&at)
            )
        }
        Response::Done => "done".into(),
        Response::Refused(error) => format!("refused: {} {}", error.code, error.message),
        Response::Directory(_) => panic!("the directory answers so"),
    }
}

fn position(position: &touchline_protocol::stream::StreamPosition) -> String {
    match position.epoch.as_str() {
        "" => String::new(),
        epoch => format!(" at {} of {epoch}", position.offset),
    }
}

/// The data of a publication's JSON object.
fn data(json: &[u8]) -> String {
    serde_json::from_slice::<serde_json::Value>(json).expect("JSON")["data"].to_string()
}

/// The object in a payload.
fn object(payload: &[u8]) -> String {
    let begin = payload.iter().position(|byte| *byte == b'{').unwrap_or(payload.len());
    String::from_utf8_lossy(&payload[begin..]).into_owned()
}
