//! Stories of one node, *here*, and others. Every message of the others is written by hand according to the wire format
//! in `docs/internals/replication.md`. The stories show what a node asks for, what it answers, how often, and how it
//! treats nonsense. The cluster as a whole is tested in `tests/simulation`.

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
/// The life of the other nodes.
const OTHER_LIFE: Life = (1, 1);

fn id(n: u8) -> OwnerId {
    OwnerId([n; 16])
}

/// A node, the time, and the results so far.
struct Story {
    here: Replica,
    now_ms: u64,
    events: Vec<RegistryEvent>,
    /// How many times the host was asked to check its connections.
    probes: usize,
    /// The names about which the backend was asked.
    questions: Vec<String>,
    /// The names that were lost.
    lost: Vec<String>,
    /// The nodes that appeared (true) and disappeared (false).
    nodes: Vec<(String, bool)>,
    /// The nodes that were reported to have other options.
    differing: Vec<String>,
}

impl Story {
    fn new(settings: &ReplicaSettings) -> Story {
        let here = Replica::new("here", BIRTH, settings.clone(), HashSeed::repeatable(7), START_MS);
        let now_ms = START_MS;
        let (events, questions, lost, nodes, differing) = Default::default();
        Story { here, now_ms, events, probes: 0, questions, lost, nodes, differing }
    }

    /// A story in which *here* follows another node, *there*, which has sent only these operations.
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

    /// Receives a message of another node's life.
    fn hear_of(&mut self, node: &str, life: Life, body: Body) {
        let message = Message { node: node.into(), life, clock: self.now_ms << 16, policy: 0, body };
        self.here.receive(&message.write(), self.now_ms);
    }

    /// What *here* has sent since the last call, and to which nodes, without heartbeats.
    fn said(&mut self) -> Vec<(Option<String>, Body)> {
        let mut all = self.messages();
        all.retain(|(_, message)| !matches!(message.body, Body::Heartbeat { .. }));
        all.into_iter().map(|(to, message)| (to, message.body)).collect()
    }

    /// All messages since the last call.
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

    /// The first numbers and the nonces of the requests to *there*.
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

    /// Lets time pass. The node does what is due ten times per second.
    fn pass(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.now_ms = end_ms.min(self.now_ms + 100);
            self.here.tick(self.now_ms);
        }
    }

    /// Lets the node stand still and continue.
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

    /// The current life of this node, according to its messages.
    fn life(&mut self) -> Life {
        self.here.joined(self.now_ms);
        self.here.tick(self.now_ms);
        self.messages().pop().expect("a heartbeat").1.life
    }
}

/// A heartbeat of a node without entries, or of a node whose entries have arrived already.
fn heartbeat(last: u64) -> Body {
    Body::Heartbeat { last, digest: 0, entries: 0, limits: (255, 4_096), lives: Vec::new() }
}

/// Claims of names by *there*, from a number on.
fn claims(first: u64, names: &[&str]) -> Body {
    let operations: Vec<u8> =
        names.iter().flat_map(|name| wire::claim(0, &wire::record(id(200), 1 << 16, 0, name, ""))).collect();
    Body::Delta { first, count: names.len() as u64, operations }
}
