//! Which nodes there are, which versions they support, and whether they live. The module is pure: events and the time
//! are its inputs, and [`MembershipStep`]s its outputs.
//!
//! Each node sends [`Hello`] several times a second, in a large cluster more rarely. A late hello does not prove that a
//! node is dead, so it is probed. If NATS reports that it is not subscribed, its connection is closed, and after a
//! grace it is gone. A node that is only silent is gone after a longer time.
//!
//! Two nodes that share no version cannot be in one cluster. The one that started later stands aside until the other is
//! gone.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::hello::Hello;
use crate::types::ClusterRoom;

/// The versions of the messages between nodes that this node supports.
pub(crate) const VERSIONS: RangeInclusive<u32> = 1..=1;
/// How long a new node listens for other nodes before it takes part, milliseconds.
const LISTEN_MS: u64 = 300;
/// The number of hellos in one heartbeat interval.
const HELLOS: u64 = 5;
/// The minimum number of hellos in one heartbeat interval in a large cluster.
const HELLOS_MIN: u64 = 2;
/// The minimum number of hellos within the timeout of a silent node, so that one late hello does not end a node.
const HELLOS_IN_TIMEOUT: u64 = 4;
/// For each such number of other nodes, the hello interval grows by one step, because each node reads the hellos of all
/// others.
const NODES_PER_STEP: u64 = 16;
/// The maximum length of a node's id in bytes. The id is a part of subjects.
const NODE_LEN_MAX: usize = 128;
/// The maximum number of nodes that are known.
const MEMBERS_MAX: usize = 1_024;
/// The interval between two probes of a node whose hello is late, milliseconds.
const PROBE_MS: u64 = 200;

/// The intervals and timeouts of the membership, milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MembershipTiming {
    /// The interval between two heartbeats.
    pub(crate) heartbeat_ms: u64,
    /// The silence after which a node is gone.
    pub(crate) timeout_ms: u64,
    /// How long a node must be unsubscribed before it is gone.
    pub(crate) grace_ms: u64,
}

/// A step that the caller must carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MembershipStep {
    /// Send a hello to all nodes.
    SayHello,
    /// Ask a node whether it is there.
    Probe(Arc<str>),
    /// This node takes part, with these other nodes in sight.
    Join(Vec<Arc<str>>),
    /// This node stands aside because of another node.
    StandAside(Hello),
    /// Another node shares no version with this one, and stands aside.
    Refused(Hello),
    /// A node is suspected to be dead, or no longer suspected.
    Suspect(Arc<str>, bool),
    /// A node is dead, or stands aside.
    Gone(Arc<str>),
    /// A node has announced that it leaves.
    Left(Arc<str>),
}

#[derive(Debug)]
struct ClusterMember {
    hello: Hello,
    last_hello_ms: u64,
    /// True if a hello arrived since this node connected. Before that, the member's silence means nothing.
    is_current: bool,
    /// Since when the node is no longer subscribed. `None` = it may be subscribed.
    unsubscribed_ms: Option<u64>,
    is_suspected: bool,
    probed_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberState {
    /// NATS cannot be reached.
    Away,
    /// The node listens for other nodes since this time.
    Listening(u64),
    Joined,
    Aside,
}

/// The nodes in sight.
#[derive(Debug)]
pub(crate) struct Members {
    me: Hello,
    timing: MembershipTiming,
    state: MemberState,
    members: BTreeMap<Arc<str>, ClusterMember>,
    hello_sent_ms: u64,
    /// The time of the last tick.
    ticked_ms: u64,
    /// The message version in use.
    version: u32,
}

impl Members {
    pub(crate) fn new(me: Hello, timing: MembershipTiming) -> Self {
        let version = me.versions.1;
        Members {
            me,
            timing,
            state: MemberState::Away,
            members: BTreeMap::new(),
            hello_sent_ms: 0,
            ticked_ms: 0,
            version,
        }
    }

    pub(crate) fn me(&self) -> &Hello {
        &self.me
    }

    /// Whether this node takes part.
    pub(crate) fn is_joined(&self) -> bool {
        self.state == MemberState::Joined
    }

    /// Whether no node in sight has an id before this node's id.
    pub(crate) fn is_first(&self) -> bool {
        self.members.keys().next().is_none_or(|first| *self.me.node < **first)
    }

    /// The hello message of this node.
    pub(crate) fn own_hello(&self, leaves: bool) -> Hello {
        Hello { leaves, aside: self.state == MemberState::Aside, ..self.me.clone() }
    }

    /// The nodes in sight that do not share the facts of this one.
    pub(crate) fn with_other_facts(&self) -> Vec<Arc<str>> {
        self.those(|hello| hello.has_other_fact_place(&self.me))
    }

    /// The nodes in sight that have another configuration than this one.
    pub(crate) fn with_other_configuration(&self) -> Vec<Arc<str>> {
        self.those(|hello| hello.has_other_configuration(&self.me))
    }

    fn those(&self, is_meant: impl Fn(&Hello) -> bool) -> Vec<Arc<str>> {
        let meant = self.members.iter().filter(|(_, member)| is_meant(&member.hello));
        meant.map(|(_, member)| member.hello.label().into()).collect()
    }

    /// Sets the digest of this node's configuration. The other nodes are notified at once.
    pub(crate) fn set_configuration(&mut self, configuration: u32) -> MembershipStep {
        self.me.configuration = configuration;
        MembershipStep::SayHello
    }

    /// The room of the other nodes that take part.
    pub(crate) fn room(&self) -> ClusterRoom {
        let hellos = self.members.values().map(|member| &member.hello);
        ClusterRoom::of(hellos.filter(|hello| !hello.aside && hello.shares(&self.me)))
    }

    /// Sets how many clients this node can take, and whether it drains. The other nodes are notified of a drain at
    /// once, and of the rest with the next hello.
    pub(crate) fn set_room(&mut self, connect_rate: u32, draining: bool) -> Option<MembershipStep> {
        let begins = draining && !std::mem::replace(&mut self.me.draining, draining);
        self.me.connect_rate = connect_rate;
        begins.then_some(MembershipStep::SayHello)
    }

    /// The highest version that all nodes in sight support.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// The interval between two hellos of a node, milliseconds. It depends on the number of nodes in sight.
    fn hello_interval_ms(&self) -> u64 {
        let steps = 1 + self.members.len() as u64 / NODES_PER_STEP;
        let interval_ms = (self.timing.heartbeat_ms / HELLOS * steps).min(self.timing.heartbeat_ms / HELLOS_MIN);
        interval_ms.min(self.timing.timeout_ms / HELLOS_IN_TIMEOUT).max(1)
    }

    fn highest_version(&self) -> u32 {
        let shared = self.members.values().map(|member| &member.hello).filter(|hello| hello.shares(&self.me));
        shared.fold(self.me.versions.1, |version, hello| version.min(hello.versions.1))
    }

    /// Records that the connection to NATS was made or lost.
    pub(crate) fn linked(&mut self, is_linked: bool, now_ms: u64) -> Vec<MembershipStep> {
        let mut steps = Vec::new();
        for (node, member) in &mut self.members {
            // A node that was cut off does not suspect others.
            (member.last_hello_ms, member.is_current, member.unsubscribed_ms) = (now_ms, false, None);
            steps.extend(
                std::mem::take(&mut member.is_suspected).then(|| MembershipStep::Suspect(Arc::clone(node), false)),
            );
        }
        if is_linked {
            self.state = MemberState::Listening(now_ms);
            self.hello_sent_ms = now_ms;
            steps.push(MembershipStep::SayHello);
        } else {
            self.state = MemberState::Away;
        }
        steps
    }

    /// Processes a hello of another node.
    pub(crate) fn hello(&mut self, hello: Hello, now_ms: u64) -> Vec<MembershipStep> {
        let mut steps = Vec::new();
        let is_known = self.members.contains_key(hello.node.as_str());
        let is_sound = hello.node.len() <= NODE_LEN_MAX && hello.versions.0 <= hello.versions.1;
        if hello.node == self.me.node || !is_sound || !is_known && self.members.len() >= MEMBERS_MAX {
            return steps;
        }
        let node: Arc<str> = hello.node.as_str().into();
        if hello.leaves {
            // No node may wait for it any more.
            steps.extend(self.members.remove(&node).map(|_| MembershipStep::Left(node)));
            return steps;
        }
        let is_shared = hello.shares(&self.me);
        if is_shared {
            self.version = self.version.min(hello.versions.1);
        }
        match self.members.get_mut(&node) {
            Some(member) => {
                (member.last_hello_ms, member.is_current, member.unsubscribed_ms) = (now_ms, true, None);
                steps.extend(
                    std::mem::take(&mut member.is_suspected)
                        .then_some(MembershipStep::Suspect(Arc::clone(&node), false)),
                );
                if hello.aside && !member.hello.aside {
                    // Its entries are no longer in the cluster.
                    steps.push(MembershipStep::Gone(node));
                }
                member.hello.aside = hello.aside;
                member.hello.facts.clone_from(&hello.facts);
                member.hello.configuration = hello.configuration;
                member.hello.connect_rate = hello.connect_rate;
                member.hello.draining = hello.draining;
            }
            None => {
                if !is_shared && self.me.is_before(&hello) {
                    steps.push(MembershipStep::Refused(hello.clone()));
                }
                let member = ClusterMember {
                    hello: hello.clone(),
                    last_hello_ms: now_ms,
                    is_current: true,
                    unsubscribed_ms: None,
                    is_suspected: false,
                    probed_ms: 0,
                };
                self.members.insert(node, member);
                // The new node learns of this one at once.
                steps.push(MembershipStep::SayHello);
            }
        }
        if !is_shared
            && !hello.aside
            && hello.is_before(&self.me)
            && !matches!(self.state, MemberState::Aside | MemberState::Away)
        {
            self.state = MemberState::Aside;
            steps.push(MembershipStep::StandAside(hello));
        }
        steps
    }

    /// Processes the answer of a probed node, or the report of NATS that the node is not subscribed.
    pub(crate) fn probed(&mut self, node: &str, is_there: bool, now_ms: u64) -> Vec<MembershipStep> {
        let interval_ms = self.hello_interval_ms();
        let Some(member) = self.members.get_mut(node) else { return Vec::new() };
        if is_there {
            member.unsubscribed_ms = None;
            return Vec::new();
        }
        let is_late = now_ms >= member.last_hello_ms + interval_ms;
        if self.state == MemberState::Away || !member.is_current || !is_late {
            return Vec::new();
        }
        member.unsubscribed_ms.get_or_insert(now_ms);
        if std::mem::replace(&mut member.is_suspected, true) {
            Vec::new()
        } else {
            vec![MembershipStep::Suspect(node.into(), true)]
        }
    }

    /// Carries out what is due. Call it at least ten times per second.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Vec<MembershipStep> {
        let mut steps = Vec::new();
        if self.state == MemberState::Away {
            return steps;
        }
        if now_ms > std::mem::replace(&mut self.ticked_ms, now_ms) + self.timing.heartbeat_ms {
            // This node stood still, and the hellos that arrived meanwhile are not read yet.
            self.members
                .values_mut()
                .for_each(|member| (member.last_hello_ms, member.unsubscribed_ms) = (now_ms, None));
        }
        let interval_ms = self.hello_interval_ms();
        if now_ms >= self.hello_sent_ms + interval_ms {
            self.hello_sent_ms = now_ms;
            steps.push(MembershipStep::SayHello);
        }
        self.check_members(interval_ms, now_ms, &mut steps);
        self.version = self.highest_version();
        let is_rival = |hello: &Hello| !hello.aside && !hello.shares(&self.me) && hello.is_before(&self.me);
        let has_rival = self.members.values().any(|member| is_rival(&member.hello));
        let is_time = match self.state {
            MemberState::Listening(since_ms) => now_ms >= since_ms + LISTEN_MS && !has_rival,
            MemberState::Aside => !has_rival,
            MemberState::Away | MemberState::Joined => false,
        };
        if is_time {
            self.state = MemberState::Joined;
            let takes_part = |hello: &Hello| !hello.aside && hello.shares(&self.me);
            let sharing = self.members.iter().filter(|(_, member)| takes_part(&member.hello));
            steps.push(MembershipStep::Join(sharing.map(|(node, _)| Arc::clone(node)).collect()));
        }
        steps
    }

    fn check_members(&mut self, interval_ms: u64, now_ms: u64, steps: &mut Vec<MembershipStep>) {
        let timing = self.timing;
        self.members.retain(|node, member| {
            let is_unsubscribed = member.unsubscribed_ms.is_some_and(|since_ms| now_ms >= since_ms + timing.grace_ms);
            if is_unsubscribed || now_ms >= member.last_hello_ms + timing.timeout_ms {
                steps.push(MembershipStep::Gone(Arc::clone(node)));
                return false;
            }
            let silent_ms = now_ms.saturating_sub(member.last_hello_ms);
            if member.is_current && silent_ms >= interval_ms * 3 / 2 && now_ms >= member.probed_ms + PROBE_MS {
                member.probed_ms = now_ms;
                steps.push(MembershipStep::Probe(Arc::clone(node)));
            }
            let is_late = silent_ms >= timing.heartbeat_ms * 3 / 2;
            if member.is_current && is_late && !std::mem::replace(&mut member.is_suspected, true) {
                steps.push(MembershipStep::Suspect(Arc::clone(node), true));
            }
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: MembershipTiming = MembershipTiming { heartbeat_ms: 1_000, timeout_ms: 4_000, grace_ms: 1_000 };

    fn hello(node: &str, started_ms: u64, versions: (u32, u32)) -> Hello {
        Hello { node: node.into(), started_ms, versions, program: "0.1.0".into(), ..Hello::default() }
    }

    /// A node that joined alone at 1,000, and has then heard another node.
    fn pair() -> Members {
        let mut members = Members::new(hello("me", 500, (1, 1)), TIMING);
        members.linked(true, 500);
        assert_eq!(members.hello(hello("other", 1, (1, 1)), 600), [MembershipStep::SayHello]);
        assert_eq!(
            members.tick(1_000),
            [
                MembershipStep::SayHello,
                MembershipStep::Probe("other".into()),
                MembershipStep::Join(vec!["other".into()])
            ]
        );
        members.hello(hello("other", 1, (1, 1)), 1_000);
        members
    }

    #[test]
    fn the_first_hello_is_read_by_every_later_version() {
        let first = concat!(
            r#"{"node":"a","started_ms":1700000000000,"versions":[1,1],"program":"0.1.0","#,
            r#""leaves":false,"aside":false}"#
        );
        let read: Hello = serde_json::from_str(first).expect("the first format");
        assert_eq!(read, hello("a", 1_700_000_000_000, (1, 1)));
        assert_eq!(serde_json::to_string(&read).expect("it can be written"), first);
        let later = r#"{"node":"b","started_ms":2,"versions":[3,7],"colour":"red","zone":{"rack":1}}"#;
        let read: Hello = serde_json::from_str(later).expect("fields of a later version are skipped");
        assert_eq!(read.versions, (3, 7));
    }

    #[test]
    fn those_who_take_part_have_room_and_others_hear_at_once_that_a_node_drains() {
        let mut members = Members::new(hello("me", 5, (1, 1)), TIMING);
        members.hello(Hello { aside: true, ..hello("aside", 1, (1, 1)) }, 10);
        members.hello(hello("foreign", 1, (2, 2)), 10);
        members.hello(hello("a", 1, (1, 1)), 10);
        assert_eq!(members.room(), ClusterRoom { silent: 1, ..ClusterRoom::default() });
        assert_eq!((members.set_room(100, false), members.set_room(120, true)), (None, Some(MembershipStep::SayHello)));
        assert_eq!((members.set_room(130, true), members.own_hello(false).connect_rate), (None, 130));
    }

    #[test]
    fn a_killed_node_is_gone_within_a_second_and_a_half() {
        let mut members = pair();
        let (mut now_ms, mut steps) = (1_000, Vec::new());
        while !steps.contains(&MembershipStep::Gone("other".into())) {
            now_ms += 50;
            steps = members.tick(now_ms);
            if steps.contains(&MembershipStep::Probe("other".into())) {
                steps.extend(members.probed("other", false, now_ms));
            }
        }
        assert!(now_ms - 1_000 <= 1_400, "{now_ms}");
    }

    #[test]
    fn a_frozen_node_is_suspected_and_gone_only_after_the_timeout() {
        let mut members = pair();
        let (mut suspected_ms, mut gone_ms) = (0, 0);
        for now_ms in (1_000..6_000).step_by(50) {
            for step in members.tick(now_ms) {
                match step {
                    MembershipStep::Suspect(_, true) => suspected_ms = now_ms,
                    MembershipStep::Gone(_) => gone_ms = now_ms,
                    _ => {}
                }
            }
        }
        assert_eq!((suspected_ms, gone_ms), (2_500, 5_000));
    }

    #[test]
    fn hellos_that_are_longer_apart_than_the_timeout_do_not_end_a_node() {
        let timing = MembershipTiming { heartbeat_ms: 30_000, ..TIMING };
        assert_eq!(Members::new(hello("me", 500, (1, 1)), timing).hello_interval_ms(), 1_000);
        let timing = MembershipTiming { timeout_ms: 0, ..TIMING };
        assert_eq!(Members::new(hello("me", 500, (1, 1)), timing).hello_interval_ms(), 1, "it never says it at once");
    }

    #[test]
    fn a_large_cluster_says_hello_more_rarely_and_knows_as_well_who_is_gone() {
        let mut members = pair();
        let mut hellos = |others: u64| {
            for number in 1..others {
                members.hello(hello(&format!("n{number}"), 1, (1, 1)), 1_000);
            }
            let mut said = 0;
            for now_ms in (1_000..2_000).step_by(50) {
                let steps = members.tick(now_ms);
                said += steps.iter().filter(|step| **step == MembershipStep::SayHello).count();
                assert!(!steps.iter().any(|step| matches!(step, MembershipStep::Suspect(..))));
                // The other nodes send it as often.
                let is_time = (now_ms - 1_000) % members.hello_interval_ms() == 0;
                for number in (1..others).filter(|_| is_time) {
                    members.hello(hello(&format!("n{number}"), 1, (1, 1)), now_ms);
                }
                members.hello(hello("other", 1, (1, 1)), now_ms);
                assert!(!steps.iter().any(|step| matches!(step, MembershipStep::Probe(node) if **node != *"other")));
            }
            members.linked(true, 1_000);
            said
        };
        assert_eq!([15, 16, 55].map(&mut hellos), [4, 2, 1], "besides the one at the beginning");
    }

    #[test]
    fn a_node_that_stood_still_suspects_nobody() {
        let mut members = pair();
        let steps = members.tick(60_000);
        assert_eq!(steps, [MembershipStep::SayHello], "what the other said meanwhile is not read yet");
    }

    #[test]
    fn a_node_that_answers_or_comes_back_within_the_grace_stays() {
        let mut members = pair();
        members.tick(1_400);
        assert_eq!(members.probed("other", false, 1_400), [MembershipStep::Suspect("other".into(), true)]);
        members.tick(1_700);
        assert_eq!(members.hello(hello("other", 1, (1, 1)), 2_000), [MembershipStep::Suspect("other".into(), false)]);
        assert!(!members.tick(2_390).iter().any(|step| matches!(step, MembershipStep::Gone(_))));
        assert!(members.probed("other", false, 2_100).is_empty(), "it has just been heard");
    }

    #[test]
    fn a_node_that_lost_its_own_link_suspects_nobody() {
        let mut members = pair();
        members.tick(1_400);
        members.probed("other", false, 1_400);
        assert_eq!(members.linked(false, 1_500), [MembershipStep::Suspect("other".into(), false)]);
        assert!(members.tick(9_000).is_empty());
        members.linked(true, 9_000);
        // The other node has not reconnected to NATS yet.
        for now_ms in (9_000..12_900).step_by(50) {
            let steps = members.tick(now_ms);
            assert!(
                !steps.iter().any(|step| matches!(
                    step,
                    MembershipStep::Suspect(_, true) | MembershipStep::Gone(_) | MembershipStep::Probe(_)
                )),
                "{now_ms} {steps:?}"
            );
            assert!(members.probed("other", false, now_ms).is_empty());
        }
        assert!(members.tick(13_000).contains(&MembershipStep::Gone("other".into())));
    }

    #[test]
    fn who_shares_no_version_stands_aside_if_it_came_later() {
        let mut old = Members::new(hello("old", 1, (1, 1)), TIMING);
        let mut new = Members::new(hello("new", 2, (2, 3)), TIMING);
        old.linked(true, 0);
        old.tick(300);
        new.linked(true, 1_000);
        assert!(matches!(&*old.hello(new.me().clone(), 1_000), [MembershipStep::Refused(_), MembershipStep::SayHello]));
        assert!(old.is_joined());
        assert!(matches!(
            &*new.hello(old.me().clone(), 1_001),
            [MembershipStep::SayHello, MembershipStep::StandAside(_)]
        ));
        assert!(!new.tick(2_000).iter().any(|step| matches!(step, MembershipStep::Join(_))));
        let mut leaves = old.me().clone();
        leaves.leaves = true;
        new.hello(leaves, 2_100);
        assert!(new.tick(2_200).contains(&MembershipStep::Join(Vec::new())), "the old one has gone");
    }

    #[test]
    fn nobody_waits_for_a_node_that_leaves_or_stands_aside() {
        for is_leaving in [true, false] {
            let mut members = pair();
            let changed = Hello { leaves: is_leaving, aside: !is_leaving, ..hello("other", 1, (1, 1)) };
            let told = if is_leaving { MembershipStep::Left } else { MembershipStep::Gone };
            assert_eq!(members.hello(changed, 1_100), [told("other".into())]);
        }
    }

    #[test]
    fn a_node_that_stands_aside_keeps_nobody_out() {
        let mut members = Members::new(hello("me", 9, (1, 1)), TIMING);
        members.linked(true, 0);
        members.hello(hello("old", 1, (1, 1)), 10);
        members.hello(Hello { aside: true, ..hello("of-tomorrow", 2, (7, 9)) }, 10);
        members.hello(Hello { aside: true, ..hello("between", 3, (1, 2)) }, 10);
        assert!(
            members.tick(LISTEN_MS).contains(&MembershipStep::Join(vec!["old".into()])),
            "and nobody waits for what it has"
        );
    }

    #[test]
    fn nodes_that_keep_facts_in_another_place_are_in_sight_until_they_go_or_move() {
        let of = |node: &str, facts: &str| Hello { facts: facts.into(), ..hello(node, 1, (1, 1)) };
        let mut members = Members::new(of("me", "NATS"), TIMING);
        members.linked(true, 0);
        let hellos = [of("near", "NATS"), of("old", ""), of("far", "PostgreSQL"), of("gone", "PostgreSQL")];
        hellos.into_iter().for_each(|hello| drop(members.hello(hello, 10)));
        assert_eq!(members.with_other_facts(), ["far".into(), "gone".into()]);
        members.hello(Hello { leaves: true, ..of("gone", "PostgreSQL") }, 20);
        members.hello(of("far", "NATS"), 20);
        assert_eq!(members.with_other_facts(), [] as [Arc<str>; 0]);
        let text = serde_json::to_string(&of("a", "NATS")).expect("it can be written");
        assert!(text.ends_with(r#""aside":false,"facts":"NATS"}"#), "{text}");
    }

    #[test]
    fn what_no_node_would_say_is_left_alone() {
        let mut members = pair();
        assert!(members.hello(hello(&"x".repeat(NODE_LEN_MAX + 1), 1, (1, 1)), 1_100).is_empty());
        assert!(members.hello(hello("inverted", 1, (9, 1)), 1_100).is_empty());
        for number in 0..2 * MEMBERS_MAX {
            members.hello(hello(&format!("invented-{number}"), 1, (1, 1)), 1_100);
        }
        assert_eq!(members.members.len(), MEMBERS_MAX);
    }

    #[test]
    fn a_cluster_speaks_the_highest_version_that_all_of_it_speak() {
        let mut members = Members::new(hello("me", 1, (1, 3)), TIMING);
        members.linked(true, 0);
        assert_eq!(members.version(), 3);
        members.hello(hello("a", 2, (2, 2)), 10);
        assert_eq!(members.version(), 2);
        members.hello(hello("b", 3, (7, 9)), 10);
        assert_eq!(members.version(), 2, "it is not part of it");
    }

    #[test]
    fn nodes_that_share_in_pairs_share_all_together() {
        let ranges = [(1, 2), (2, 3), (2, 5)];
        let all = ranges.iter().enumerate().map(|(number, range)| hello(&number.to_string(), number as u64, *range));
        let all: Vec<Hello> = all.collect();
        for me in &all {
            let mut members = Members::new(me.clone(), TIMING);
            members.linked(true, 0);
            all.iter().for_each(|other| drop(members.hello(other.clone(), 10)));
            assert!(all.iter().all(|other| (other.versions.0..=other.versions.1).contains(&members.version())));
        }
    }
}
