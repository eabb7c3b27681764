//! A simulated NATS server for the links of some nodes: core messages, pings and reconnects as the client makes them.
//! A link may freeze, be cut in one direction, lose messages, be slow, or be refused. Nothing happens between two
//! steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::stream::Config;
use async_nats::message::OutboundMessage;
use async_nats::{Event, HeaderMap, Message, ServerInfo, Statistics};
use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use touchline_lock::{Lock, LockGuard};
use touchline_testkit::seeds::SeededRandom;

use super::streams::SimulatedStreams;
use crate::nats::StreamInfo;
use crate::time::timeout;

/// The number of messages in the queue of the client, as in `options.rs`.
const CLIENT_QUEUE: usize = 16;
/// The number of messages that sockets hold while the server does not read.
const SOCKET: usize = 64;
/// The longest time that a message needs to a client, milliseconds.
const LATENCY_MS: u64 = 8;
/// After this many unanswered pings the client gives up the connection.
const PINGS: u32 = 2;

/// What is wrong with a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LinkFault {
    /// The server reads nothing from the client.
    pub(crate) is_out_blocked: bool,
    /// The client receives nothing from the server.
    pub(crate) is_in_blocked: bool,
    /// The connection is closed and new ones are refused.
    pub(crate) is_refused: bool,
    /// The percentage of messages that the server drops instead of sending them to the client.
    pub(crate) drops: u64,
    /// The number of messages that the server reads in a step; 0 = all.
    pub(crate) reads: usize,
    /// JetStream does not answer over this link.
    pub(crate) is_without_streams: bool,
}

type RequestWork = Box<dyn FnOnce(&mut SimulatedStreams) -> ReplyWork + Send>;
type ReplyWork = Box<dyn FnOnce() + Send>;

/// What a client writes.
enum ClientFrame {
    Subscribe(u64),
    Unsubscribe(u64),
    Publish { message: Message, no_responders: Option<oneshot::Sender<()>> },
    Ping,
    Flush(oneshot::Sender<()>),
    Request(RequestWork),
}

/// What the server sends.
enum ServerFrame {
    Message(u64, Message),
    Reply(ReplyWork),
    Pong,
}

#[derive(Default)]
struct Link {
    fault: LinkFault,
    is_up: bool,
    statistics: Arc<Statistics>,
    events: Option<UnboundedSender<Event>>,
    queue: VecDeque<ClientFrame>,
    wakers: Vec<Waker>,
    socket: VecDeque<ClientFrame>,
    /// The subscriptions that the client has, with the subject of each.
    subscriptions: BTreeMap<u64, (String, UnboundedSender<Message>)>,
    /// The subscriptions that the server knows.
    registered: BTreeSet<u64>,
    sent: VecDeque<(u64, ServerFrame)>,
    pings: u32,
    ping_ms: u64,
    attempts: u64,
    retry_ms: u64,
}

/// The server and all links.
pub(crate) struct NatsState {
    pub(crate) now_ms: u64,
    pub(crate) random: SeededRandom,
    pub(crate) streams: SimulatedStreams,
    links: Vec<Link>,
    /// From which node to which no message passes.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    ping_interval_ms: u64,
    next_id: u64,
}

#[derive(Clone)]
pub(crate) struct SimulatedNats(Arc<Lock<NatsState>>);

impl SimulatedNats {
    pub(crate) fn new(seed: u64, nodes: usize, ping_interval_ms: u64) -> Self {
        SimulatedNats(Arc::new(Lock::new(NatsState {
            now_ms: 0,
            random: SeededRandom::new(seed),
            streams: SimulatedStreams::default(),
            links: (0..nodes).map(|_| Link::default()).collect(),
            cut: BTreeSet::new(),
            ping_interval_ms,
            next_id: 0,
        })))
    }

    pub(crate) fn client(&self, link: usize) -> SimulatedClient {
        SimulatedClient { nats: self.clone(), link }
    }

    pub(crate) fn state(&self) -> LockGuard<'_, NatsState> {
        self.0.lock()
    }
}

impl NatsState {
    pub(crate) fn set_fault(&mut self, link: usize, fault: LinkFault) {
        self.links[link].fault = fault;
        if fault.is_refused && self.links[link].is_up {
            self.lose(link);
        }
    }

    /// Whether the client believes that the connection is up.
    pub(crate) fn is_up(&self, link: usize) -> bool {
        self.links[link].is_up
    }

    /// Removes a node whose process has ended.
    pub(crate) fn remove(&mut self, link: usize) {
        let fault = self.links[link].fault;
        self.links[link] = Link { fault, ..Link::default() };
    }

    /// Everything that happens up to a time.
    pub(crate) fn step(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        for link in 0..self.links.len() {
            self.step_client(link);
            self.step_server(link);
        }
        for link in 0..self.links.len() {
            self.deliver(link);
        }
    }

    fn step_client(&mut self, at: usize) {
        let (now_ms, interval) = (self.now_ms, self.ping_interval_ms);
        let link = &mut self.links[at];
        if link.events.is_none() {
            return;
        }
        if !link.is_up {
            let LinkFault { is_out_blocked, is_in_blocked, is_refused, .. } = link.fault;
            if now_ms >= link.retry_ms && !is_out_blocked && !is_in_blocked && !is_refused {
                link.is_up = true;
                (link.attempts, link.pings, link.ping_ms) = (0, 0, now_ms + interval);
                link.registered = link.subscriptions.keys().copied().collect();
                link.statistics.connects.fetch_add(1, Relaxed);
                link.events.iter().for_each(|events| drop(events.send(Event::Connected)));
            } else if now_ms >= link.retry_ms {
                link.attempts += 1;
                link.retry_ms = now_ms + (link.attempts * 50).min(1_000);
            }
            return;
        }
        if now_ms >= link.ping_ms {
            link.ping_ms += interval;
            if link.pings >= PINGS {
                return self.lose(at);
            }
            link.pings += 1;
            if link.socket.len() < SOCKET {
                link.socket.push_back(ClientFrame::Ping);
            }
        }
        while link.socket.len() < SOCKET
            && let Some(next) = link.queue.pop_front()
        {
            link.socket.push_back(next);
        }
        if link.queue.len() < CLIENT_QUEUE {
            link.wakers.drain(..).for_each(Waker::wake);
        }
    }

    /// The client gives the connection up, or learns that it is closed.
    fn lose(&mut self, at: usize) {
        let link = &mut self.links[at];
        link.is_up = false;
        link.socket.clear();
        link.sent.clear();
        link.registered.clear();
        link.retry_ms = self.now_ms;
        link.events.iter().for_each(|events| drop(events.send(Event::Disconnected)));
    }

    fn step_server(&mut self, at: usize) {
        let fault = self.links[at].fault;
        if !self.links[at].is_up || fault.is_out_blocked {
            return;
        }
        let many = if fault.reads == 0 { usize::MAX } else { fault.reads };
        for _ in 0..many {
            let Some(next) = self.links[at].socket.pop_front() else { break };
            match next {
                ClientFrame::Subscribe(id) => drop(self.links[at].registered.insert(id)),
                ClientFrame::Unsubscribe(id) => drop(self.links[at].registered.remove(&id)),
                ClientFrame::Ping => self.send(at, ServerFrame::Pong),
                ClientFrame::Flush(done) => self.send(
                    at,
                    ServerFrame::Reply(Box::new(move || {
                        let _ = done.send(());
                    })),
                ),
                ClientFrame::Publish { message, no_responders } => {
                    if !self.route(Some(at), &message)
                        && let Some(done) = no_responders
                    {
                        self.send(
                            at,
                            ServerFrame::Reply(Box::new(move || {
                                let _ = done.send(());
                            })),
                        );
                    }
                }
                ClientFrame::Request(run) if fault.is_without_streams || self.streams.is_away => drop(run),
                ClientFrame::Request(run) => {
                    let reply = run(&mut self.streams);
                    for message in std::mem::take(&mut self.streams.republished) {
                        self.route(None, &message);
                        // A route that breaks after it has carried a message carries it again.
                        if self.random.chance(self.streams.doubles) {
                            self.route(None, &message);
                        }
                    }
                    let is_silent = std::mem::take(&mut self.streams.is_silent);
                    if !is_silent && !self.random.chance(self.streams.loses_replies) {
                        self.send(at, ServerFrame::Reply(reply));
                    }
                }
            }
        }
    }

    /// Sends a message to all subscriptions of its subject. False = there is none.
    fn route(&mut self, from: Option<usize>, message: &Message) -> bool {
        let mut is_heard = false;
        for to in 0..self.links.len() {
            let link = &self.links[to];
            let known = link.registered.iter().filter_map(|id| Some((*id, &link.subscriptions.get(id)?.0)));
            let heard: Vec<u64> = known.filter(|(_, of)| matches(of, &message.subject)).map(|(id, _)| id).collect();
            is_heard |= !heard.is_empty();
            for id in heard {
                let is_cut = from.is_some_and(|from| self.cut.contains(&(from, to)));
                if !is_cut && !self.random.chance(self.links[to].fault.drops) {
                    self.send(to, ServerFrame::Message(id, message.clone()));
                }
            }
        }
        is_heard
    }

    fn send(&mut self, to: usize, sent: ServerFrame) {
        let at_ms = self.now_ms + 1 + self.random.below(LATENCY_MS);
        let link = &mut self.links[to];
        let at_ms = link.sent.back().map_or(at_ms, |(last, _)| at_ms.max(*last));
        link.sent.push_back((at_ms, sent));
    }

    fn deliver(&mut self, at: usize) {
        let now_ms = self.now_ms;
        let link = &mut self.links[at];
        if !link.is_up || link.fault.is_in_blocked {
            return;
        }
        while let Some((_, sent)) = link.sent.pop_front_if(|(at_ms, _)| *at_ms <= now_ms) {
            match sent {
                ServerFrame::Pong => link.pings = 0,
                ServerFrame::Reply(reply) => reply(),
                ServerFrame::Message(id, message) => {
                    if let Some((_, messages)) = link.subscriptions.get(&id) {
                        let _ = messages.send(message);
                    }
                }
            }
        }
    }
}

/// Whether a subject matches the subject of a subscription, which may contain `*` and end with `>`.
pub(super) fn matches(of: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for wanted in of.split('.') {
        match (wanted, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

/// The client of one node.
#[derive(Clone)]
pub(crate) struct SimulatedClient {
    nats: SimulatedNats,
    link: usize,
}

pub(crate) struct SimulatedSubscription {
    id: u64,
    client: SimulatedClient,
    messages: UnboundedReceiver<Message>,
}

impl SimulatedSubscription {
    pub(crate) async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await
    }
}

impl Drop for SimulatedSubscription {
    fn drop(&mut self) {
        let mut state = self.client.nats.state();
        let link = &mut state.links[self.client.link];
        if link.subscriptions.remove(&self.id).is_some() && link.is_up {
            link.socket.push_back(ClientFrame::Unsubscribe(self.id));
        }
    }
}

pub(crate) struct SimulatedAcknowledgement {
    reply: oneshot::Receiver<Result<PublishAck, PublishErrorKind>>,
    timeout: Duration,
}

impl SimulatedAcknowledgement {
    pub(crate) async fn wait(self) -> Result<PublishAck, PublishError> {
        match timeout(self.timeout, or_never(self.reply)).await {
            Ok(acknowledged) => acknowledged.map_err(PublishError::from),
            Err(_) => Err(PublishErrorKind::TimedOut.into()),
        }
    }
}

/// A reply that is lost never comes.
async fn or_never<T>(reply: oneshot::Receiver<T>) -> T {
    match reply.await {
        Ok(reply) => reply,
        Err(_) => pending().await,
    }
}

impl SimulatedClient {
    pub(crate) fn connect(&self, events: UnboundedSender<Event>) {
        self.nats.state().links[self.link].events = Some(events);
    }

    pub(crate) fn is_up(&self) -> bool {
        self.nats.state().is_up(self.link)
    }

    pub(crate) fn statistics(&self) -> Arc<Statistics> {
        Arc::clone(&self.nats.state().links[self.link].statistics)
    }

    pub(crate) fn server_info(&self) -> ServerInfo {
        ServerInfo { version: "2.10.27".into(), max_payload: 1 << 20, jetstream: true, ..ServerInfo::default() }
    }

    pub(crate) fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.nats.state();
        let link = &mut state.links[self.link];
        if link.queue.len() < CLIENT_QUEUE {
            return Poll::Ready(());
        }
        link.wakers.push(context.waker().clone());
        Poll::Pending
    }

    fn write(&self, written: ClientFrame) {
        self.nats.state().links[self.link].queue.push_back(written);
    }

    async fn write_next(&self, written: ClientFrame) {
        poll_fn(|context| self.poll_ready(context)).await;
        self.write(written);
    }

    pub(crate) fn start_send(&self, OutboundMessage { subject, payload, reply, headers }: OutboundMessage) {
        self.write(ClientFrame::Publish {
            message: message(&subject, reply.as_deref(), headers, payload),
            no_responders: None,
        });
    }

    pub(crate) async fn publish_with_reply(&self, subject: String, reply: String, payload: Bytes) -> bool {
        let message = message(&subject, Some(&reply), None, payload);
        self.write_next(ClientFrame::Publish { message, no_responders: None }).await;
        true
    }

    pub(crate) async fn subscribe(&self, subject: String) -> Option<SimulatedSubscription> {
        poll_fn(|context| self.poll_ready(context)).await;
        let (sender, messages) = unbounded_channel();
        let mut state = self.nats.state();
        state.next_id += 1;
        let id = state.next_id;
        let link = &mut state.links[self.link];
        link.subscriptions.insert(id, (subject, sender));
        link.queue.push_back(ClientFrame::Subscribe(id));
        Some(SimulatedSubscription { id, client: self.clone(), messages })
    }

    pub(crate) async fn flush(&self) -> bool {
        let (sender, done) = oneshot::channel();
        self.write_next(ClientFrame::Flush(sender)).await;
        or_never(done).await;
        true
    }

    pub(crate) fn new_inbox(&self) -> String {
        let mut state = self.nats.state();
        state.next_id += 1;
        format!("_INBOX.{}", state.next_id)
    }

    pub(crate) async fn probe(&self, subject: String, limit: Duration) -> Option<bool> {
        let inbox = self.new_inbox();
        let (sender, nobody) = oneshot::channel();
        let probe = async {
            let mut replies = self.subscribe(inbox.clone()).await?;
            let message = message(&subject, Some(&inbox), None, Bytes::new());
            self.write_next(ClientFrame::Publish { message, no_responders: Some(sender) }).await;
            tokio::select! {
                biased;
                _ = replies.next() => Some(true),
                () = or_never(nobody) => Some(false),
            }
        };
        timeout(limit, probe).await.ok().flatten()
    }

    /// Runs a request on the server. `None` = no reply in time.
    async fn request<T: Send + 'static>(
        &self,
        limit: Duration,
        run: impl FnOnce(&mut SimulatedStreams) -> T + Send + 'static,
    ) -> Option<T> {
        let request = async { or_never(self.send(run).await).await };
        timeout(limit, request).await.ok()
    }

    async fn send<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut SimulatedStreams) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, reply) = oneshot::channel();
        let run = move |streams: &mut SimulatedStreams| -> ReplyWork {
            let result = run(streams);
            Box::new(move || drop(sender.send(result)))
        };
        self.write_next(ClientFrame::Request(Box::new(run))).await;
        reply
    }

    pub(crate) async fn append(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
        timeout: Duration,
    ) -> SimulatedAcknowledgement {
        let now_ms = self.nats.state().now_ms;
        let append = move |streams: &mut SimulatedStreams| streams.append(&subject, headers, payload, now_ms);
        SimulatedAcknowledgement { reply: self.send(append).await, timeout }
    }

    pub(crate) async fn stream_info(&self, name: &str, limit: Duration) -> Option<Option<StreamInfo>> {
        let name = name.to_owned();
        self.request(limit, move |streams| streams.info(&name)).await
    }

    pub(crate) async fn create_stream(&self, config: Config, limit: Duration) -> Option<()> {
        self.request(limit, move |streams| streams.create(config)).await
    }

    pub(crate) async fn update_stream(&self, config: Config, limit: Duration) -> Option<()> {
        self.request(limit, move |streams| streams.update(config)).await
    }

    pub(crate) async fn read_replica(
        &self,
        name: &str,
        subject: &str,
        from: u64,
        limit: Duration,
    ) -> Option<Option<StreamMessage>> {
        let (name, subject) = (name.to_owned(), subject.to_owned());
        let lag = {
            let mut state = self.nats.state();
            if state.streams.lags && state.random.chance(30) { state.random.below(6) } else { 0 }
        };
        self.request(limit, move |streams| streams.first(&name, &subject, from, lag)).await
    }

    pub(crate) async fn read_first(
        &self,
        name: &str,
        subject: &str,
        from: u64,
        limit: Duration,
    ) -> Option<Option<StreamMessage>> {
        let (name, subject) = (name.to_owned(), subject.to_owned());
        self.request(limit, move |streams| streams.first(&name, &subject, from, 0)).await
    }

    pub(crate) async fn read_last(&self, name: &str, subject: &str, limit: Duration) -> Option<Option<StreamMessage>> {
        let (name, subject) = (name.to_owned(), subject.to_owned());
        self.request(limit, move |streams| streams.last(&name, &subject)).await
    }

    pub(crate) async fn read_at(&self, name: &str, sequence: u64, limit: Duration) -> Option<Option<StreamMessage>> {
        let name = name.to_owned();
        self.request(limit, move |streams| streams.at(&name, sequence)).await
    }

    pub(crate) async fn read_end(&self, name: &str, subject: &str, limit: Duration) -> Option<Option<u64>> {
        let (name, subject) = (name.to_owned(), subject.to_owned());
        self.request(limit, move |streams| streams.end_without(&name, &subject)).await
    }

    pub(crate) async fn read_after(&self, name: &str, from: u64, limit: Duration) -> Option<Vec<StreamMessage>> {
        let name = name.to_owned();
        self.request(limit, move |streams| streams.after(&name, from)).await
    }

    pub(crate) async fn purge(&self, name: &str, subject: &str, before: u64, limit: Duration) -> Option<()> {
        let (name, subject) = (name.to_owned(), subject.to_owned());
        self.request(limit, move |streams| streams.purge(&name, &subject, before)).await
    }
}

fn message(subject: &str, reply: Option<&str>, headers: Option<HeaderMap>, payload: Bytes) -> Message {
    let length = payload.len();
    let (subject, reply) = (subject.into(), reply.map(Into::into));
    Message { subject, reply, payload, headers, status: None, description: None, length }
}
