//! The connection to NATS: the commands of the node, the state of the connection, and the streams.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::{Sender, UnboundedSender, channel, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};
use touchline_protocol::fact::FactChange;
use touchline_protocol::stream::ChannelName;

use crate::command::{
    ChargedBytes, ClusterCommand, HistoryRemoval, OnFactChanged, OnPurged, OnStreamsSet, StreamAppend,
};
use crate::errors::{FactError, StreamError};
use crate::events::{ClusterEvent, ClusterEventSink};
use crate::fact_bucket::FactBucket;
use crate::gather::gather;
use crate::handle::LinkParts;
use crate::hello::Hello;
use crate::history::Streams;
use crate::link_log::LinkLog;
use crate::loader::{Checks, Loader};
use crate::marks::Marks;
use crate::members::{Members, MembershipStep, MembershipTiming, VERSIONS};
use crate::nats::{NatsClient, NatsServers};
use crate::neighbours::ReportedNodes;
use crate::open_streams::{OpenStreams, OpenedStream};
use crate::outage::OutageLog;
use crate::outcome::{append, change_fact, purge};
use crate::returned::ReturnedChannels;
use crate::room::OutgoingCharge;
use crate::settings::{JoinOptions, StreamSettings};
use crate::subject::Subjects;
use crate::time::{Instant, Ticks, now, sleep, timeout};
use crate::types::StreamLoad;
use crate::versions::warn_of_losses;
use crate::watch::StreamPoller;
use crate::writer::{LinkWriter, OutgoingMessage};

/// The interval between two attempts to open the streams.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of queued hellos and probe results. More are dropped, because each node soon repeats its hello.
const SIGNALS_MAX: usize = 4_096;
/// How long a load waits for streams that are being opened. Then it fails.
const LOAD_WAIT: Duration = Duration::from_secs(5);
// A waiting load outlasts at least one more attempt to open the streams.
const _: () = assert!(RETRY_INTERVAL.as_millis() < LOAD_WAIT.as_millis());
/// The interval between two checks of the cluster's members.
const TICK_INTERVAL: Duration = Duration::from_millis(50);
/// How long a node may take to reply to a probe. NATS reports at once if the node is not subscribed.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
// Ticks send the probes and notice expired times.
const _: () = assert!(TICK_INTERVAL.as_millis() < PROBE_TIMEOUT.as_millis());
/// The number of commands that run before the server's echo is requested.
const BATCH: usize = 512;

/// Serves until the node leaves.
pub(crate) async fn run(
    settings: JoinOptions,
    servers: NatsServers,
    LinkParts { mut outgoing, replies, message_max, traffic }: LinkParts,
    events: ClusterEventSink,
) {
    warn_of_losses(&settings);
    let (nats_event_sender, mut nats_events) = unbounded_channel();
    let client = match servers.connect(nats_event_sender).await {
        Ok(client) => client,
        Err(error) => return tracing::error!(%error, "the cluster could not be joined"),
    };
    let _ = traffic.set(client.statistics());
    let (echo_sender, mut echoes) = unbounded_channel();
    let (signal_sender, mut signals) = channel(SIGNALS_MAX);
    let mut ticks = Ticks::new(TICK_INTERVAL);
    let (stream_sender, mut opened) = unbounded_channel();
    let mut node = ConnectedNode::new(client, settings, events, (echo_sender, signal_sender, stream_sender));
    let streams_gone = Arc::clone(&node.streams_gone);
    node.subscribe_all(&replies);
    loop {
        // The client updates this value a moment after it reports the connection. Heartbeats run this loop again.
        message_max.store(node.client.max_payload(), Relaxed);
        // Reading, ticks and signals come first. Only `writer.run` waits for NATS, beside all the others.
        tokio::select! {
            biased;
            Some(event) = nats_events.recv() => node.on_nats_event(&event),
            () = ticks.tick() => node.tick(),
            Some(opened) = opened.recv() => node.on_streams(opened),
            () = streams_gone.notified() => node.open_streams(),
            Some(signal) = signals.recv() => node.on_signal(signal),
            Some(number) = echoes.recv() => node.on_echo(number),
            () = node.writer.run() => {}
            received = outgoing.recv() => {
                let mut next = received;
                if next.is_none() {
                    return;
                }
                for _ in 0..BATCH {
                    let Some(command) = next.take() else { break };
                    if let ClusterCommand::Leave { done } = command {
                        node.say_hello(true);
                        let _ = timeout(RETRY_INTERVAL, node.writer.finish()).await;
                        let _ = done.send(());
                        return;
                    }
                    node.run_command(command);
                    next = outgoing.try_recv().ok();
                }
                if let Some(command) = next {
                    node.run_command(command);
                }
                node.ask_echo();
            }
        }
    }
}

/// A signal from another node.
pub(crate) enum NodeSignal {
    Hello(Hello),
    /// Whether a node has replied to a probe. False = it is no longer subscribed.
    Probed(Arc<str>, bool),
}

/// The state of the connection. No method waits: everything for NATS goes to the writer, or to a task with a limit.
pub(crate) struct ConnectedNode {
    pub(crate) client: NatsClient,
    pub(crate) writer: LinkWriter,
    pub(crate) members: Members,
    /// The time at which the members' clock starts.
    began: Instant,
    pub(crate) signal_sender: Sender<NodeSignal>,
    /// Whether this node is part of the cluster. Messages that arrive before that are skipped.
    pub(crate) is_joined: Arc<AtomicBool>,
    pub(crate) settings: Arc<JoinOptions>,
    pub(crate) subjects: Subjects,
    pub(crate) events: ClusterEventSink,
    pub(crate) streams: Option<OpenStreams>,
    pub(crate) marks: Arc<Marks>,
    /// The marks from when the connection was lost, until the streams are open again. Otherwise publications that are
    /// stored later could hide that earlier ones are lost.
    pub(crate) marks_before: Option<Arc<Marks>>,
    /// Loads that run when the streams are open again, with the time since when they wait. Each channel of this node
    /// loads once.
    pub(crate) waiting_loads: VecDeque<(Instant, StreamLoad)>,
    /// The task that opens the streams. `None` = no such task is running.
    pub(crate) opening: Option<JoinHandle<()>>,
    opened_sender: UnboundedSender<OpenedStream>,
    /// The number of the client's connection. `None` = the link is lost, or was never made.
    pub(crate) link: Option<u64>,
    /// How often the connection has been lost.
    pub(crate) lost: u64,
    /// Which publications of this node NATS returns too late.
    pub(crate) returned: Arc<ReturnedChannels>,
    pub(crate) checks: Arc<Checks>,
    /// Notified when streams are gone or replaced.
    streams_gone: Arc<Notify>,
    pub(crate) echo_sender: UnboundedSender<u64>,
    /// The task of each channel's subscription.
    pub(crate) channels: BTreeMap<ChannelName, JoinHandle<()>>,
    /// The channels that wait for an echo of the server, and its number.
    pub(crate) unconfirmed: BTreeMap<ChannelName, u64>,
    pub(crate) echo: u64,
    /// When an echo was requested last.
    pub(crate) echo_asked: Instant,
    pub(crate) has_new: bool,
    pub(crate) log: LinkLog,
    /// Logs why publications are not stored.
    outages: Arc<OutageLog>,
    pub(crate) facts: FactBucket,
    /// Logs why shared facts are neither read nor written.
    pub(crate) fact_outages: Arc<OutageLog>,
    /// The task that follows the shared facts while NATS can be reached.
    pub(crate) fact_follower: JoinSet<()>,
    /// True if this node's id is the first of the nodes in sight.
    pub(crate) is_first: Arc<AtomicBool>,
    /// The last report about the other nodes.
    neighbours: ReportedNodes,
    /// Called when the streams that were set last are open. `None` = no caller waits.
    new_streams: Option<OnStreamsSet>,
}

impl ConnectedNode {
    fn new(
        client: NatsClient,
        settings: JoinOptions,
        events: ClusterEventSink,
        (echo_sender, signal_sender, opened_sender): (
            UnboundedSender<u64>,
            Sender<NodeSignal>,
            UnboundedSender<OpenedStream>,
        ),
    ) -> Self {
        let me = Hello {
            node: settings.node.clone(),
            started_ms: settings.started_ms,
            versions: (*VERSIONS.start(), *VERSIONS.end()),
            program: settings.program.clone(),
            name: settings.name.clone(),
            configuration: settings.configuration,
            facts: if settings.has_facts { "NATS" } else { "PostgreSQL" }.to_owned(),
            ..Hello::default()
        };
        let ms = |duration: Duration| duration.as_millis() as u64;
        let timing = MembershipTiming {
            heartbeat_ms: ms(settings.cluster.heartbeat_interval),
            timeout_ms: ms(settings.cluster.node_timeout),
            grace_ms: ms(settings.cluster.suspect_grace),
        };
        let log = LinkLog::new(&settings);
        let (subjects, settings) = (Subjects::new(&settings.cluster.name), Arc::new(settings));
        ConnectedNode {
            facts: FactBucket::new(client.clone(), subjects.clone(), Arc::clone(&settings)),
            members: Members::new(me, timing),
            began: now(),
            signal_sender,
            is_joined: Arc::default(),
            subjects,
            writer: LinkWriter::new(client.clone()),
            client,
            settings,
            events,
            streams: None,
            marks: Arc::default(),
            marks_before: None,
            waiting_loads: VecDeque::new(),
            opening: None,
            opened_sender,
            link: None,
            lost: 0,
            returned: Arc::default(),
            echo_asked: now(),
            checks: Arc::default(),
            streams_gone: Arc::default(),
            echo_sender,
            channels: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            echo: 0,
            has_new: false,
            log,
            outages: Arc::new(OutageLog::new("publications to channels with history")),
            fact_outages: Arc::new(OutageLog::new("reads and writes of bans in JetStream")),
            fact_follower: JoinSet::new(),
            is_first: Arc::default(),
            neighbours: ReportedNodes::default(),
            new_streams: None,
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        (now() - self.began).as_millis() as u64
    }

    fn tick(&mut self) {
        self.follow_link();
        // NATS may drop an echo like any other message.
        if !self.unconfirmed.is_empty() && now() - self.echo_asked >= RETRY_INTERVAL {
            self.has_new = true;
            self.ask_echo();
        }
        while let Some((_, load)) = self.waiting_loads.pop_front_if(|(since, _)| now() - *since >= LOAD_WAIT) {
            self.refuse(load);
        }
        self.is_first.store(self.members.is_first(), Relaxed);
        let steps = self.members.tick(self.now_ms());
        self.run_steps(steps);
        self.neighbours.report(&self.members, &self.events);
    }

    fn on_signal(&mut self, signal: NodeSignal) {
        let now_ms = self.now_ms();
        let steps = match signal {
            NodeSignal::Hello(hello) => self.members.hello(hello, now_ms),
            NodeSignal::Probed(node, is_there) => self.members.probed(&node, is_there, now_ms),
        };
        self.run_steps(steps);
    }

    pub(crate) fn run_steps(&mut self, steps: Vec<MembershipStep>) {
        for step in steps {
            match step {
                MembershipStep::SayHello => self.say_hello(false),
                MembershipStep::Probe(node) => self.probe(node),
                MembershipStep::Join(nodes) => {
                    self.is_joined.store(true, Relaxed);
                    tracing::info!(nodes = nodes.len(), version = self.members.version(), "part of the cluster");
                    (self.events)(ClusterEvent::Joined(nodes));
                    self.report_link();
                }
                MembershipStep::StandAside(other) => {
                    self.is_joined.store(false, Relaxed);
                    self.return_unwritten();
                    let why = self.no_common_version(&other);
                    tracing::error!("{why}: this node takes no part in the cluster until that node has gone");
                    (self.events)(ClusterEvent::VersionConflict(why));
                    (self.events)(ClusterEvent::Linked(false));
                }
                MembershipStep::Refused(other) => {
                    tracing::warn!("{}: that node takes no part in the cluster", self.no_common_version(&other))
                }
                MembershipStep::Suspect(node, is_suspected) => {
                    (self.events)(ClusterEvent::Suspected { node, is_suspected })
                }
                MembershipStep::Gone(node) => (self.events)(ClusterEvent::NodeDead { node, has_left: false }),
                MembershipStep::Left(node) => (self.events)(ClusterEvent::NodeDead { node, has_left: true }),
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

    fn say_hello(&mut self, leaves: bool) {
        if let Ok(hello) = serde_json::to_vec(&self.members.own_hello(leaves)) {
            self.writer.say_hello(self.subjects.hello(), hello.into());
        }
    }

    fn probe(&self, node: Arc<str>) {
        let (client, signals, subject) = (self.client.clone(), self.signal_sender.clone(), self.subjects.probe(&node));
        tokio::spawn(async move {
            // Without a reply the node may be frozen or slow, so that does not prove that it is dead.
            if let Some(is_there) = client.probe(subject, PROBE_TIMEOUT).await {
                drop(signals.try_send(NodeSignal::Probed(node, is_there)));
            }
        });
    }

    /// Replaces the histories that are kept in streams.
    fn set_streams(&mut self, streams: Vec<StreamSettings>, done: OnStreamsSet) {
        self.settings = Arc::new(JoinOptions { streams, ..(*self.settings).clone() });
        self.new_streams = Some(done);
        if let Some(opening) = self.opening.take() {
            opening.abort();
        }
        self.open_streams();
    }

    /// Opens the streams. Streams in memory are lost with their server, so this happens after every connect.
    pub(crate) fn open_streams(&mut self) {
        if self.opening.is_some() {
            return;
        }
        let (client, settings, subjects) = (self.client.clone(), Arc::clone(&self.settings), self.subjects.clone());
        let (is_first, opened) = (self.streams.is_none() || self.new_streams.is_some(), self.opened_sender.clone());
        let (marks, events) = (Arc::clone(&self.marks), Arc::clone(&self.events));
        let (known, lost) = (self.marks_before.clone().unwrap_or_else(|| Arc::new(marks.copy())), self.lost);
        self.opening = Some(tokio::spawn(async move {
            let mut told = String::new();
            let mut sent: Option<Streams> = None;
            loop {
                let (streams, failed) = Streams::open(
                    client.clone(),
                    Arc::clone(&settings),
                    subjects.clone(),
                    (Arc::clone(&marks), &known, is_first),
                )
                .await;
                // A node that starts is ready when all its streams are open. Later, those that are open are used.
                let streams = if failed.is_none() { streams } else { streams.or_earlier(sent.as_ref()) };
                let is_news = !is_first
                    && match &sent {
                        Some(sent) => !sent.are(&streams),
                        None => streams.lives().next().is_some(),
                    };
                if failed.is_none() || is_news {
                    let _ = opened.send((lost, Arc::clone(&settings), streams.clone(), failed.is_none()));
                    sent = Some(streams);
                }
                match failed {
                    None => return,
                    // Without a connection, the error does not concern JetStream.
                    Some(error) if client.is_up() => {
                        let text = error.to_string();
                        if text != told {
                            tracing::warn!(
                                %error,
                                "JetStream can't be used: channels with history can't be published to; trying again"
                            );
                            told = text;
                        }
                        events(ClusterEvent::StreamsUnavailable(error));
                    }
                    Some(_) => {}
                }
                sleep(RETRY_INTERVAL).await;
            }
        }));
    }

    fn on_streams(&mut self, (lost, settings, streams, are_all): OpenedStream) {
        if lost != self.lost || !Arc::ptr_eq(&settings, &self.settings) {
            // The connection was lost again, or other streams were set meanwhile: they are opened again after that.
            return;
        }
        if are_all {
            self.opening = None;
            self.marks_before = None;
            self.new_streams.take().into_iter().for_each(|done| done());
        }
        let is_known = self.streams.as_ref().is_some_and(|known| known.streams.are(&streams));
        let loader = Loader::start(streams.clone(), Arc::clone(&self.events), Arc::clone(&self.checks));
        let watch = StreamPoller {
            streams: streams.clone(),
            events: Arc::clone(&self.events),
            delay: self.settings.check_delay,
            streams_gone: Arc::clone(&self.streams_gone),
            checks: Arc::clone(&self.checks),
        };
        self.streams = Some(OpenStreams { streams, lost, loader, _watch: JoinSet::from_iter([watch.run()]) });
        for (since, load) in std::mem::take(&mut self.waiting_loads) {
            match &self.streams {
                Some(open) if open.streams.has(&load.namespace) => open.loader.load(load),
                _ => self.waiting_loads.push_back((since, load)),
            }
        }
        if !is_known {
            self.report_link();
        }
    }

    /// Sends a reply to another node. The answer to a probe is empty, and comes before other messages.
    fn reply(&mut self, subject: String, (payload, charge): ChargedBytes) {
        let reply = OutgoingMessage { subject, payload, channel: None, charge };
        if reply.payload.is_empty() { self.writer.answer_probe(reply) } else { self.writer.publish(reply) }
    }

    fn publish(&mut self, subject: String, (payload, charge): ChargedBytes) {
        self.writer.publish(OutgoingMessage { subject, payload, channel: None, charge });
    }

    fn run_command(&mut self, command: ClusterCommand) {
        let version = self.members.version();
        match command {
            // A node that takes no part sends nothing. Its requests are answered as if NATS could not be reached.
            ClusterCommand::ScopeMessage { .. }
            | ClusterCommand::DirectoryMessage { .. }
            | ClusterCommand::Broadcast { .. }
                if !self.members.is_joined() => {}
            // It was accepted before the node noticed that it is alone.
            ClusterCommand::PublishEphemeral { channel, payload: (payload, _) } if !self.members.is_joined() => {
                self.deliver_here(channel, payload)
            }
            ClusterCommand::Gather { done, .. } if !self.members.is_joined() => done(Vec::new()),
            ClusterCommand::Append(StreamAppend { done, .. }) if !self.members.is_joined() => {
                done(Err(StreamError::NotJoined))
            }
            ClusterCommand::Purge { done, .. } if !self.members.is_joined() => done(Err(StreamError::NotJoined)),
            ClusterCommand::ScopeMessage { scope, to, message } => {
                self.publish(self.subjects.scope_message(version, &scope, to.as_deref()), message)
            }
            ClusterCommand::DirectoryMessage { to, message } => {
                self.publish(self.subjects.directory_message(version, &to, &self.settings.node), message)
            }
            ClusterCommand::Broadcast { message } => {
                self.publish(self.subjects.broadcast(version, &self.settings.node), message)
            }
            ClusterCommand::Reply { subject, message } => self.reply(subject, message),
            ClusterCommand::Gather { message, nodes, is_enough, done } => {
                let (client, subject) = (self.client.clone(), self.subjects.broadcast(version, &self.settings.node));
                tokio::spawn(async move { done(gather(&client, subject, message, (nodes, is_enough)).await) });
            }
            ClusterCommand::PublishEphemeral { channel, payload: (payload, charge) } => {
                let subject = self.subjects.ephemeral(&channel, &self.settings.node, self.returned.link());
                self.writer.publish(OutgoingMessage { subject, payload, channel: Some(channel), charge });
            }
            ClusterCommand::SetInterest { channel, is_wanted: true } => self.subscribe_channel(channel),
            ClusterCommand::SetInterest { channel, is_wanted: false } => {
                self.unconfirmed.remove(&channel);
                self.channels.remove(&channel).iter().for_each(JoinHandle::abort);
            }
            ClusterCommand::Load(load) => self.load(load),
            ClusterCommand::BeginRun { namespace, lost } => {
                let streams_gone = Arc::clone(&self.streams_gone);
                if let Some(streams) = self.streams() {
                    tokio::spawn(async move {
                        if streams.begin_run(&namespace, lost).await {
                            streams_gone.notify_one();
                        }
                    });
                }
            }
            ClusterCommand::CheckSoon => self.checks.trouble.notify_one(),
            ClusterCommand::Append(append) => self.append(append),
            ClusterCommand::Purge { removal, done } => self.purge(removal, done),
            ClusterCommand::ChangeFact { change, charge, done } => self.change_fact((change, charge), done),
            ClusterCommand::SetStreams { streams, done } => self.set_streams(streams, done),
            ClusterCommand::SetConfiguration(configuration) => {
                let step = self.members.set_configuration(configuration);
                self.run_steps(vec![step]);
            }
            ClusterCommand::SetRoom { connect_rate, draining } => {
                let step = self.members.set_room(connect_rate, draining);
                self.run_steps(step.into_iter().collect());
            }
            ClusterCommand::Tell(batch) => drop(tokio::spawn(self.client.clone().tell(batch))),
            ClusterCommand::Leave { .. } => {}
        }
    }

    /// Stores a publication, and reports the result.
    fn append(&self, stored: StreamAppend) {
        match self.streams() {
            Some(streams) => {
                let needs = (streams, Arc::clone(&self.checks), Arc::clone(&self.outages));
                drop(tokio::spawn(append(needs, stored)));
            }
            None => (stored.done)(Err(StreamError::NotOpen)),
        }
    }

    /// Removes a history, and reports the result.
    fn purge(&self, removal: HistoryRemoval, done: OnPurged) {
        let Some(streams) = self.streams() else { return done(Err(StreamError::NotOpen)) };
        drop(tokio::spawn(purge(streams, Arc::clone(&self.outages), removal, done)));
    }

    /// Changes a shared fact, and reports the result.
    fn change_fact(&self, change: (FactChange, OutgoingCharge), done: OnFactChanged) {
        if !self.client.is_up() {
            return done(Err(FactError::NotConnected));
        }
        let (events, outages) = (Arc::clone(&self.events), Arc::clone(&self.fact_outages));
        drop(tokio::spawn(change_fact(self.facts.clone(), (events, outages), change, done)));
    }

    /// Runs a load, or keeps it until the streams are open again. A check is not kept.
    fn load(&mut self, load: StreamLoad) {
        match &self.streams {
            Some(open) if open.lost == self.lost && open.streams.has(&load.namespace) => open.loader.load(load),
            _ if load.is_check => {}
            Some(_) => self.waiting_loads.push_back((now(), load)),
            None => self.refuse(load),
        }
    }

    /// Reports that a load cannot be served now.
    fn refuse(&self, load: StreamLoad) {
        (self.events)(ClusterEvent::Loaded { channel: load.channel, load: load.id, history: None });
    }

    /// The streams, if they have been opened since the last connect.
    pub(crate) fn streams(&self) -> Option<Streams> {
        self.streams.as_ref().filter(|open| open.lost == self.lost).map(|open| open.streams.clone())
    }
}
