//! A simulated node: a replica, the truth about its own owners, and a table that is replayed from its events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use touchline_registry::{
    Entry, EntryChange, HashSeed, Output, OwnerId, RegisterRefusal, Registered, RegistryEvent, Replica, ReplicaSettings,
};

use touchline_testkit::seeds::{SeededRandom, Trace};

type Meta = Vec<u8>;

/// The kind of a member for the counts of groups. Some members are not counted, and there are a few kinds.
pub(crate) fn kind(meta: &[u8]) -> Option<&[u8]> {
    (!meta.len().is_multiple_of(3)).then(|| &meta[..meta.len() % 4])
}

/// A message with its receiver. `None` = it goes to all nodes.
pub(crate) type Sent = (Option<Arc<str>>, Arc<[u8]>);

/// What one owner holds according to the answers of its node.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Held {
    pub(crate) names: BTreeMap<String, Meta>,
    pub(crate) groups: BTreeMap<String, Meta>,
}

pub(crate) struct Node {
    pub(crate) replica: Replica,
    pub(crate) owners: BTreeMap<OwnerId, Held>,
    /// The offset of the node's wall clock from the world's clock, milliseconds.
    pub(crate) skew_ms: i64,
    pub(crate) is_frozen: bool,
    /// Names and memberships that have ended since this was last taken.
    pub(crate) ended: Vec<(String, OwnerId)>,
    /// Owners whose connections closed while the node was frozen, which it has not noticed yet.
    pub(crate) unnoticed: Vec<OwnerId>,
    /// Entries that the node has reported since this was last taken: winners, and entries that its events report as
    /// present.
    pub(crate) named: Vec<(&'static str, Entry)>,
    /// When the node will have checked all its connections. `None` = it was not asked to.
    probed_ms: Option<u64>,
    names: BTreeMap<String, (OwnerId, Arc<str>, Meta)>,
    members: BTreeMap<(String, Arc<str>, OwnerId), Meta>,
    /// Conflicts that the backend will answer: the time, the name and the answer.
    questions: Vec<(u64, Arc<str>, Option<bool>)>,
}

impl Node {
    pub(crate) fn new(name: &str, birth: u64, settings: ReplicaSettings, now_ms: u64, skew_ms: i64) -> Self {
        let own_ms = now_ms.saturating_add_signed(skew_ms);
        Node {
            replica: Replica::new(name, birth, settings, HashSeed::repeatable(birth), own_ms),
            owners: BTreeMap::new(),
            skew_ms,
            is_frozen: false,
            ended: Vec::new(),
            unnoticed: Vec::new(),
            named: Vec::new(),
            probed_ms: None,
            names: BTreeMap::new(),
            members: BTreeMap::new(),
            questions: Vec::new(),
        }
    }

    pub(crate) fn clock(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add_signed(self.skew_ms)
    }

    /// Lets an owner do something.
    pub(crate) fn act(&mut self, random: &mut SeededRandom, now_ms: u64) {
        let own_ms = self.clock(now_ms);
        self.replica.wake(own_ms);
        let known: Vec<OwnerId> = self.owners.keys().copied().collect();
        if known.len() < 4 && random.chance(30) {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&random.any().to_le_bytes());
            self.owners.insert(OwnerId(id), Held::default());
            return;
        }
        let Some(&owner) = known.get(random.below(known.len() as u64) as usize) else { return };
        let key = format!("key-{}", random.below(5));
        let meta = vec![b'm'; random.below(20) as usize];
        match random.below(20) {
            0..7 => self.register(owner, &key, meta, random.chance(30), own_ms),
            7..10 => self.unregister(owner, &key),
            10..12 => self.update(owner, &key, meta),
            12..16 => {
                let foreseen = self.replica.may_join(owner, &key, &meta);
                let is_new = self.replica.join(owner, &key, &meta, own_ms).expect("within limits");
                assert_eq!(foreseen, Ok(is_new));
                let before = self.held(owner).groups.insert(key, meta);
                assert_eq!(is_new, before.is_none());
            }
            16..18 => {
                let left = self.replica.leave(owner, &key);
                assert_eq!(left.is_ok(), self.held(owner).groups.remove(&key).is_some());
                self.ended.push((key, owner));
            }
            _ => {
                self.replica.close(owner);
                self.end(owner);
            }
        }
    }

    /// Ends a connection, whether the node knows it or not.
    fn end(&mut self, owner: OwnerId) {
        let held = self.owners.remove(&owner).unwrap_or_default();
        self.ended.extend(held.names.into_keys().chain(held.groups.into_keys()).map(|key| (key, owner)));
    }

    /// Ends all connections, because the process has ended.
    pub(crate) fn end_all(&mut self) {
        while let Some((owner, _)) = self.owners.first_key_value() {
            self.end(*owner);
        }
    }

    /// Closes a connection while the node is frozen.
    pub(crate) fn close_unnoticed(&mut self, random: &mut SeededRandom) {
        let known: Vec<OwnerId> = self.owners.keys().copied().collect();
        if let Some(&owner) = known.get(random.below(known.len() as u64 + 1) as usize) {
            self.end(owner);
            self.unnoticed.push(owner);
        }
    }

    /// Lets the node check its sockets.
    fn notice(&mut self) {
        for owner in std::mem::take(&mut self.unnoticed) {
            self.replica.close(owner);
        }
    }

    fn held(&mut self, owner: OwnerId) -> &mut Held {
        self.owners.get_mut(&owner).expect("a known owner")
    }

    fn register(&mut self, owner: OwnerId, name: &str, meta: Meta, take_over: bool, own_ms: u64) {
        let foreseen = self.replica.may_register(owner, name, &meta, take_over);
        let result = self.replica.register(owner, name, &meta, take_over, own_ms);
        assert_eq!(
            foreseen,
            result.clone().map(|registered| matches!(registered, Registered::New(_))),
            "what was foreseen"
        );
        match result {
            Ok(Registered::Updated(entry)) => {
                assert_eq!((entry.owner(), entry.meta()), (owner, &*meta));
                assert!(self.held(owner).names.insert(name.into(), meta).is_some(), "it had the name");
            }
            Ok(Registered::New(entry)) => {
                assert_eq!((entry.owner(), entry.meta()), (owner, &*meta));
                assert!(self.held(owner).names.insert(name.into(), meta).is_none(), "it did not have the name");
            }
            Err(RegisterRefusal::Taken(entry)) => {
                assert_ne!((entry.owner(), entry.node()), (owner, self.replica.node()))
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn unregister(&mut self, owner: OwnerId, name: &str) {
        let result = self.replica.unregister(owner, name);
        assert_eq!(result.is_ok(), self.held(owner).names.remove(name).is_some(), "only the owner's entry can go");
        if result.is_ok() {
            self.ended.push((name.into(), owner));
        }
        assert_eq!(self.replica.unregister(owner, name), Err(RegisterRefusal::Undefined), "and only once");
    }

    fn update(&mut self, owner: OwnerId, name: &str, meta: Meta) {
        let result = self.replica.update_meta(owner, name, &meta, None);
        let held = self.held(owner).names.get_mut(name);
        assert_eq!(result.is_ok(), held.is_some());
        if let Some(held) = held {
            *held = meta;
        }
    }

    /// Lets the replica do what is due, and returns its messages.
    pub(crate) fn run(&mut self, random: &mut SeededRandom, now_ms: u64, trace: &mut Trace) -> Vec<Sent> {
        let own_ms = self.clock(now_ms);
        self.replica.wake(own_ms);
        if self.probed_ms.take_if(|at_ms| *at_ms <= now_ms).is_some() {
            self.notice();
            self.replica.probed(own_ms);
        } else if random.chance(20) {
            self.notice();
        }
        let (due, later) = std::mem::take(&mut self.questions).into_iter().partition(|(at, ..)| *at <= now_ms);
        self.questions = later;
        for (_, name, answer) in due {
            self.replica.resolve(&name, answer, own_ms);
        }
        self.replica.tick(own_ms);
        let outputs: Vec<Output> = self.replica.outputs().collect();
        let mut messages = Vec::new();
        for output in outputs {
            trace.note(|| format!("{own_ms} {}: {}", self.replica.node(), told(&output)));
            match output {
                Output::Send { to, message } => messages.push((to, message)),
                Output::Event(event) => self.replay(event),
                Output::Lost { lost, winner, .. } => {
                    assert_ne!(
                        (winner.owner(), winner.node()),
                        (lost.owner(), self.replica.node()),
                        "nobody loses to itself"
                    );
                    // An owner that is gone by now is not notified.
                    if let Some(held) = self.owners.get_mut(&lost.owner()) {
                        assert!(held.names.remove(lost.key()).is_some(), "what was not owned can't be lost");
                        self.ended.push((lost.key().into(), lost.owner()));
                        self.named.push(("the winner", winner));
                    }
                }
                Output::Resolve { mine, other } => {
                    assert_eq!((mine.key(), mine.node()), (other.key(), self.replica.node()));
                    let answer = [Some(true), Some(false), None][random.below(3) as usize];
                    // Some answers come too late.
                    self.questions.push((now_ms + random.below(2_000), mine.key().into(), answer));
                }
                Output::Probe => self.probed_ms = Some(now_ms + random.below(3_000)),
                Output::Node { .. } | Output::Differs { .. } => {}
            }
        }
        messages
    }

    /// Replays an event, which must be consistent with the earlier ones.
    fn replay(&mut self, RegistryEvent { change, entry, .. }: RegistryEvent) {
        let (key, owner, meta) = (entry.key().to_owned(), entry.owner(), entry.meta().to_vec());
        let node = Arc::clone(entry.node());
        if !matches!(change, EntryChange::Unregistered | EntryChange::Left) {
            self.named.push(("what an event says is there", entry.clone()));
        }
        match change {
            EntryChange::Registered => {
                assert!(self.names.insert(key, (owner, node, meta)).is_none(), "registered twice")
            }
            EntryChange::Updated => {
                let before = self.names.insert(key, (owner, Arc::clone(&node), meta));
                assert!(before.is_some_and(|(o, n, _)| (o, n) == (owner, node)), "updated what was not there");
            }
            EntryChange::Unregistered => {
                let before = self.names.remove(&key);
                assert_eq!(before, Some((owner, node, meta)), "unregistered what was not there");
            }
            EntryChange::Joined => assert!(self.members.insert((key, node, owner), meta).is_none(), "joined twice"),
            EntryChange::MemberUpdated => {
                assert!(self.members.insert((key, node, owner), meta).is_some(), "updated a stranger")
            }
            EntryChange::Left => assert_eq!(self.members.remove(&(key, node, owner)), Some(meta), "a stranger left"),
        }
    }

    /// The node's tables. The replica's own table must equal what its events and its view show.
    pub(crate) fn tables(&self) -> Tables {
        let mut names = BTreeMap::new();
        let (mut cursor, mut pages) = (0, 0);
        loop {
            let (entries, next) = self.replica.names("", cursor, 3);
            for entry in entries {
                let found = self.replica.view().lookup(entry.key()).expect("the view has what the table has");
                assert_eq!(found, entry);
                let before = names
                    .insert(entry.key().to_owned(), (entry.owner(), Arc::clone(entry.node()), entry.meta().to_vec()));
                assert!(before.is_none(), "listed twice");
            }
            pages += 1;
            assert!(pages < 1_000, "a listing ends");
            let Some(next) = next else { break };
            cursor = next;
        }
        let mut members = BTreeMap::new();
        for (group, size) in self.replica.groups("", 0, usize::MAX).0 {
            let all: Vec<Entry> = self.replica.members(&group).collect();
            assert_eq!((all.len(), self.replica.member_count(&group)), (size as usize, size as usize));
            let kinds: Vec<&[u8]> = all.iter().filter_map(|entry| kind(entry.meta())).collect();
            let distinct = kinds.iter().collect::<BTreeSet<_>>().len();
            assert_eq!(
                self.replica.member_counts(&group),
                (kinds.len() as u64, distinct as u64),
                "counts are kept right"
            );
            for entry in &all {
                assert_eq!(self.replica.member(entry.owner(), &group).as_ref(), Some(entry));
                assert_eq!(self.replica.is_member(entry.owner(), &group), entry.node() == self.replica.node());
            }
            members.extend(
                all.into_iter().map(|e| ((e.key().to_owned(), Arc::clone(e.node()), e.owner()), e.meta().to_vec())),
            );
        }
        assert_eq!(names, self.names, "replaying the events gives the names");
        assert_eq!(members, self.members, "replaying the events gives the members");
        for owner in self.owners.keys().filter(|owner| !self.unnoticed.contains(owner)) {
            let of_owner = names.values().filter(|(of, ..)| of == owner).count()
                + members.keys().filter(|(_, _, of)| of == owner).count();
            assert!(self.replica.entries_of(*owner) >= of_owner, "what is seen of an owner is counted");
        }
        let view = self.replica.view();
        let groups = members.keys().map(|(group, ..)| group).collect::<BTreeSet<_>>();
        let counts = [names.len(), members.len(), groups.len()].map(|count| count as u64);
        assert_eq!([view.names(), view.members(), view.groups()], counts);
        Tables { names, members }
    }
}

/// An output as text, including its message.
fn told(output: &Output) -> String {
    match output {
        Output::Send { to, message } => format!("to {}: {}", to.as_deref().unwrap_or("all"), message.escape_ascii()),
        other => format!("{other:?}"),
    }
}

/// Everything that a node sees.
#[derive(Debug, PartialEq, Default)]
pub(crate) struct Tables {
    pub(crate) names: BTreeMap<String, (OwnerId, Arc<str>, Meta)>,
    pub(crate) members: BTreeMap<(String, Arc<str>, OwnerId), Meta>,
}
