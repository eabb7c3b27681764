//! Stories of one node, *here*, and others whose every word is written by hand, as `docs/registry.md` has the wire:
//! what a node asks for, what it answers, how often, and what it makes of nonsense. The cluster as a whole is in
//! `tests/simulation`.

mod catching_up;
mod economy;
mod life;
mod listings;
mod memory;
mod wire;
mod words;

use touchline_registry::{EntryChange, HashSeed, Output, OwnerId, Reason, RegistryEvent, Replica, ReplicaSettings};

use wire::{Body, Life, Message};

const START_MS: u64 = 1_000_000;
const BIRTH: u64 = 7;
/// The life of other nodes.
const OTHER_LIFE: Life = (1, 1);

fn id(n: u8) -> OwnerId {
    OwnerId([n; 16])
}

/// A node, the time, and what has come of it.
struct Story {
    here: Replica,
    now_ms: u64,
    events: Vec<RegistryEvent>,
    /// Times that the host was asked to look at its connections.
    probes: usize,
    /// Names about which the backend was asked.
    questions: Vec<String>,
    /// Names that were lost.
    lost: Vec<String>,
    /// Nodes that came and went.
    nodes: Vec<(String, bool)>,
    /// Nodes that were said to have other options.
    differing: Vec<String>,
}

impl Story {
    fn new(settings: &ReplicaSettings) -> Story {
        let here = Replica::new("here", BIRTH, settings.clone(), HashSeed::repeatable(7), START_MS);
        let now_ms = START_MS;
        let (events, questions, lost, nodes, differing) = Default::default();
        Story { here, now_ms, events, probes: 0, questions, lost, nodes, differing }
    }

    /// It follows another node, *there*, which has said nothing but this.
    fn following(settings: &ReplicaSettings, operations: &[u8], last: u64) -> Story {
        let mut story = Story::new(settings);
        story.hear("there", heartbeat(last));
        let nonce = story.wanted().first().expect("a snapshot is asked for").1;
        story.hear(
            "there",
            Body::Snapshot { last, doubt: 0, nonce, part: 0, parts: 1, operations: operations.to_vec() },
        );
        story.here.tick(START_MS);
        story.said();
        assert!(story.here.is_settled());
        story.events.clear();
        story
    }

    fn hear(&mut self, node: &str, body: Body) {
        self.hear_of(node, OTHER_LIFE, body);
    }

    /// A message of another node's life.
    fn hear_of(&mut self, node: &str, life: Life, body: Body) {
        let message = Message { node: node.into(), life, clock: self.now_ms << 16, policy: 0, body };
        self.here.receive(&message.write(), self.now_ms);
    }

    /// What it has said since this was last asked, and to whom; heartbeats apart.
    fn said(&mut self) -> Vec<(Option<String>, Body)> {
        let mut all = self.messages();
        all.retain(|(_, message)| !matches!(message.body, Body::Heartbeat { .. }));
        all.into_iter().map(|(to, message)| (to, message.body)).collect()
    }

    /// All messages since this was last asked.
    fn messages(&mut self) -> Vec<(Option<String>, Message)> {
        self.here.flush();
        let mut messages = Vec::new();
        for output in self.here.outputs() {
            match output {
                Output::Send { to, message } => {
                    messages.push((to.as_deref().map(str::to_owned), Message::read(&message)))
                }
                Output::Event(event) => self.events.push(event),
                Output::Lost { lost, .. } => self.lost.push(lost.key().to_owned()),
                Output::Resolve { mine, .. } => self.questions.push(mine.key().to_owned()),
                Output::Node { node, is_up, .. } => self.nodes.push((node.to_string(), is_up)),
                Output::Probe => self.probes += 1,
                Output::Differs { node } => self.differing.push(node.to_string()),
            }
        }
        messages
    }

    /// The first numbers and the nonces of what it has asked *there* for.
    fn wanted(&mut self) -> Vec<(u64, u64)> {
        let all = self.said().into_iter().filter_map(|(to, body)| match body {
            Body::Want { to: addressee, life, first, nonce } => {
                assert_eq!((to.as_deref(), &*addressee, life), (Some("there"), "there", OTHER_LIFE));
                Some((first, nonce))
            }
            _ => None,
        });
        all.collect()
    }

    /// Time passes, and the node does what is due every tenth of a second.
    fn pass(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.now_ms = end_ms.min(self.now_ms + 100);
            self.here.tick(self.now_ms);
        }
    }

    /// The node stands still, and goes on.
    fn stand_still(&mut self, ms: u64) {
        self.now_ms += ms;
        self.here.tick(self.now_ms);
    }

    fn register(&mut self, owner: u8, name: &str) {
        self.here.register(id(owner), name, b"", false, self.now_ms).expect("free");
    }

    /// Whether *there* is in sight.
    fn sees_there(&self) -> bool {
        self.here.nodes().any(|(node, _)| &**node == "there")
    }

    fn changes(&mut self) -> Vec<(EntryChange, String, Reason)> {
        self.said();
        self.events.drain(..).map(|event| (event.change, event.entry.key().to_owned(), event.reason)).collect()
    }

    /// The present life of this node, by what it says.
    fn life(&mut self) -> Life {
        self.here.joined(self.now_ms);
        self.here.tick(self.now_ms);
        self.messages().pop().expect("a heartbeat").1.life
    }
}

/// A heartbeat of a node that has nothing, or of which other things have come already.
fn heartbeat(last: u64) -> Body {
    Body::Heartbeat { last, digest: 0, entries: 0, limits: (255, 4_096), lives: Vec::new() }
}

/// What *there* says of a name at a number.
fn claims(first: u64, names: &[&str]) -> Body {
    let operations: Vec<u8> =
        names.iter().flat_map(|name| wire::claim(0, &wire::record(id(200), 1 << 16, 0, name, ""))).collect();
    Body::Delta { first, count: names.len() as u64, operations }
}
