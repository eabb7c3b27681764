//! The connection to NATS: what goes out, what comes in, and whether it is there.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, Message, ServerAddr, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};
use touchline_protocol::stream::{ChannelName, Offset};

use crate::gather::gather;
use crate::history::Streams;
use crate::link_log::LinkLog;
use crate::loader::{Checks, Loader, StreamLoad};
use crate::marks::Marks;
use crate::members::{Hello, Members, Step, Timing, VERSIONS};
use crate::pieces::split;
use crate::settings::Settings;
use crate::subject::{Subjects, name};
use crate::versions::{remedy, say_what_nats_keeps, warn_of_losses};
use crate::watch::Watch;
use crate::{ClusterCommand, ClusterEvent, StoredPublication};

/// Between two attempts to open the streams.
const RETRY: Duration = Duration::from_secs(1);
/// Hellos and answers to questions that wait. What does not fit is lost: each node says hello again at once.
const HEARD_MAX: usize = 4_096;
/// How long a read waits for streams that have to be looked at first; then it can't be had now.
const HOLD: Duration = Duration::from_secs(5);
/// Between two looks at who is there.
const LOOK: Duration = Duration::from_millis(50);
/// How long a node has to say that it is there. Whether it listens at all, NATS says at once.
const PROBE: Duration = Duration::from_millis(500);
/// Commands carried out before the server is asked whether it has heard them.
const BATCH: usize = 512;

/// Takes all that comes in.
pub(crate) type ClusterEventSink = Arc<dyn Fn(ClusterEvent) + Send + Sync>;

/// Serves until the node leaves.
pub(crate) async fn run(
    settings: Settings,
    (servers, options): (Vec<ServerAddr>, ConnectOptions),
    (mut outgoing, message_max): (UnboundedReceiver<ClusterCommand>, Arc<AtomicUsize>),
    hand: ClusterEventSink,
) {
    warn_of_losses(&settings);
    let (event_sender, mut events) = unbounded_channel();
    let options = options.event_callback(move |event| {
        let _ = event_sender.send(event);
        std::future::ready(())
    });
    let client = match options.connect(servers).await {
        Ok(client) => client,
        Err(error) => return tracing::error!(%error, "the cluster could not be joined"),
    };
    let (echo_sender, mut echoes) = unbounded_channel();
    let (heard_sender, mut heard) = channel(HEARD_MAX);
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut node = ConnectedNode::new(client, settings, hand, echo_sender, heard_sender);
    let gone = Arc::clone(&node.gone);
    if let Err(error) = node.subscribe_all().await {
        return tracing::error!(%error, "the cluster could not be joined");
    }
    let (stream_sender, mut opened) = unbounded_channel();
    loop {
        // The client knows it a moment after it says that it is connected; heartbeats bring this loop here again.
        message_max.store(node.client.max_payload(), Relaxed);
        tokio::select! {
            Some(event) = events.recv() => node.on_event(&event, &stream_sender).await,
            Some(opened) = opened.recv() => node.on_streams(opened, &stream_sender),
            () = gone.notified() => node.open_streams(stream_sender.clone()),
            Some(heard) = heard.recv() => node.on_heard(heard).await,
            _ = looks.tick() => node.look().await,
            Some(number) = echoes.recv() => node.on_echo(number),
            received = outgoing.recv() => {
                let Some(first) = received else { return };
                let mut next = Some(first);
                for _ in 0..BATCH {
                    let Some(command) = next.take() else { break };
                    if let ClusterCommand::Leave { done } = command {
                        node.say_hello(true).await;
                        let _ = tokio::time::timeout(RETRY, node.client.flush()).await;
                        let _ = done.send(());
                        return;
                    }
                    node.carry_out(command).await;
                    next = outgoing.try_recv().ok();
                }
                if let Some(command) = next {
                    node.carry_out(command).await;
                }
                node.ask_echo().await;
            }
        }
    }
}

/// The streams, and who works with them.
struct Open {
    streams: Streams,
    loader: Loader,
    /// It ends with this.
    _watch: JoinSet<()>,
}

/// Streams, and how often the connection had been lost when they began to be opened.
type Opened = (u64, Streams);

/// What is heard of other nodes.
enum Heard {
    Hello(Hello),
    /// Whether a node has answered, or nobody listens in its place.
    Probed(Arc<str>, bool),
}

struct ConnectedNode {
    client: Client,
    members: Members,
    /// Since when members count time.
    began: Instant,
    heard_sender: Sender<Heard>,
    /// Whether this node is part of the cluster: what comes in before that is left alone.
    is_joined: Arc<AtomicBool>,
    settings: Arc<Settings>,
    subjects: Subjects,
    hand: ClusterEventSink,
    streams: Option<Open>,
    marks: Arc<Marks>,
    /// The marks as they were when the connection was lost, until the streams are opened again: what is stored from
    /// then on must not hide what is lost.
    marks_before: Option<Arc<Marks>>,
    /// What is to be read as soon as the streams are opened again, and since when it waits. Each channel of this node
    /// asks once.
    held: VecDeque<(Instant, StreamLoad)>,
    is_opening: bool,
    /// How often the connection was lost.
    lost: u64,
    checks: Arc<Checks>,
    /// Streams are gone.
    gone: Arc<Notify>,
    echo_sender: UnboundedSender<u64>,
    /// The task that hears a channel.
    channels: HashMap<ChannelName, JoinHandle<()>>,
    /// Channels that wait for the server's echo: the number, the channel.
    unheard: Vec<(u64, ChannelName)>,
    echo: u64,
    has_new: bool,
    log: LinkLog,
}

impl ConnectedNode {
    fn new(
        client: Client,
        settings: Settings,
        hand: ClusterEventSink,
        echo_sender: UnboundedSender<u64>,
        heard_sender: Sender<Heard>,
    ) -> Self {
        let me = Hello {
            node: settings.node.clone(),
            started_ms: settings.started_ms,
            versions: (*VERSIONS.start(), *VERSIONS.end()),
            program: settings.program.clone(),
            leaves: false,
            aside: false,
        };
        let ms = |duration: Duration| duration.as_millis() as u64;
        let timing = Timing {
            heartbeat_ms: ms(settings.heartbeat),
            timeout_ms: ms(settings.timeout),
            grace_ms: ms(settings.grace),
        };
        let log = LinkLog::new(&settings.urls, !settings.tls_ca.is_empty() || !settings.tls_cert.is_empty());
        ConnectedNode {
            members: Members::new(me, timing),
            began: Instant::now(),
            heard_sender,
            is_joined: Arc::default(),
            subjects: Subjects::new(&settings.cluster),
            client,
            settings: Arc::new(settings),
            hand,
            streams: None,
            marks: Arc::default(),
            marks_before: None,
            held: VecDeque::new(),
            is_opening: false,
            lost: 0,
            checks: Arc::default(),
            gone: Arc::default(),
            echo_sender,
            channels: HashMap::new(),
            unheard: Vec::new(),
            echo: 0,
            has_new: false,
            log,
        }
    }

    /// The subscriptions that a node has as long as it lives.
    async fn subscribe_all(&self) -> Result<(), async_nats::SubscribeError> {
        self.hear_who_is_there().await?;
        for version in VERSIONS {
            self.hear_nodes(version).await?;
        }
        let echoes = self.echo_sender.clone();
        self.hear(self.subjects.echo(&self.settings.node), move |message| {
            let number = std::str::from_utf8(&message.payload).ok().and_then(|text| text.parse().ok());
            number.map(|number| echoes.send(number));
        })
        .await?;
        Ok(())
    }

    /// What nodes of every version say.
    async fn hear_who_is_there(&self) -> Result<(), async_nats::SubscribeError> {
        let heard = self.heard_sender.clone();
        self.hear(self.subjects.hello(), move |message| match serde_json::from_slice(&message.payload) {
            Ok(hello) => drop(heard.try_send(Heard::Hello(hello))),
            Err(error) => tracing::debug!(%error, "a hello that can't be read"),
        })
        .await?;
        let client = self.client.clone();
        self.hear(self.subjects.probe(&self.settings.node), move |message| {
            if let Some(subject) = message.reply {
                let client = client.clone();
                tokio::spawn(async move { client.publish(subject, Bytes::new()).await });
            }
        })
        .await?;
        Ok(())
    }

    /// What nodes say in one version.
    async fn hear_nodes(&self, version: u32) -> Result<(), async_nats::SubscribeError> {
        let me = &self.settings.node;
        for scope in &self.settings.scopes {
            let scope: Arc<str> = scope.as_str().into();
            for subject in [self.subjects.link(version, &scope, None), self.subjects.link(version, &scope, Some(me))] {
                let (scope, hand) = (Arc::clone(&scope), self.hand_if_joined());
                self.hear(subject, move |message| {
                    hand(ClusterEvent::ScopeMessage { scope: Arc::clone(&scope), message: message.payload })
                })
                .await?;
            }
        }
        let hand = self.hand_if_joined();
        self.hear(self.subjects.node(version, me, "*"), move |message| {
            if let Some(from) = last_name(&message) {
                hand(ClusterEvent::DirectoryMessage { from: from.into(), message: message.payload });
            }
        })
        .await?;
        let (hand, client, me) = (self.hand_if_joined(), self.client.clone(), me.clone());
        self.hear(self.subjects.order(version, "*"), move |message| {
            if last_name(&message).is_none_or(|from| from == me) {
                return;
            }
            let (client, me) = (client.clone(), me.clone());
            let reply = message.reply.map(|subject| -> Box<dyn FnOnce(Vec<u8>) + Send> {
                let runtime = tokio::runtime::Handle::current();
                Box::new(move |answer| {
                    runtime.spawn(async move {
                        for piece in split(&me, answer, client.max_payload()) {
                            if let Err(error) = client.publish(subject.clone(), piece).await {
                                return tracing::warn!(%error, "an answer to another node could not be sent");
                            }
                        }
                    });
                })
            });
            hand(ClusterEvent::Broadcast { message: message.payload, reply });
        })
        .await?;
        Ok(())
    }

    /// Takes what comes in while this node is part of the cluster.
    fn hand_if_joined(&self) -> impl Fn(ClusterEvent) + Send + 'static {
        let (hand, is_joined) = (Arc::clone(&self.hand), Arc::clone(&self.is_joined));
        move |incoming| {
            if is_joined.load(Relaxed) {
                hand(incoming);
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    async fn look(&mut self) {
        while let Some((_, load)) = self.held.pop_front_if(|(since, _)| since.elapsed() >= HOLD) {
            self.refuse(load);
        }
        let steps = self.members.tick(self.now_ms());
        self.take(steps).await;
    }

    async fn on_heard(&mut self, heard: Heard) {
        let now_ms = self.now_ms();
        let steps = match heard {
            Heard::Hello(hello) => self.members.hello(hello, now_ms),
            Heard::Probed(node, is_there) => self.members.probed(&node, is_there, now_ms),
        };
        self.take(steps).await;
    }

    async fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::SayHello => self.say_hello(false).await,
                Step::Probe(node) => self.probe(node),
                Step::Join(nodes) => {
                    self.is_joined.store(true, Relaxed);
                    tracing::info!(nodes = nodes.len(), version = self.members.version(), "part of the cluster");
                    (self.hand)(ClusterEvent::Joined(nodes));
                    self.tell_link();
                }
                Step::StandAside(other) => {
                    self.is_joined.store(false, Relaxed);
                    let why = self.no_common_version(&other);
                    tracing::error!("{why}: this node takes no part in the cluster until that node has gone");
                    (self.hand)(ClusterEvent::VersionConflict(why));
                    (self.hand)(ClusterEvent::Linked(false));
                }
                Step::Refused(other) => {
                    tracing::warn!("{}: that node takes no part in the cluster", self.no_common_version(&other))
                }
                Step::Suspect(node, is_suspected) => (self.hand)(ClusterEvent::Suspected { node, is_suspected }),
                Step::Gone(node) => (self.hand)(ClusterEvent::NodeDead { node }),
            }
        }
    }

    fn no_common_version(&self, other: &Hello) -> String {
        let ((low, high), (from, to)) = (self.members.me().versions, other.versions);
        format!(
            "node {} (Touchline {}) speaks versions {from} to {to} between nodes, this one {low} to {high}",
            other.node, other.program
        )
    }

    async fn say_hello(&self, leaves: bool) {
        if let Ok(hello) = serde_json::to_vec(&self.members.own_hello(leaves)) {
            self.publish(self.subjects.hello(), hello.into()).await;
        }
    }

    fn probe(&self, node: Arc<str>) {
        let (client, heard, subject) = (self.client.clone(), self.heard_sender.clone(), self.subjects.probe(&node));
        tokio::spawn(async move {
            let request = async_nats::Request::new().timeout(Some(PROBE));
            match client.send_request(subject, request).await {
                Ok(_) => drop(heard.try_send(Heard::Probed(node, true))),
                Err(error) if error.kind() == async_nats::RequestErrorKind::NoResponders => {
                    drop(heard.try_send(Heard::Probed(node, false)))
                }
                // It may be frozen, or far away: that is no proof.
                Err(_) => {}
            }
        });
    }

    /// Says that the cluster can be reached, if all that this node needs of it is there.
    fn tell_link(&self) {
        if self.members.is_joined() && (self.settings.streams.is_empty() || self.streams.is_some()) {
            (self.hand)(ClusterEvent::Linked(true));
        }
    }

    /// Hears a subject in a task of its own.
    async fn hear(
        &self,
        subject: String,
        mut take: impl FnMut(Message) + Send + 'static,
    ) -> Result<JoinHandle<()>, async_nats::SubscribeError> {
        let mut subscriber: Subscriber = self.client.subscribe(subject).await?;
        Ok(tokio::spawn(async move {
            while let Some(message) = subscriber.next().await {
                take(message);
            }
        }))
    }

    async fn on_event(&mut self, event: &Event, streams: &UnboundedSender<Opened>) {
        match event {
            Event::Connected => {
                let info = self.client.server_info();
                self.log.connected(&info);
                say_what_nats_keeps(&self.settings, &info.version);
                let steps = self.members.linked(true, self.now_ms());
                self.take(steps).await;
                if !self.settings.streams.is_empty() {
                    self.open_streams(streams.clone());
                }
            }
            Event::Disconnected => {
                self.log.lost();
                self.is_joined.store(false, Relaxed);
                (self.hand)(ClusterEvent::Linked(false));
                self.marks_before.get_or_insert_with(|| Arc::new(self.marks.copy()));
                self.lost += 1;
                // When the link is back, it is asked for again.
                self.held.clear();
                let steps = self.members.linked(false, self.now_ms());
                self.take(steps).await;
            }
            Event::SlowConsumer(_) => {
                tracing::warn!("messages of other nodes came faster than this one could take them: some are lost");
                self.checks.trouble.notify_one();
            }
            other => {
                self.log.note(other);
                self.checks.trouble.notify_one();
            }
        }
    }

    /// Streams in memory are gone with their server, so they are opened whenever a server is there.
    fn open_streams(&mut self, opened: UnboundedSender<Opened>) {
        if std::mem::replace(&mut self.is_opening, true) {
            return;
        }
        let (client, settings, subjects) = (self.client.clone(), Arc::clone(&self.settings), self.subjects.clone());
        let (is_first, marks, hand) = (self.streams.is_none(), Arc::clone(&self.marks), Arc::clone(&self.hand));
        let (known, lost) = (self.marks_before.clone().unwrap_or_else(|| Arc::new(marks.copy())), self.lost);
        tokio::spawn(async move {
            let mut told = String::new();
            loop {
                match Streams::open(
                    client.clone(),
                    Arc::clone(&settings),
                    subjects.clone(),
                    (Arc::clone(&marks), &known, is_first),
                )
                .await
                {
                    Ok(streams) => {
                        let _ = opened.send((lost, streams));
                        return;
                    }
                    // Without the connection it says nothing of JetStream.
                    Err(error) if client.connection_state() == State::Connected => {
                        let remedy = remedy(&error);
                        hand(ClusterEvent::StreamsUnavailable(format!(
                            "{error}{}{remedy}",
                            if remedy.is_empty() { "" } else { ": " }
                        )));
                        if error != told {
                            tracing::warn!(
                                error,
                                remedy,
                                "JetStream can't be used: channels with history can't be published to; trying again"
                            );
                            told = error;
                        }
                    }
                    Err(_) => {}
                }
                tokio::time::sleep(RETRY).await;
            }
        });
    }

    fn on_streams(&mut self, (lost, streams): Opened, opened: &UnboundedSender<Opened>) {
        self.is_opening = false;
        if lost != self.lost {
            // They were opened before the connection was lost again.
            return self.open_streams(opened.clone());
        }
        let is_known = self.streams.as_ref().is_some_and(|known| known.streams.are(&streams));
        let loader = Loader::start(streams.clone(), Arc::clone(&self.hand), Arc::clone(&self.checks));
        let watch = Watch {
            streams: streams.clone(),
            hand: Arc::clone(&self.hand),
            delay: self.settings.check_delay,
            gone: Arc::clone(&self.gone),
            checks: Arc::clone(&self.checks),
        };
        self.streams = Some(Open { streams, loader, _watch: JoinSet::from_iter([watch.run()]) });
        self.marks_before = None;
        if let Some(Open { loader, .. }) = &self.streams {
            self.held.drain(..).for_each(|(_, load)| loader.load(load));
        }
        if !is_known {
            self.tell_link();
        }
    }

    /// The server has heard all that came before: the channels that waited are heard.
    fn on_echo(&mut self, number: u64) {
        let (heard, unheard) =
            std::mem::take(&mut self.unheard).into_iter().partition(|(waiting, _)| *waiting <= number);
        self.unheard = unheard;
        for (_, channel) in heard {
            (self.hand)(ClusterEvent::Subscribed { channel });
        }
    }

    async fn ask_echo(&mut self) {
        if std::mem::take(&mut self.has_new) {
            self.publish(self.subjects.echo(&self.settings.node), self.echo.to_string().into()).await;
            self.echo += 1;
        }
    }

    async fn publish(&self, subject: String, payload: Bytes) {
        // It fails only if it is too large, or the client is closed.
        if let Err(error) = self.client.publish(subject, payload).await {
            tracing::warn!(%error, "a message to other nodes could not be sent");
        }
    }

    async fn carry_out(&mut self, command: ClusterCommand) {
        let version = self.members.version();
        match command {
            // A node that takes no part says nothing. What is asked of it is answered as when NATS can't be reached.
            ClusterCommand::ScopeMessage { .. }
            | ClusterCommand::DirectoryMessage { .. }
            | ClusterCommand::Broadcast { .. }
            | ClusterCommand::PublishEphemeral { .. }
                if !self.members.is_joined() => {}
            ClusterCommand::Gather { done, .. } if !self.members.is_joined() => done(Vec::new()),
            ClusterCommand::Append { done, .. } if !self.members.is_joined() => done(None),
            ClusterCommand::Purge { done, .. } if !self.members.is_joined() => done(false),
            ClusterCommand::ScopeMessage { scope, to, message } => {
                self.publish(self.subjects.link(version, &scope, to.as_deref()), message).await
            }
            ClusterCommand::DirectoryMessage { to, message } => {
                self.publish(self.subjects.node(version, &to, &self.settings.node), message).await
            }
            ClusterCommand::Broadcast { message } => {
                self.publish(self.subjects.order(version, &self.settings.node), message).await
            }
            ClusterCommand::Gather { message, nodes, is_enough, done } => {
                let (client, subject) = (self.client.clone(), self.subjects.order(version, &self.settings.node));
                tokio::spawn(async move { done(gather(&client, subject, message, (nodes, is_enough)).await) });
            }
            ClusterCommand::PublishEphemeral { channel, payload } => {
                self.publish(self.subjects.passing(&channel), payload).await
            }
            ClusterCommand::SetInterest { channel, is_wanted: true } => self.hear_channel(channel).await,
            ClusterCommand::SetInterest { channel, is_wanted: false } => {
                if let Some(task) = self.channels.remove(&channel) {
                    task.abort();
                }
            }
            ClusterCommand::Load(load) => match &self.streams {
                Some(Open { loader, .. }) if self.marks_before.is_none() => loader.load(load),
                _ if load.is_check => {}
                Some(_) => self.held.push_back((Instant::now(), load)),
                None => self.refuse(load),
            },
            ClusterCommand::BeginRun { namespace, lost } => {
                let gone = Arc::clone(&self.gone);
                if let Some(streams) = self.streams() {
                    tokio::spawn(async move {
                        if streams.begin_run(&namespace, lost).await {
                            gone.notify_one();
                        }
                    });
                }
            }
            ClusterCommand::CheckSoon => self.checks.trouble.notify_one(),
            ClusterCommand::Append { channel, namespace, payload, id, done } => match self.streams() {
                Some(streams) => {
                    let checks = Arc::clone(&self.checks);
                    tokio::spawn(async move {
                        let stored = streams.store(&channel, &namespace, payload, &id).await;
                        if stored.is_none() {
                            checks.trouble.notify_one();
                        }
                        done(stored);
                    });
                }
                None => done(None),
            },
            ClusterCommand::Purge { channel, namespace, marker, done } => match self.streams() {
                Some(streams) => {
                    drop(tokio::spawn(async move { done(streams.purge(&channel, &namespace, marker).await) }))
                }
                None => done(false),
            },
            ClusterCommand::Leave { .. } => {}
        }
    }

    /// Says that something can't be read now.
    fn refuse(&self, load: StreamLoad) {
        (self.hand)(ClusterEvent::Loaded { channel: load.channel, load: load.id, history: None });
    }

    /// The streams, if they were opened since the connection is there.
    fn streams(&self) -> Option<Streams> {
        self.streams.as_ref().filter(|_| self.marks_before.is_none()).map(|open| open.streams.clone())
    }

    async fn hear_channel(&mut self, channel: ChannelName) {
        if !self.channels.contains_key(&channel) {
            let (hand, of, subjects) = (Arc::clone(&self.hand), channel.clone(), self.subjects.clone());
            let marks = Arc::clone(&self.marks);
            let task = self.hear(self.subjects.happening(&channel), move |message| {
                let channel = of.clone();
                hand(match place(&subjects, &message) {
                    Some((offset, previous, epoch)) => {
                        marks.note(epoch, offset, &message.payload);
                        ClusterEvent::Stored {
                            channel,
                            stored: StoredPublication { offset: Offset(offset), payload: message.payload },
                            previous: Offset(previous),
                            epoch,
                        }
                    }
                    None => ClusterEvent::Ephemeral { channel, payload: message.payload },
                });
            });
            let Ok(task) = task.await else { return };
            self.channels.insert(channel.clone(), task);
        }
        self.unheard.push((self.echo, channel));
        self.has_new = true;
    }
}

/// The last token of a message's subject, as a name.
fn last_name(message: &Message) -> Option<String> {
    name(message.subject.rsplit('.').next()?)
}

/// Sequence, previous sequence and epoch of a message that JetStream has stored and published again.
fn place(subjects: &Subjects, message: &Message) -> Option<(u64, u64, u64)> {
    let headers = message.headers.as_ref()?;
    let number = |name: &str| headers.get(name)?.as_str().parse::<u64>().ok();
    Some((
        number("Nats-Sequence")?,
        number("Nats-Last-Sequence").unwrap_or_default(),
        subjects.happened_in(&message.subject)?,
    ))
}
