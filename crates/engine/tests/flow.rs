//! What a client can make its session do: random commands, with late replies in any order, with much room, little or
//! none. Whatever the client sends, the requests under way stay below their limit, and at most one of them has a large
//! reply. The replies that wait are at most the room plus one reply. In the end each command has exactly one reply.

#[expect(dead_code, reason = "the codecs use more of it")]
#[path = "../../protocol/tests/codec/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Value, json};
use touchline_engine::bans::Bans;
use touchline_engine::directory::DirectoryRequest;
use touchline_engine::limit::{
    AddressKey, CommandCharge, LimitLayer, LimitOutcome, LimitVerdict, LimitedCommand, OnLimit, RateLimitSettings,
    RateLimits, SharedLimits, Sharer,
};
use touchline_engine::reactions::ReactionBoard;
use touchline_engine::request::{ChannelRequest, Publish};
use touchline_engine::session::{Room, SessionSettings, SessionSigner, Ticket, TransportMode, Weight};
use touchline_engine::tracker::{TrackLimits, Tracker};
use touchline_engine::{
    ChannelOptions, ChannelSettings, Channels, ClientSettings, ConnectionClaims, ConnectionId, Context, Effects, Hub,
    Namespaces, Response, Session, SubscriptionClaims, TokenError, Verifier,
};
use touchline_protocol::publication::Content;
use touchline_registry::{HashSeed, OwnerId};

use random::{Random, fuzz};

const IN_FLIGHT: usize = 5;
const PUBLICATIONS: usize = 40;
const PUBLICATION_SIZE: usize = 1_000;
/// The greatest size of one reply.
const ANSWER: usize = PUBLICATIONS * (PUBLICATION_SIZE + 200);

struct Trusting;

impl Verifier for Trusting {
    fn connection(&self, _: &str, _: u64) -> Result<ConnectionClaims, TokenError> {
        Err(TokenError::Invalid("a test refuses it"))
    }

    fn subscription(&self, _: &str, _: u64) -> Result<SubscriptionClaims, TokenError> {
        Err(TokenError::Invalid("a test refuses it"))
    }
}

impl SessionSigner for Trusting {
    fn sign(&self, _: OwnerId) -> String {
        String::new()
    }
}

fn node() -> SessionSettings {
    let open = ChannelOptions {
        presence: true,
        history_size: PUBLICATIONS,
        history_ttl: Duration::from_secs(3_600),
        force_recovery: true,
        ..ChannelOptions::default()
    };
    let client = ClientSettings { insecure: true, commands_in_flight_max: IN_FLIGHT, ..ClientSettings::default() };
    let settings = ChannelSettings { without_namespace: open, ..ChannelSettings::default() };
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
        notes_subscriptions: false,
        line_idle: Duration::ZERO,
        deferred_max: 1_000_000,
        track: TrackLimits { rate: 0, props_max: 0 },
        users: None,
        limits: None,
    }
}

/// Counts the charged commands, and makes some commands wait, or all.
#[derive(Default)]
struct Counting {
    charged: AtomicUsize,
    given_back: AtomicUsize,
    /// How long the command that was charged last may wait, nanoseconds.
    patience_ns: AtomicU64,
    /// One of this many commands has to wait; 0 = none has to.
    waits: usize,
}

impl SharedLimits for Counting {
    fn charge(&self, _: Sharer<'_>, charge: &CommandCharge<'_>) -> LimitVerdict {
        if charge.command == LimitedCommand::Connect {
            return LimitVerdict::Allowed(0);
        }
        self.patience_ns.store(charge.patience_ns, Relaxed);
        let charged = self.charged.fetch_add(1, Relaxed);
        let has_to_wait = self.waits > 0 && charged.is_multiple_of(self.waits);
        LimitVerdict::Allowed(if has_to_wait { 1_500 } else { 0 })
    }

    fn give_back(&self, _: Sharer<'_>, _: &CommandCharge<'_>) {
        self.given_back.fetch_add(1, Relaxed);
    }

    fn note_refusal(&self, _: Sharer<'_>, _: u64) -> bool {
        false
    }

    fn is_refused(&self, _: Sharer<'_>, _: u64) -> bool {
        false
    }

    fn begin_attempt(&self, _: AddressKey, _: u64) -> bool {
        true
    }

    fn end_attempt(&self, _: AddressKey, _: u64) {}

    fn note_failed_connect(&self, _: AddressKey, _: u64) {}

    fn count_command(&self, _: LimitLayer, _: LimitedCommand, _: LimitOutcome) {}

    fn count_error(&self, _: LimitOutcome) {}

    fn count_escalation(&self) {}
}

struct World {
    node: SessionSettings,
    now_us: u64,
    /// The client's input waits until this time, microseconds.
    held_until_us: u64,
    hub: Hub,
    channels: Channels,
    session: Session,
    /// The answers that are under way.
    answers: Vec<(Ticket, Response)>,
    replies: BTreeMap<u32, usize>,
}

impl World {
    fn new() -> Self {
        let node = node();
        let mut channels = Channels::new(Arc::clone(&node.namespaces), 1, 1, HashSeed::repeatable(7));
        for channel in ["a", "b", "c"] {
            for _ in 0..PUBLICATIONS {
                let content =
                    Content { data: format!("\"{}\"", "x".repeat(PUBLICATION_SIZE)).into(), ..Content::default() };
                channels.execute(
                    &channel.into(),
                    ChannelRequest::Publish(Box::new(Publish { content, ..Publish::default() })),
                    1,
                );
            }
        }
        let session = Session::new([1; 16], TransportMode::Duplex, true, 1, &node.client);
        World {
            node,
            now_us: 0,
            held_until_us: 0,
            hub: Hub::new(HashSeed::repeatable(7)),
            channels,
            session,
            answers: Vec::new(),
            replies: BTreeMap::new(),
        }
    }

    /// The same with rates by address, which make commands wait.
    fn with_limits(counting: &Arc<Counting>) -> Self {
        let mut settings = RateLimitSettings { on_limit: OnLimit::Slow, ..RateLimitSettings::default() };
        settings.address_command.commands.enabled = true;
        let mut world = World::new();
        world.node.limits = Some(RateLimits::new(&settings, Arc::clone(counting) as _));
        world.session.set_address(AddressKey(7));
        world
    }

    /// Lets the session decide with this much room, and collects the effects.
    fn decide<T>(&mut self, room: usize, decide: impl FnOnce(&mut Session, &mut Context<'_>) -> T) -> T {
        let room = if self.held_until_us > self.now_us { 0 } else { room };
        let mut effects = Effects::default();
        let outcome = decide(
            &mut self.session,
            &mut Context {
                now_ms: 1,
                now_us: self.now_us,
                random: 7,
                id: ConnectionId { shard: 0, slot: 0, generation: 0 },
                ping_interval: self.node.client.ping_interval,
                node: &self.node,
                hub: &mut self.hub,
                tracker: &mut Tracker::default(),
                reactions: &mut ReactionBoard::new(Arc::clone(&self.node.namespaces), 1, HashSeed::repeatable(1)),
                room: Room { bytes: room, is_scarce: false },
                effects: &mut effects,
            },
        );
        assert_eq!(effects.disconnect, None);
        if let Some(until_us) = effects.hold_until_us {
            assert!(until_us > self.now_us && self.held_until_us <= self.now_us, "one command waits at a time");
            self.held_until_us = until_us;
        }
        for refused in &effects.refusals {
            assert!(effects.errors().any(|code| code == refused.code), "a cause without an error: {refused:?}");
            assert!(!refused.cause.is_empty() && refused.channel.len() <= 64, "{refused:?}");
        }
        let unknown = effects.errors().filter(|code| *code == 102).count();
        let caused = effects.refusals.iter().filter(|refused| refused.code == 102).count();
        assert_eq!(unknown, caused, "each unknown namespace is logged");
        let made = effects.messages.bytes();
        assert!(made.len() <= room + ANSWER, "{} bytes were made where there was room for {room}", made.len());
        for line in made.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let reply: Value = serde_json::from_slice(line).expect("messages are JSON lines");
            if let Some(id) = reply["id"].as_u64() {
                *self.replies.entry(id as u32).or_default() += 1;
            }
        }
        for outbound in effects.requests {
            let response = self.channels.execute(&outbound.channel, outbound.request, 1);
            self.channels.deliveries();
            self.answers.extend(outbound.ticket.map(|ticket| (ticket, response)));
        }
        for (ticket, _, ask) in effects.directory_requests {
            assert!(!matches!(ask, DirectoryRequest::Close), "the session goes on");
            self.answers.extend(ticket.map(|ticket| (ticket, Response::Refused(touchline_protocol::Error::INTERNAL))));
        }
        let large = |ticket: &Ticket| {
            matches!(
                ticket,
                Ticket::Reply { weight: Weight::Large, .. }
                    | Ticket::Directory { weight: Weight::Large, .. }
                    | Ticket::Subscribe { weight: Weight::Large, .. }
            )
        };
        assert!(self.answers.len() <= IN_FLIGHT, "{} requests are under way", self.answers.len());
        assert!(self.answers.iter().filter(|(ticket, _)| large(ticket)).count() <= 1, "large answers go alone");
        outcome
    }

    fn give_answer(&mut self, random: &mut Random, room: usize) {
        if !self.answers.is_empty() {
            let (ticket, response) = self.answers.swap_remove(random.below(self.answers.len()));
            self.decide(room, |session, context| session.handle_reply(ticket, response, context));
        }
    }
}

/// A random command of a client. `leaves`: it may be an unsubscribe.
fn command(random: &mut Random, id: u32, leaves: bool) -> Value {
    let channel = ["a", "b", "c", "d"][random.below(4)];
    match random.below(7) {
        0 | 1 => json!({"id": id, "history": {"channel": channel, "limit": random.below(60)}}),
        2 => json!({"id": id, "subscribe": {"channel": channel, "recover": true, "offset": random.below(50)}}),
        3 if leaves => json!({"id": id, "unsubscribe": {"channel": channel}}),
        4 => json!({"id": id, "presence": {"channel": channel}}),
        5 => json!({"id": id, "publish": {"channel": channel, "data": 1}}),
        _ => json!({"id": id, "rpc": {"method": "nothing"}}),
    }
}

#[test]
fn whatever_a_client_sends_its_session_stays_within_its_room() {
    fuzz(|random| {
        run(random, World::new());
    });
}

/// However commands wait for room, for replies and for their rates: each one is charged once and has one reply.
#[test]
fn each_command_is_charged_once_however_it_waits() {
    fuzz(|random| {
        let counting = Arc::new(Counting { waits: random.below(4), ..Counting::default() });
        let last = run(random, World::with_limits(&counting));
        assert_eq!(counting.charged.load(Relaxed), last as usize - 1, "all but the connect");
    });
}

/// The time that a command waits is counted from when it was read. A client that leaves gives back unused tokens.
#[test]
fn a_command_waits_from_when_it_was_read_and_gives_its_tokens_back_if_it_is_not_carried_out() {
    let counting = Arc::new(Counting { waits: 1, ..Counting::default() });
    let mut world = World::with_limits(&counting);
    let patience_us = || counting.patience_ns.load(Relaxed) / 1_000;
    world.decide(1_000, |session, context| session.receive(b"{\"id\":1,\"connect\":{}}", context));
    let publish = |id: u32| json!({"id": id, "publish": {"channel": "a", "data": 1}}).to_string();
    let pair = format!("{}\n{}", publish(2), publish(3));
    world.decide(1_000, |session, context| session.receive(pair.as_bytes(), context));
    assert_eq!(patience_us(), 4_000_000);
    world.now_us = 1;
    world.decide(0, |session, context| session.receive(publish(4).as_bytes(), context));
    for (now_us, left_us) in [(2, 4_000_000 - 2), (10, 4_000_000 - 9)] {
        world.now_us = now_us;
        world.decide(1_000, |session, context| session.resume(context));
        assert_eq!(patience_us(), left_us);
    }
    assert!(world.session.waits_for_rate() && world.session.reads_ahead(&world.node));
    assert_eq!(counting.given_back.load(Relaxed), 0);
    world.decide(0, |session, context| session.close(context));
    assert_eq!((counting.given_back.load(Relaxed), counting.charged.load(Relaxed)), (1, 3));
}

/// Simulates a client that sends commands, until each has its reply. Returns the number of commands.
fn run(random: &mut Random, mut world: World) -> u32 {
    world.decide(usize::MAX / 2, |session, context| session.receive(b"{\"id\":1,\"connect\":{}}", context));
    let mut last = 1;
    // An unsubscribe from a channel that the client is not in is not charged.
    let leaves = world.node.limits.is_none();
    for _ in 0..60 {
        world.now_us += random.below(3) as u64;
        let room = [0, 1, 100, 5_000, 64 * 1_024][random.below(5)];
        match random.below(4) {
            0 => {
                let first = last + 1;
                last += random.below(12) as u32;
                let message: Vec<String> = (first..=last).map(|id| command(random, id, leaves).to_string()).collect();
                if !message.is_empty() {
                    world.decide(room, |session, context| session.receive(message.join("\n").as_bytes(), context));
                }
            }
            1 => {
                world.decide(room, |session, context| session.resume(context));
            }
            _ => world.give_answer(random, room),
        }
    }
    // The client reads again, so everything finishes.
    for _ in 0..2_000 {
        world.now_us += 1;
        world.give_answer(random, 1);
        world.decide(1, |session, context| session.resume(context));
    }
    assert!(!world.session.is_deferring() && world.answers.is_empty() && world.session.buffered_bytes() == 0);
    let expected: BTreeMap<u32, usize> = (1..=last).map(|id| (id, 1)).collect();
    assert_eq!(world.replies, expected, "each command has one reply");
    last
}
