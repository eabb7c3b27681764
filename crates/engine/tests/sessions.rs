//! Many sessions and their channels without a network: random lives from seeds. Clients subscribe, leave, disconnect,
//! return with recovery, and publish while others do. Messages of one home arrive in order, messages of different homes
//! in any order, as between shards. No client may miss a publication or get it twice or out of order, and each of its
//! commands has one reply.
//! of its commands has one reply.

#[expect(dead_code, reason = "the codecs use more of it")]
#[path = "../../protocol/tests/codec/random.rs"]
mod random;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use touchline_engine::bans::Bans;
use touchline_engine::reactions::ReactionBoard;
use touchline_engine::request::ChannelEvent;
use touchline_engine::session::{Room, SessionSettings, SessionSigner, Ticket, TransportMode};
use touchline_engine::tracker::{TrackLimits, Tracker};
use touchline_engine::{
    ChannelOptions, ChannelRequest, ChannelSettings, Channels, ClientSettings, ConnectionClaims, ConnectionId, Context,
    Delivery, Effects, Hub, Namespace, Namespaces, Response, Session, SubscriptionClaims, TokenError, Verifier,
};

use touchline_protocol::stream::ChannelName;
use touchline_registry::{HashSeed, OwnerId};

use random::{Random, fuzz};

const CLIENTS: usize = 6;
const STEPS: usize = 400;
const CHANNELS: [&str; 3] = ["h:a", "h:b", "short:c"];

/// Accepts every token. Its text is the user, and its claims make server-side subscriptions.
struct Trusting;

impl Verifier for Trusting {
    fn connection(&self, token: &str, _: u64) -> Result<ConnectionClaims, TokenError> {
        Ok(serde_json::from_value(json!({"sub": token, "channels": ["h:a", "h:b"]})).expect("the claims are good"))
    }

    fn subscription(&self, _: &str, _: u64) -> Result<SubscriptionClaims, TokenError> {
        Err(TokenError::Invalid("a test refuses it"))
    }
}

impl SessionSigner for Trusting {
    fn sign(&self, _: OwnerId) -> String {
        "sealed".into()
    }
}

fn node() -> SessionSettings {
    let open = ChannelOptions {
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
        allow_publish_for_client: true,
        allow_publish_for_anonymous: true,
        allow_history_for_client: true,
        allow_history_for_anonymous: true,
        history_size: 100,
        history_ttl: Duration::from_secs(3_600),
        force_recovery: true,
        ..ChannelOptions::default()
    };
    // The history is so short that recovery must fail at times.
    let short = ChannelOptions { history_size: 3, ..open.clone() };
    let namespaces =
        vec![Namespace { name: "h".into(), options: open.clone() }, Namespace { name: "short".into(), options: short }];
    let settings = ChannelSettings { without_namespace: open, namespaces, ..ChannelSettings::default() };
    let client = ClientSettings { allow_anonymous_connect_without_token: true, ..ClientSettings::default() };
    SessionSettings {
        client,
        namespaces: Arc::new(Namespaces::new(settings)),
        verifier: Box::new(Trusting),
        bans: Arc::new(Bans::none(HashSeed::repeatable(7))),
        scopes: Default::default(),
        hooks: Default::default(),
        version: "test",
        id: "node".into(),
        signer: Arc::new(Trusting),
        users: None,
        limits: None,
        notes_subscriptions: false,
        line_idle: Duration::ZERO,
        deferred_max: 10_000,
        track: TrackLimits { rate: 0, props_max: 0 },
    }
}

/// What a client knows, as an SDK would.
#[derive(Default)]
struct Client {
    session: Option<Session>,
    generation: u32,
    next_id: u32,
    /// The commands that have no reply yet.
    open: BTreeSet<u32>,
    /// The unsubscribes that have no reply yet.
    leaving: BTreeMap<u32, String>,
    /// The last subscribe of each channel: its command, and the offset from which it recovers.
    wanted: BTreeMap<String, (u32, u64)>,
    subscribed: BTreeSet<String>,
    /// The epoch and the last offset of each channel.
    positions: BTreeMap<String, (String, u64)>,
}

enum Queued {
    Answer(usize, u32, Ticket, Response),
    Delivery(Delivery),
}

struct World {
    node: SessionSettings,
    hub: Hub,
    channels: Channels,
    clients: Vec<Client>,
    /// The replies and deliveries of each channel's home that have not arrived yet.
    queues: BTreeMap<ChannelName, VecDeque<Queued>>,
    now_ms: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let node = node();
        let channels = Channels::new(Arc::clone(&node.namespaces), 1, seed | 1, HashSeed::repeatable(7));
        let clients = (0..CLIENTS).map(|_| Client::default()).collect();
        World {
            node,
            hub: Hub::new(HashSeed::repeatable(7)),
            channels,
            clients,
            queues: BTreeMap::new(),
            now_ms: 1_700_000_000_000,
        }
    }

    /// Lets a session decide, carries out its effects, and passes its messages to the client.
    fn with(&mut self, slot: usize, decide: impl FnOnce(&mut Session, &mut Context<'_>)) {
        self.decide(slot, decide);
        if self.clients[slot].session.as_ref().is_some_and(Session::is_deferring) {
            self.resume(slot);
        }
    }

    fn decide(&mut self, slot: usize, decide: impl FnOnce(&mut Session, &mut Context<'_>)) {
        let generation = self.clients[slot].generation;
        let id = ConnectionId { shard: 0, slot: slot as u32, generation };
        let Some(mut session) = self.clients[slot].session.take() else { return };
        let mut effects = Effects::default();
        let (node, hub) = (&self.node, &mut self.hub);
        decide(
            &mut session,
            &mut Context {
                now_ms: self.now_ms,
                now_us: 0,
                random: 7,
                id,
                ping_interval: node.client.ping_interval,
                node,
                hub,
                tracker: &mut Tracker::default(),
                reactions: &mut ReactionBoard::new(Arc::clone(&node.namespaces), 1, HashSeed::repeatable(1)),
                room: Room::ANY,
                effects: &mut effects,
            },
        );
        self.clients[slot].session = Some(session);
        for line in effects.messages.bytes().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let message = serde_json::from_slice(line).expect("messages are JSON lines");
            self.handle_message(slot, &message);
        }
        for frame in effects.released {
            let start = frame.iter().position(|byte| *byte == b'{').expect("a frame holds an object");
            self.handle_message(slot, &serde_json::from_slice(&frame[start..]).expect("frames are JSON"));
        }
        for outbound in effects.requests {
            let response = self.channels.execute(&outbound.channel, outbound.request, self.now_ms);
            if let Some(ticket) = outbound.ticket {
                let home = self.queues.entry(outbound.channel.clone()).or_default();
                home.push_back(Queued::Answer(slot, generation, ticket, response));
            }
            self.queue_deliveries();
        }
        if let Some(why) = effects.disconnect {
            panic!("no client here does anything wrong, but {slot} is ended with {} {}", why.code, why.reason);
        }
    }

    /// Continues with commands that wait for room.
    fn resume(&mut self, slot: usize) {
        let mut resumed = 0;
        self.decide(slot, |session, context| resumed = session.resume(context));
        if resumed > 0 && self.clients[slot].session.as_ref().is_some_and(Session::is_deferring) {
            self.resume(slot);
        }
    }

    fn queue_deliveries(&mut self) {
        for (_, delivery) in self.channels.deliveries() {
            self.queues.entry(delivery.channel.clone()).or_default().push_back(Queued::Delivery(delivery));
        }
    }

    fn handle_message(&mut self, slot: usize, message: &Value) {
        let client = &mut self.clients[slot];
        if let Some(id) = message["id"].as_u64() {
            assert!(client.open.remove(&(id as u32)), "one reply for each command");
            // An unsubscribe that was sent before the connect reply ends a server-side subscription that only this
            // reply has begun.
            if let Some(channel) = client.leaving.remove(&(id as u32))
                && client.wanted.get(&channel).is_none_or(|(command, _)| client.open.contains(command))
            {
                client.subscribed.remove(&channel);
            }
            // A reply to a subscribe that was withdrawn meanwhile is dropped, as SDKs do.
            let wanted = client.wanted.iter().find(|(_, (command, _))| u64::from(*command) == id);
            if let Some((channel, (_, from))) = wanted.map(|(channel, wanted)| (channel.clone(), *wanted))
                && message.get("subscribe").is_some()
            {
                client.begin(&channel, from, &message["subscribe"]);
            }
            for (channel, result) in message["connect"]["subs"].as_object().into_iter().flatten() {
                let from = client.positions.get(channel).map_or(0, |position| position.1);
                client.begin(channel, from, result);
            }
            return;
        }
        let push = &message["push"];
        let channel = push["channel"].as_str().unwrap_or_default();
        if let Some(offset) = push["pub"]["offset"].as_u64() {
            client.receive(channel, offset);
        }
    }

    /// Delivers some queued replies and deliveries, from homes in random order.
    fn deliver(&mut self, most: usize, random: &mut Random) {
        for _ in 0..most {
            self.queues.retain(|_, home| !home.is_empty());
            if self.queues.is_empty() {
                return;
            }
            let home = random.below(self.queues.len());
            match self.queues.values_mut().nth(home).and_then(VecDeque::pop_front) {
                None => {}
                Some(Queued::Answer(slot, generation, ticket, response))
                    if self.clients[slot].generation == generation =>
                {
                    self.with(slot, |session, context| session.handle_reply(ticket, response, context));
                }
                Some(Queued::Answer(..)) => {}
                Some(Queued::Delivery(Delivery {
                    channel,
                    event: ChannelEvent::Publication { publication, .. },
                    ..
                })) => {
                    let Some(local) = self.hub.find(&channel) else { continue };
                    let mut slots = Vec::new();
                    self.hub.subscribers(local).for_each(|slot| slots.push(slot as usize));
                    for slot in slots {
                        let Some(session) = self.clients[slot].session.as_mut() else { continue };
                        if session.is_holding() {
                            session.hold(publication.websocket_json().clone(), usize::MAX);
                        } else {
                            self.clients[slot].receive(&channel, publication.offset.0);
                        }
                    }
                }
                Some(Queued::Delivery(_)) => {}
            }
        }
    }

    fn connect(&mut self, slot: usize, random: &mut Random) {
        let client = &mut self.clients[slot];
        client.generation += 1;
        client.session =
            Some(Session::new([slot as u8; 16], TransportMode::Duplex, true, self.now_ms, &self.node.client));
        client.next_id = 1;
        client.open.insert(1);
        let subs: serde_json::Map<String, Value> =
            client.positions.iter().filter(|(channel, _)| channel.starts_with("h:")).map(recover).collect();
        let connect = if random.one_in(2) { json!({"token": "u", "subs": subs}) } else { json!({}) };
        self.send(slot, &json!({"id": 1, "connect": connect}));
    }

    fn break_off(&mut self, slot: usize) {
        self.with(slot, |session, context| session.close(context));
        let client = &mut self.clients[slot];
        client.generation += 1;
        client.session = None;
        client.open.clear();
        client.wanted.clear();
        client.leaving.clear();
        client.subscribed.clear();
    }

    fn send(&mut self, slot: usize, command: &Value) {
        let text = command.to_string();
        self.with(slot, |session, context| {
            session.receive(text.as_bytes(), context);
        });
    }

    fn command(&mut self, slot: usize, name: &str, request: Value) {
        let client = &mut self.clients[slot];
        client.next_id += 1;
        let id = client.next_id;
        let channel = request["channel"].as_str().unwrap_or_default().to_owned();
        client.open.insert(id);
        match name {
            "subscribe" if !client.subscribed.contains(&channel) => {
                client.wanted.insert(channel, (id, request["offset"].as_u64().unwrap_or(0)));
            }
            "unsubscribe" => {
                client.subscribed.remove(&channel);
                client.wanted.remove(&channel);
                client.leaving.insert(id, channel);
            }
            _ => {}
        }
        self.send(slot, &json!({"id": id, name: request}));
    }

    fn step(&mut self, random: &mut Random) {
        let slot = random.below(CLIENTS);
        let channel = CHANNELS[random.below(CHANNELS.len())];
        if self.clients[slot].session.is_none() {
            return self.connect(slot, random);
        }
        match random.below(12) {
            0..=2 => self.deliver(1 + random.below(6), random),
            3..=5 => {
                let publish = ChannelRequest::Publish(Box::new(touchline_engine::request::Publish {
                    content: touchline_protocol::publication::Content { data: "1".into(), ..Default::default() },
                    ..Default::default()
                }));
                self.channels.execute(&channel.into(), publish, self.now_ms);
                self.queue_deliveries();
            }
            6 | 7 if !self.clients[slot].waits_for(channel) => {
                let position = self.clients[slot].positions.get_key_value(channel).map(|known| recover(known).1);
                let mut request = position.unwrap_or_else(|| json!({}));
                request["channel"] = channel.into();
                self.command(slot, "subscribe", request);
            }
            8 => self.command(slot, "unsubscribe", json!({"channel": channel})),
            9 => self.command(slot, "publish", json!({"channel": channel, "data": 2})),
            10 => self.command(slot, "history", json!({"channel": channel, "limit": 5})),
            _ if random.one_in(3) => self.break_off(slot),
            _ => self.now_ms += 50,
        }
    }
}

fn recover((channel, (epoch, offset)): (&String, &(String, u64))) -> (String, Value) {
    (channel.clone(), json!({"recover": true, "epoch": epoch, "offset": offset}))
}

impl Client {
    /// Whether a subscribe is under way: an SDK does not send a second one.
    fn waits_for(&self, channel: &str) -> bool {
        self.wanted.get(channel).is_some_and(|(command, _)| self.open.contains(command))
    }

    /// Begins a subscription. The publications missed since `from` come first.
    fn begin(&mut self, channel: &str, from: u64, result: &Value) {
        let (epoch, offset) =
            (result["epoch"].as_str().unwrap_or_default().to_owned(), result["offset"].as_u64().unwrap_or(0));
        let missed: Vec<u64> =
            result["publications"].as_array().into_iter().flatten().filter_map(|p| p["offset"].as_u64()).collect();
        // The recovered publications lead from the requested offset to the top.
        let top = missed.last().copied().unwrap_or(offset);
        if result["recovered"] == true {
            assert_eq!(offset, from, "{channel}: it goes on from where it was");
            assert_eq!(missed, (from + 1..=top).collect::<Vec<_>>(), "{channel}: exactly what was missed");
        } else {
            assert!(missed.is_empty(), "{channel}: nothing comes where nothing was recovered");
        }
        self.positions.insert(channel.to_owned(), (epoch, top));
        self.subscribed.insert(channel.to_owned());
    }

    /// Receives a live publication.
    fn receive(&mut self, channel: &str, offset: u64) {
        // A publication that was under way when the client unsubscribed. An SDK drops it.
        if !self.subscribed.contains(channel) {
            return;
        }
        let position = self.positions.get_mut(channel).expect("a subscription has a position");
        assert_eq!(offset, position.1 + 1, "{channel}: the next one, and no other");
        position.1 = offset;
    }
}

#[test]
fn nothing_is_missing_doubled_or_out_of_order() {
    fuzz(|random| {
        let mut world = World::new(random.next());
        for _ in 0..STEPS {
            world.step(random);
        }
        world.deliver(usize::MAX, random);
        for (slot, client) in world.clients.iter().enumerate() {
            assert!(client.open.is_empty(), "client {slot} waits for replies to {:?}", client.open);
        }
        // Every client has everything up to the top of its channels.
        for channel in CHANNELS {
            let top = match world.channels.execute(
                &channel.into(),
                ChannelRequest::History(Default::default()),
                world.now_ms,
            ) {
                Response::History { position, .. } => position.offset.0,
                other => panic!("{other:?}"),
            };
            for client in world.clients.iter().filter(|client| client.subscribed.contains(channel)) {
                assert_eq!(client.positions[channel].1, top, "{channel}");
            }
        }
    });
}
