//! A few replicas with links that a test controls.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use touchline_registry::{
    EntryChange, HashSeed, Output, OwnerId, Reason, RegisterRefusal, Registered, RegistryEvent, Replica,
    ReplicaSettings,
};

pub(crate) fn id(n: u8) -> OwnerId {
    OwnerId([n; 16])
}

/// Replicas joined by perfect links, unless a test cuts some.
pub(crate) struct Cluster {
    pub(crate) now_ms: u64,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) events: Vec<Vec<RegistryEvent>>,
    pub(crate) lost: Vec<(usize, OwnerId, Arc<str>, Reason)>,
    pub(crate) questions: Vec<(usize, Arc<str>)>,
    /// Links that carry nothing in either direction.
    pub(crate) cut: Vec<(usize, usize)>,
    pub(crate) messages: usize,
}

impl Cluster {
    pub(crate) fn new(size: usize, settings: &ReplicaSettings) -> Self {
        let start_ms = 1_700_000_000_000;
        let make = |index: usize| {
            Replica::new(
                &format!("node-{index}"),
                index as u64,
                settings.clone(),
                HashSeed::repeatable(index as u64),
                start_ms,
            )
        };
        let mut cluster = Cluster {
            now_ms: start_ms,
            replicas: (0..size).map(make).collect(),
            events: vec![Vec::new(); size],
            lost: Vec::new(),
            questions: Vec::new(),
            cut: Vec::new(),
            messages: 0,
        };
        cluster.settle();
        cluster.events.iter_mut().for_each(Vec::clear);
        cluster
    }

    /// Delivers messages until no replica has any left.
    pub(crate) fn deliver(&mut self) {
        let mut waiting = VecDeque::new();
        loop {
            for index in 0..self.replicas.len() {
                self.replicas[index].flush();
                let outputs: Vec<Output> = self.replicas[index].outputs().collect();
                for output in outputs {
                    match output {
                        Output::Send { to, message } => waiting.push_back((index, to, message)),
                        Output::Event(event) => self.events[index].push(event),
                        Output::Lost { lost, reason, .. } => {
                            self.lost.push((index, lost.owner(), lost.key().into(), reason))
                        }
                        Output::Resolve { mine, .. } => self.questions.push((index, mine.key().into())),
                        Output::Probe => self.replicas[index].probed(self.now_ms),
                        Output::Node { .. } | Output::Differs { .. } => {}
                    }
                }
            }
            let Some((from, to, message)) = waiting.pop_front() else { return };
            for other in 0..self.replicas.len() {
                let is_cut = self.cut.contains(&(from, other)) || self.cut.contains(&(other, from));
                let is_addressed = to.as_ref().is_none_or(|to| to == self.replicas[other].node());
                if other != from && !is_cut && is_addressed {
                    self.messages += 1;
                    self.replicas[other].receive(&message, self.now_ms);
                }
            }
        }
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.now_ms += 100;
            self.replicas.iter_mut().for_each(|replica| replica.tick(self.now_ms));
            self.deliver();
        }
    }

    pub(crate) fn settle(&mut self) {
        self.pass(3_000);
    }

    pub(crate) fn register(&mut self, node: usize, owner: u8, name: &str) -> Result<Registered, RegisterRefusal> {
        let result = self.replicas[node].register(id(owner), name, b"", false, self.now_ms);
        self.now_ms += 1;
        result
    }

    pub(crate) fn owner(&self, node: usize, name: &str) -> Option<OwnerId> {
        let found = self.replicas[node].lookup(name).map(|entry| entry.owner());
        assert_eq!(self.replicas[node].view().lookup(name).map(|found| found.owner()), found);
        found
    }

    pub(crate) fn changes(&self, node: usize) -> Vec<EntryChange> {
        self.events[node].iter().map(|event| event.change).collect()
    }

    /// All names and members that a node sees, as bytes.
    pub(crate) fn entries(&self, node: usize) -> BTreeSet<String> {
        let replica = &self.replicas[node];
        let members = replica
            .groups("", 0, usize::MAX)
            .0
            .into_iter()
            .flat_map(|(group, _)| replica.members(&group).collect::<Vec<_>>());
        replica.names("", 0, usize::MAX).0.into_iter().chain(members).map(|entry| format!("{entry:?}")).collect()
    }
}
