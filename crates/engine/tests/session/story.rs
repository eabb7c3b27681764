//! One shard without a network, and stories about its clients. A story is a transcript: what each client sends, and
//! everything that it receives.
//!
//! ```text
//! ann> {"id":1,"connect":{"token":"{'sub':'ann'}"}}
//! ann< {"id":1,"connect":{"client":"<ann>",…}}
//! @ 25000
//! ann< ping
//! ```
//!
//! `@` sets the clock, milliseconds since the start. `<ann>` stands for ann's client id, `epoch-1` for the epoch that
//! was received first. A `\` at the end of a line joins it with the next one. Besides messages a client receives `ping`
//! and `disconnect CODE REASON`. The text of a token is its claims, with `'` for `"`; `expired` and `forged` are tokens
//! that are not valid.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use touchline_engine::bans::Bans;
use touchline_engine::directory::{Directory, DirectoryEffect, ScopeOptions, message_push, numbered};
use touchline_engine::hook::{HookCall, HookOutcome};
use touchline_engine::reactions::ReactionBoard;
use touchline_engine::request::{ChannelEvent, Publish};
use touchline_engine::session::{RefusalReport, Room, SessionSettings, Ticket, TransportMode, UserCounter};
use touchline_engine::tracker::{TrackLimits, Tracker};
use touchline_engine::{
    ChannelOptions, ChannelRequest, ChannelSettings, Channels, ClientProgram, ClientSettings, ConnectionId, Context,
    Delivery, Effects, Hub, Namespace, Namespaces, Response, Session,
};
use touchline_protocol::message::Encoding;
use touchline_protocol::publication::{Content, Delta};
use touchline_protocol::stream::ChannelName;
use touchline_protocol::wire::{Coding, Framing};
use touchline_protocol::{Disconnect, Wire};
use touchline_registry::{HashSeed, OwnerId, ReplicaTiming};

use crate::claims::Claims;

/// When every story begins, Unix seconds.
pub(crate) const START_S: u64 = 1_000_000_000;

/// The configuration of a story.
pub(crate) struct Settings {
    pub(crate) client: ClientSettings,
    pub(crate) channel: ChannelSettings,
    pub(crate) scopes: Vec<ScopeOptions>,
    pub(crate) users: Option<Arc<dyn UserCounter + Send + Sync>>,
    pub(crate) track: TrackLimits,
    pub(crate) deferred_max: usize,
    pub(crate) line_idle: Duration,
}

impl Settings {
    /// Adds a namespace.
    pub(crate) fn namespace(&mut self, name: &str, change: impl FnOnce(&mut ChannelOptions)) {
        let mut options = ChannelOptions::default();
        change(&mut options);
        self.channel.namespaces.push(Namespace { name: name.into(), options });
    }

    /// Adds a scope of the registry.
    pub(crate) fn scope(&mut self, name: &str, change: impl FnOnce(&mut ScopeOptions)) {
        let mut options = ScopeOptions { name: name.into(), ..ScopeOptions::default() };
        change(&mut options);
        self.scopes.push(options);
    }
}

/// Gives channels a history.
pub(crate) fn with_history(options: &mut ChannelOptions) {
    (options.history_size, options.history_ttl) = (10, Duration::from_secs(3_600));
}

type Asker = (usize, Ticket);

enum Queued {
    Answer(Asker, Response),
    Delivery(Delivery),
}

struct Person {
    name: &'static str,
    session: Session,
    body: Encoding,
    received: VecDeque<String>,
    refused: Vec<RefusalReport>,
    program: Option<ClientProgram>,
    is_gone: bool,
}

/// A story; the module's documentation explains it.
pub(crate) struct Story {
    pub(crate) node: SessionSettings,
    /// Whether answers and deliveries wait until [`Story::arrive`].
    pub(crate) is_slow: bool,
    /// The room of each connection for replies.
    pub(crate) room: Room,
    pub(crate) random: u64,
    pub(crate) tracker: Tracker,
    pub(crate) reactions: ReactionBoard,
    /// Every request to a home, with its channel.
    pub(crate) requests: Vec<(ChannelName, String)>,
    /// Every request to the directory.
    pub(crate) asks: Vec<String>,
    /// Every question to the backend that has no answer and was not cancelled, with the index of its connection.
    pub(crate) questions: Vec<(usize, HookCall)>,
    pub(crate) now_ms: u64,
    hub: Hub,
    channels: Channels,
    directory: Directory<Asker>,
    people: Vec<Person>,
    queue: VecDeque<Queued>,
    /// The epochs, in the order in which clients received them.
    epochs: Vec<String>,
}

impl Story {
    /// A node that accepts anonymous clients, with these changes to its settings.
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            client: ClientSettings { allow_anonymous_connect_without_token: true, ..ClientSettings::default() },
            channel: ChannelSettings::default(),
            scopes: Vec::new(),
            users: None,
            track: TrackLimits { rate: 0, props_max: 0 },
            deferred_max: 10_000,
            line_idle: Duration::ZERO,
        };
        change(&mut settings);
        let now_ms = START_S * 1_000;
        let directory = Directory::new(
            "here",
            &settings.scopes,
            &ReplicaTiming::default(),
            7,
            HashSeed::repeatable(7),
            false,
            now_ms,
        );
        let node = SessionSettings {
            client: settings.client,
            namespaces: Arc::new(Namespaces::new(settings.channel)),
            verifier: Box::new(Claims),
            bans: Arc::new(Bans::none(HashSeed::repeatable(7))),
            scopes: directory.scopes(),
            hooks: Default::default(),
            version: "1.0",
            id: "node".into(),
            signer: Arc::new(Claims),
            users: settings.users,
            limits: None,
            deferred_max: settings.deferred_max,
            track: settings.track,
            notes_subscriptions: false,
            line_idle: settings.line_idle,
        };
        let channels = Channels::new(Arc::clone(&node.namespaces), 1, 1, HashSeed::repeatable(7));
        let reactions = ReactionBoard::new(Arc::clone(&node.namespaces), 10, HashSeed::repeatable(7));
        Story {
            node,
            reactions,
            is_slow: false,
            room: Room::ANY,
            random: 0,
            tracker: Tracker::default(),
            requests: Vec::new(),
            asks: Vec::new(),
            questions: Vec::new(),
            now_ms,
            hub: Hub::new(HashSeed::repeatable(7)),
            channels,
            directory,
            people: Vec::new(),
            queue: VecDeque::new(),
            epochs: Vec::new(),
        }
    }

    /// Opens a connection.
    pub(crate) fn open(&mut self, name: &'static str, link: TransportMode) {
        self.open_from(name, link, true);
    }

    /// Opens a connection from this machine or from another one.
    pub(crate) fn open_from(&mut self, name: &'static str, link: TransportMode, is_loopback: bool) {
        let id = [self.people.len() as u8 + 1; 16];
        let session = Session::new(id, link, is_loopback, self.now_ms, &self.node.client);
        let body = if link == TransportMode::OneWay { Encoding::Push } else { Encoding::Json };
        self.people.push(Person {
            name,
            session,
            body,
            received: VecDeque::new(),
            refused: Vec::new(),
            program: None,
            is_gone: false,
        });
    }

    /// From now on a client speaks Protobuf. What it receives is shown only as `Protobuf`.
    pub(crate) fn in_protobuf(&mut self, name: &str) {
        let index = self.index(name);
        self.people[index].body = Encoding::Protobuf;
    }

    /// Plays a transcript. The clients must receive exactly what it says, in its order.
    pub(crate) fn play(&mut self, script: &str) {
        let script = script.split("\\\n").map(str::trim_start).collect::<String>();
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(at) = line.strip_prefix("@ ") {
                self.quiet(line);
                self.at(at.parse().expect("a time"));
            } else if let Some((name, text)) =
                line.split_once('>').filter(|(name, _)| name.chars().all(char::is_alphanumeric))
            {
                self.quiet(line);
                self.say(name, text.trim());
            } else {
                let (name, expected) = line.split_once("< ").unwrap_or_else(|| panic!("no line of a story: {line}"));
                let (expected, index) = (self.named(expected), self.index(name));
                let received = self.people[index]
                    .received
                    .pop_front()
                    .unwrap_or_else(|| panic!("{name} hears nothing instead of {expected}"));
                let is_it = match (serde_json::from_str::<Value>(&received), serde_json::from_str::<Value>(&expected)) {
                    (Ok(received), Ok(expected)) => received == expected,
                    _ => received == expected,
                };
                assert!(is_it, "{name} hears\n  {received}\ninstead of\n  {expected}");
            }
        }
        self.quiet("the end");
    }

    /// Connects a client. `claims`: the claims of its token; empty = it has no token.
    pub(crate) fn connect(&mut self, name: &'static str, claims: &str) {
        self.open(name, TransportMode::Duplex);
        self.say(name, &format!(r#"{{"id":1,"connect":{{"token":"{claims}"}}}}"#));
        let index = self.index(name);
        let answer = self.people[index].received.pop_front().unwrap_or_default();
        assert!(answer.starts_with(r#"{"id":1,"connect":"#), "{name} hears {answer:?}");
    }

    /// Sends a text from a client.
    pub(crate) fn say(&mut self, name: &str, text: &str) {
        if !self.people.iter().any(|person| person.name == name) {
            self.open(String::leak(name.to_owned()), TransportMode::Duplex);
        }
        let mut text = self.named(text);
        for (index, epoch) in self.epochs.iter().enumerate() {
            text = text.replace(&format!("epoch-{}", index + 1), epoch);
        }
        self.decide(name, |session, context| session.receive(text.as_bytes(), context));
    }

    /// What a client has received since the last call.
    pub(crate) fn received(&mut self, name: &str) -> Vec<String> {
        let index = self.index(name);
        self.people[index].received.drain(..).collect()
    }

    /// The number of the error or disconnect that a command gets; 0 = it is executed.
    pub(crate) fn code(&mut self, name: &str, command: &str) -> u64 {
        self.say(name, command);
        let received = self.received(name);
        let answers: Vec<_> = received.iter().filter(|message| !message.starts_with(r#"{"push":"#)).collect();
        let [answer] = &answers[..] else { panic!("one answer to {command}, not {received:?}") };
        match answer.strip_prefix("disconnect ").and_then(|rest| rest.split(' ').next()) {
            Some(code) => code.parse().expect("a code"),
            None => serde_json::from_str::<Value>(answer).expect("JSON")["error"]["code"].as_u64().unwrap_or(0),
        }
    }

    /// The causes of a client's refusals since the last call, as the log gets them.
    pub(crate) fn refused(&mut self, name: &str) -> Vec<RefusalReport> {
        let index = self.index(name);
        std::mem::take(&mut self.people[index].refused)
    }

    /// The name and version of a client's program, as metrics show them.
    pub(crate) fn program(&self, name: &str) -> Option<(&str, &str)> {
        self.people[self.index(name)].program.as_ref().map(|program| (&*program.name, &*program.version))
    }

    pub(crate) fn session(&self, name: &str) -> &Session {
        &self.people[self.index(name)].session
    }

    /// Sets the clock, and lets each session do what is due.
    pub(crate) fn at(&mut self, ms: u64) {
        self.now_ms = START_S * 1_000 + ms;
        let names: Vec<_> = self.people.iter().filter(|person| !person.is_gone).map(|person| person.name).collect();
        for name in names {
            let index = self.index(name);
            let deadline_ms = |story: &Story| story.people[index].session.deadline_ms(&story.node.client);
            let (due_ms, before) = (deadline_ms(self), self.people[index].received.len());
            self.decide(name, |session, context| session.tick(context));
            let is_idle = self.people[index].received.len() == before;
            assert!(is_idle || due_ms <= self.now_ms, "{name} has something to do before its deadline at {due_ms}");
            let next_ms = deadline_ms(self);
            assert!(
                self.people[index].is_gone || next_ms > self.now_ms,
                "{name} has something left to do since {next_ms}"
            );
        }
    }

    /// When the tick of a client's session is due, milliseconds since the start.
    pub(crate) fn deadline(&self, name: &str) -> u64 {
        self.session(name).deadline_ms(&self.node.client) - START_S * 1_000
    }

    /// Publishes through the server API.
    pub(crate) fn publish(&mut self, channel: &str, data: &str) {
        self.publish_content(channel, Content { data: data.to_owned().into(), ..Content::default() });
    }

    pub(crate) fn publish_content(&mut self, channel: &str, content: Content) {
        let publish = ChannelRequest::Publish(Box::new(Publish { content, ..Publish::default() }));
        self.channels.execute(&channel.into(), publish, self.now_ms);
        self.post();
        self.carry();
    }

    /// Lets a session do something, and carries out its effects.
    pub(crate) fn decide<T>(&mut self, name: &str, act: impl FnOnce(&mut Session, &mut Context<'_>) -> T) -> T {
        let index = self.index(name);
        let outcome = self.act(index, act);
        while self.people[index].session.is_deferring() && self.act(index, Session::resume) > 0 {}
        self.carry();
        outcome
    }

    /// Lets the next response or delivery arrive, in a story in which they are slow.
    pub(crate) fn arrive(&mut self) {
        match self.queue.pop_front().expect("something is under way") {
            Queued::Answer((index, ticket), response) => {
                if !self.people[index].is_gone {
                    self.act(index, |session, context| session.handle_reply(ticket, response, context));
                    while self.people[index].session.is_deferring() && self.act(index, Session::resume) > 0 {}
                }
            }
            Queued::Delivery(delivery) => self.deliver(&delivery),
        }
    }

    /// Answers one of the open questions to the backend.
    pub(crate) fn answer_question(&mut self, number: usize, outcome: HookOutcome) {
        let (index, call) = self.questions.remove(number);
        self.answer_serial(index, call.serial, outcome);
    }

    /// Answers the question with this number of a connection, even if it was cancelled.
    pub(crate) fn answer_serial(&mut self, index: usize, serial: u32, outcome: HookOutcome) {
        self.act(index, |session, context| session.handle_hook(serial, outcome, context));
        while self.people[index].session.is_deferring() && self.act(index, Session::resume) > 0 {}
        self.carry();
    }

    /// The number of answers and deliveries under way.
    pub(crate) fn under_way(&self) -> usize {
        self.queue.len()
    }

    /// Replaces the next response.
    pub(crate) fn forge_answer(&mut self, forged: Response) {
        let answer = self
            .queue
            .iter_mut()
            .find_map(|queue| if let Queued::Answer(_, response) = queue { Some(response) } else { None });
        *answer.expect("an answer is under way") = forged;
    }

    fn carry(&mut self) {
        while !self.is_slow && !self.queue.is_empty() {
            self.arrive();
        }
    }

    fn act<T>(&mut self, index: usize, act: impl FnOnce(&mut Session, &mut Context<'_>) -> T) -> T {
        let mut effects = Effects::default();
        effects.messages.encode_as(self.people[index].body);
        let (person, epochs) = (&mut self.people[index], &mut self.epochs);
        let outcome = act(
            &mut person.session,
            &mut Context {
                now_ms: self.now_ms,
                now_us: 0,
                random: self.random,
                id: ConnectionId { shard: 0, slot: index as u32, generation: 0 },
                ping_interval: self.node.client.ping_interval,
                node: &self.node,
                hub: &mut self.hub,
                tracker: &mut self.tracker,
                reactions: &mut self.reactions,
                room: self.room,
                effects: &mut effects,
            },
        );
        let lines = effects.messages.bytes().split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines: Vec<_> = match person.body {
            Encoding::Protobuf => lines.take(1).map(|_| "Protobuf".to_owned()).collect(),
            _ => lines.map(|line| received(line, epochs)).collect(),
        };
        let errors = lines.iter().filter(|line| line.contains(r#""error":{"code":"#)).count();
        assert!(
            person.body != Encoding::Json || errors == effects.errors().count(),
            "metrics count the errors: {:?}, {lines:?}",
            effects.errors().collect::<Vec<_>>()
        );
        person.received.extend(lines);
        person.received.extend(effects.released.iter().map(|frame| received(frame, epochs)));
        person.received.extend(effects.ping.then(|| "ping".to_owned()));
        person.refused.append(&mut effects.refusals);
        person.program = effects.program.take().or(person.program.take());
        let disconnect = effects.disconnect.take();
        self.request(index, effects);
        if let Some(why) = disconnect {
            self.hang_up(index, &why);
        }
        outcome
    }

    /// Ends a connection as its session requires: the session releases everything.
    fn hang_up(&mut self, index: usize, why: &Disconnect) {
        self.people[index].received.push_back(format!("disconnect {} {}", why.code, why.reason));
        if !std::mem::replace(&mut self.people[index].is_gone, true) {
            self.act(index, |session, context| session.close(context));
        }
    }

    fn request(&mut self, index: usize, effects: Effects) {
        self.questions.extend(effects.hook_calls.into_iter().map(|call| (index, call)));
        self.questions.retain(|(asker, call)| *asker != index || !effects.cancelled_hooks.contains(&call.serial));
        for outbound in effects.requests {
            self.requests.push((outbound.channel.clone(), format!("{:?}", outbound.request)));
            let response = self.channels.execute(&outbound.channel, outbound.request, self.now_ms);
            self.queue.extend(outbound.ticket.map(|ticket| Queued::Answer((index, ticket), response)));
            self.post();
        }
        for (ticket, requester, ask) in effects.directory_requests {
            self.asks.push(format!("{ask:?}"));
            self.directory.execute(&requester, ask, ticket.map(|ticket| (index, ticket)), self.now_ms);
            self.enact();
        }
    }

    fn enact(&mut self) {
        let acts: Vec<_> = self.directory.effects().collect();
        for act in acts {
            match act {
                DirectoryEffect::Reply(asker, answer) => {
                    self.queue
                        .push_back(Queued::Answer(asker, answer.map_or_else(Response::Refused, Response::Directory)));
                }
                DirectoryEffect::Announce(channel, push) => {
                    self.channels.execute(&channel, ChannelRequest::Announce(push), self.now_ms);
                    self.post();
                }
                DirectoryEffect::Push(owner, message) => self.give(owner, message_push(&message).json()),
                DirectoryEffect::Call(owner, call, message) => {
                    self.give(owner, message_push(&numbered(call, &message)).json())
                }
                DirectoryEffect::Disconnect(owner) => {
                    if let Some(index) = self.people.iter().position(|person| person.session.owner() == owner) {
                        self.hang_up(index, &Disconnect::FORCE_NO_RECONNECT);
                    }
                }
                _ => {}
            }
        }
    }

    fn give(&mut self, owner: OwnerId, message: &[u8]) {
        if let Some(person) = self.people.iter_mut().find(|person| person.session.owner() == owner) {
            person.received.push_back(received(message, &mut self.epochs));
        }
    }

    fn post(&mut self) {
        self.queue.extend(self.channels.deliveries().map(|(_, delivery)| Queued::Delivery(delivery)));
    }

    fn deliver(&mut self, delivery: &Delivery) {
        let Some(local) = self.hub.find(&delivery.channel) else { return };
        let wire = |body| Wire { encoding: body, framing: Framing::Stream(Coding::Identity) };
        let mut given = Vec::new();
        match &delivery.event {
            ChannelEvent::Publication { publication, previous } => {
                let people = &self.people;
                self.hub.for_each_recipient(
                    local,
                    previous.is_some(),
                    || publication.tags(),
                    |slot, giving| {
                        use touchline_engine::hub::DeliveryForm;
                        let change = match (giving, previous) {
                            (DeliveryForm::Delta, Some(previous)) => Delta::From(previous),
                            (DeliveryForm::Plain, _) => Delta::None,
                            _ => Delta::Whole,
                        };
                        given.push((slot, publication.framed(wire(people[slot as usize].body), change)));
                    },
                );
            }
            ChannelEvent::Membership(push) => {
                let framed = |slot: u32| (slot, push.framed(wire(self.people[slot as usize].body)));
                given.extend(self.hub.membership_subscribers(local).map(framed));
            }
            ChannelEvent::Broken => panic!("no story loses its channels"),
        }
        for (slot, frame) in given {
            let person = &mut self.people[slot as usize];
            if let Some(frame) = person.session.hold(frame, usize::MAX) {
                person.received.push_back(received(&frame, &mut self.epochs));
            }
        }
    }

    fn index(&self, name: &str) -> usize {
        self.people.iter().rposition(|person| person.name == name).unwrap_or_else(|| panic!("nobody is called {name}"))
    }

    /// The text with client ids for `<ann>` and similar names.
    fn named(&self, text: &str) -> String {
        self.people.iter().fold(text.to_owned(), |text, person| {
            text.replace(&format!("<{}>", person.name), &person.session.client_id())
        })
    }

    fn quiet(&self, before: &str) {
        for person in &self.people {
            assert!(
                person.received.is_empty(),
                "before {before}\n{} has received, too: {:#?}",
                person.name,
                person.received
            );
        }
    }

    fn end(&mut self) {
        self.is_slow = false;
        self.carry();
        for index in 0..self.people.len() {
            if !std::mem::replace(&mut self.people[index].is_gone, true) {
                self.act(index, |session, context| session.close(context));
            }
        }
        assert!(
            (0..self.hub.capacity()).all(|index| self.hub.at(index).is_none()),
            "a channel is live, and no client is here"
        );
        for (channel, _) in std::mem::take(&mut self.requests) {
            self.publish_content(&channel, Content { data: "1".into(), ..Content::default() });
            assert!(self.queue.is_empty(), "nobody is here, and the home of {channel} sends");
        }
    }
}

/// However a story ends, nothing is left of its clients once all of them are gone.
impl Drop for Story {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// A message with `epoch-1` instead of the epoch that was received first.
fn received(message: &[u8], epochs: &mut Vec<String>) -> String {
    let text = String::from_utf8_lossy(message);
    let mut out = String::new();
    for (index, piece) in text.trim().split(r#""epoch":""#).enumerate() {
        let epoch = if index > 0 { piece.split('"').next().unwrap_or_default() } else { "" };
        if index > 0 {
            out.push_str(r#""epoch":""#);
        }
        if !epoch.is_empty() {
            let known = epochs.iter().position(|known| known == epoch).unwrap_or_else(|| {
                epochs.push(epoch.to_owned());
                epochs.len() - 1
            });
            out.push_str(&format!("epoch-{}", known + 1));
        }
        out.push_str(&piece[epoch.len()..]);
    }
    out
}
