//! The answer of `forget_user`.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::named_inbox::NamedInbox;
use super::place::ForgetPlace;
use crate::api::operation::OtherNodes;

/// The most remaining inboxes that are listed.
const INBOXES_LISTED_MAX: usize = 100;

/// What one request has removed.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RemovedOfUser {
    /// Connections that were ended, on all nodes.
    pub(super) connections: u64,
    /// Names of the registry that those connections had.
    pub(super) names: u64,
    /// Memberships in groups of the registry that those connections had.
    pub(super) groups: u64,
    /// Messages that waited for the user's own names, and for the names in the request.
    pub(super) inbox_messages: u64,
    /// Times of the user's last connection: one for each place that kept one.
    pub(super) last_seen: u64,
    /// Dead letters of durable events that name the user.
    pub(super) dead_letters: u64,
    /// Events of the statistics that the user reported.
    pub(super) stats_events: u64,
}

impl RemovedOfUser {
    fn add(&mut self, other: &RemovedOfUser) {
        let RemovedOfUser { connections, names, groups, inbox_messages, last_seen, dead_letters, stats_events } = other;
        self.connections += connections;
        self.names += names;
        self.groups += groups;
        self.inbox_messages += inbox_messages;
        self.last_seen += last_seen;
        self.dead_letters += dead_letters;
        self.stats_events += stats_events;
    }
}

/// What remains of the user, as far as the node knows it.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct RemainsOfUser {
    /// The kinds of bans of the user, as `bans` names them. They remain, so that the user does not come back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("items" = {"type": "string", "enum": ["user", "issued_before"]}))]
    pub(super) bans: Vec<Box<str>>,
    /// Channels that name only this user and keep a history; `history_remove` removes the history.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) channels: Vec<String>,
    /// At most 100 names that may also belong to other users, in scopes that keep messages. The user's connections had
    /// these names, or a pattern gives them to the user and messages wait for them. The messages were not deleted: send
    /// the names in `names`, or call `inbox_drop`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) inboxes: BTreeSet<NamedInbox>,
}

impl RemainsOfUser {
    /// Adds an inbox to the list if the list is not full.
    pub(super) fn add_inbox(&mut self, inbox: NamedInbox) {
        if self.inboxes.len() < INBOXES_LISTED_MAX {
            self.inboxes.insert(inbox);
        }
    }
}

/// The work that is left when all nodes have done their part.
#[derive(Debug, Default)]
pub(super) struct ForgetWork {
    /// The id of the asked node.
    pub(super) here: Box<str>,
    pub(super) user: Box<str>,
    /// Names whose inboxes belong to the user, as the request says.
    pub(super) names: Vec<NamedInbox>,
    pub(super) from: ForgetPlace,
    /// The hash of the request that the cursor of the answer belongs to.
    pub(super) digest: u64,
    /// A hash of the inboxes that the configuration gives to the user, from the cursor of the request.
    pub(super) inboxes: u64,
    /// Another node is writing the time of the user's last connection.
    pub(super) is_seen_busy: bool,
}

impl ForgetWork {
    /// Whether the request names an inbox.
    pub(super) fn is_named(&self, inbox: &NamedInbox) -> bool {
        self.names.contains(inbox)
    }
}

/// What was removed, and what remains.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ForgetUserReply {
    /// Everything that can be removed is removed. Otherwise send the request again, with the `cursor` if there is one.
    pub(super) done: bool,
    /// Where the next request continues; absent = it starts from the beginning, or no work is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub(super) cursor: Option<String>,
    /// What this request has removed.
    pub(super) removed: RemovedOfUser,
    /// What remains of the user.
    pub(super) remains: RemainsOfUser,
    /// The ids of nodes that have not done their part: they did not answer in time, their database fails, or they are
    /// of an earlier version. The list also has nodes that disappeared within the last hour without an announcement,
    /// because they may still serve the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing_nodes: Vec<Box<str>>,
    /// `true`: nodes may be left out. Some are missing, or the asked node is cut off from the others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_partial: bool,
    #[serde(skip)]
    pub(super) work: ForgetWork,
}

impl ForgetUserReply {
    /// Adds what other nodes have removed.
    pub(super) fn merge(&mut self, others: &OtherNodes<'_>) {
        let mut missing: BTreeSet<Box<str>> = std::mem::take(&mut self.missing_nodes).into_iter().collect();
        for (_, json) in &others.results {
            let Ok(other) = serde_json::from_str::<ForgetUserReply>(json.get()) else { continue };
            self.removed.add(&other.removed);
            other.remains.inboxes.into_iter().for_each(|inbox| self.remains.add_inbox(inbox));
            self.work.is_seen_busy |= !other.done;
            missing.extend(other.missing_nodes);
        }
        // A node that answered has done its part, even if another node has lost it.
        let has_answered = |node: &str| others.results.iter().any(|(of, _)| *of == Some(node));
        missing.retain(|node| *node != self.work.here && !has_answered(node));
        missing.extend(others.missing.iter().cloned());
        self.is_partial = others.are_partial();
        self.add_missing(missing.into_iter().collect());
    }

    /// Adds nodes that have not done their part.
    pub(super) fn add_missing(&mut self, nodes: Vec<Box<str>>) {
        self.missing_nodes.extend(nodes);
        self.missing_nodes.sort_unstable();
        self.missing_nodes.dedup();
        self.is_partial |= !self.missing_nodes.is_empty();
    }

    /// Completes the answer. `next`: where the work continues; None = no work is left.
    pub(super) fn end(&mut self, next: Option<ForgetPlace>) {
        let all_have_done = !self.is_partial && !self.work.is_seen_busy;
        self.done = next.is_none() && all_have_done;
        // A missing node may leave work before this place, so the next request starts from the beginning.
        self.cursor = next.filter(|_| all_have_done).map(|place| place.cursor(self.work.digest, self.work.inboxes));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn named(name: &str) -> NamedInbox {
        NamedInbox { scope: "devices".into(), name: name.into() }
    }

    fn ended(others: &OtherNodes<'_>, next: Option<ForgetPlace>) -> (bool, Option<String>) {
        let mut reply = ForgetUserReply::default();
        reply.merge(others);
        reply.end(next);
        (reply.done, reply.cursor)
    }

    #[test]
    fn what_nodes_have_removed_is_added_up() {
        let part = |connections, name| {
            let mut part = ForgetUserReply { done: true, ..ForgetUserReply::default() };
            part.removed = RemovedOfUser { connections, last_seen: 1, ..RemovedOfUser::default() };
            part.remains.add_inbox(named(name));
            part
        };
        let json = serde_json::to_string(&part(2, "bike")).expect("it can be written");
        let raw = RawValue::from_string(json).expect("JSON");
        let others = OtherNodes { results: vec![(Some("b"), &raw)], ..OtherNodes::default() };
        let mut reply = part(1, "car");
        reply.merge(&others);
        assert_eq!((reply.removed.connections, reply.removed.last_seen, reply.is_partial), (3, 2, false));
        assert!(reply.remains.inboxes.iter().eq(&[named("bike"), named("car")]));
    }

    #[test]
    fn it_is_done_only_when_every_node_has_done_its_part() {
        let place = || Some(ForgetPlace::StatsEvents { from: 9 });
        assert_eq!(ended(&OtherNodes::default(), None), (true, None));
        assert_eq!(ended(&OtherNodes::default(), place()), (false, Some("0000000000000000:0:stats_events:9".into())));
        let missing = OtherNodes { missing: vec!["b".into()], ..OtherNodes::default() };
        assert_eq!((ended(&missing, None), ended(&missing, place())), ((false, None), (false, None)));
        let is_cut_off = OtherNodes { is_cut_off: true, ..OtherNodes::default() };
        assert_eq!(ended(&is_cut_off, None), (false, None));
        let raw = RawValue::from_string(r#"{"done":false}"#.to_owned()).expect("JSON");
        let busy = OtherNodes { results: vec![(Some("b"), &raw)], ..OtherNodes::default() };
        assert_eq!(ended(&busy, None), (false, None));
    }

    #[test]
    fn a_node_out_of_sight_is_missing_unless_it_has_answered() {
        let work = ForgetWork { here: "a".into(), ..ForgetWork::default() };
        let mut reply = ForgetUserReply { missing_nodes: vec!["lost".into()], work, ..ForgetUserReply::default() };
        let part = |json: &str| RawValue::from_string(json.to_owned()).expect("JSON");
        let (b, c) = (part(r#"{"done":true,"missing_nodes":["a","c","dead"]}"#), part(r#"{"done":true}"#));
        let results: Vec<(Option<&str>, &RawValue)> = vec![(Some("b"), &b), (Some("c"), &c)];
        reply.merge(&OtherNodes { results, missing: vec!["late".into()], ..OtherNodes::default() });
        reply.add_missing(vec!["lost".into(), "new".into()]);
        reply.end(None);
        assert_eq!(reply.missing_nodes, ["dead", "late", "lost", "new"].map(Box::from));
        assert_eq!((reply.done, reply.is_partial), (false, true));
        let mut alone = ForgetUserReply::default();
        alone.add_missing(vec!["lost".into()]);
        alone.end(Some(ForgetPlace::default()));
        assert_eq!((alone.done, alone.cursor), (false, None));
    }

    #[test]
    fn inboxes_are_listed_up_to_a_number() {
        let mut remains = RemainsOfUser::default();
        (0..2 * INBOXES_LISTED_MAX).for_each(|number| remains.add_inbox(named(&number.to_string())));
        assert_eq!(remains.inboxes.len(), INBOXES_LISTED_MAX);
    }
}
