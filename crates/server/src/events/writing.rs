//! Makes events from what the threads of the node have seen.

use std::net::IpAddr;

use aws_lc_rs::digest;
use bytes::Bytes;
use touchline_engine::directory::{EntryIncident, LostClient, client_text};
use touchline_engine::events::{
    EVENT_ID_SIZE_MAX, EventDraft, EventKind, EventOrigin, EventValue, StateChange, StateKey,
};
use touchline_engine::session::SessionSigner;
use touchline_registry::OwnerId;
use touchline_store::ExpiredMessage;

use crate::node::Node;
use crate::runtime::event_mailbox::{ClientChange, ClientIncident};

/// The number of bytes of a hash that stands for a session, or for the end of a text that is too long.
const HASH_SIZE: usize = 16;
/// The most bytes of a key, and of the first part of an id. Longer texts are shortened.
const KEY_SIZE_MAX: usize = 288;
// The rest of an id is a character, a client, a stamp and a number, each with its separator.
const _: () = assert!(KEY_SIZE_MAX + 96 <= EVENT_ID_SIZE_MAX);

fn text(value: &str) -> EventValue {
    EventValue::Text(value.into())
}

fn hash(bytes: &[u8]) -> String {
    let hash = digest::digest(&digest::SHA256, bytes);
    hash.as_ref()[..HASH_SIZE].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Shortens a text that ids and keys are made of. Clients, tokens and settings decide how long users, channels and
/// names are. A hash replaces the end of a long text, so that different texts stay different.
fn bounded(text: String) -> String {
    if text.len() <= KEY_SIZE_MAX {
        return text;
    }
    let shown = text.floor_char_boundary(KEY_SIZE_MAX - 2 * HASH_SIZE - 1);
    format!("{}~{}", &text[..shown], hash(text.as_bytes()))
}

/// Returns the key by which the events of a client are ordered.
pub(super) fn client_key(user: &str, client: &str) -> String {
    bounded(if user.is_empty() { format!("client:{client}") } else { format!("user:{user}") })
}

/// Returns the hash of what proves a client's session. It distinguishes two sessions, and it does not work as the
/// proof.
fn session_hash(node: &Node, client: OwnerId) -> String {
    hash(node.signer.sign(client).as_bytes())
}

/// Makes the event of what has happened to a client, with the channel that it is about. `time_ms`: when it happened, in
/// Unix milliseconds.
pub(super) fn client_draft(node: &Node, time_ms: u64, incident: ClientIncident) -> (EventDraft, Option<String>) {
    let ClientIncident { client: owner, user, change } = incident;
    let client = client_text(owner);
    let kind = change.kind();
    let mut fields = vec![("client", text(&client)), ("user", text(&user))];
    let (letter, number, channel) = match change {
        ClientChange::Connected(facts) => {
            fields.push(("session", EventValue::Text(session_hash(node, owner).into())));
            fields.extend([("transport", text(facts.transport)), ("encoding", text(facts.encoding))]);
            fields.extend([("name", EventValue::Text(facts.name)), ("version", EventValue::Text(facts.version))]);
            fields.extend(facts.address.map(|address: IpAddr| ("address", text(&address.to_string()))));
            fields.push(("node", text(&node.generation().settings.node.name)));
            fields.extend(facts.meta.map(|meta| ("meta", EventValue::Optional(meta))));
            fields.extend(facts.labels.map(|labels| ("labels", EventValue::Optional(labels))));
            ("c", facts.life, None)
        }
        ClientChange::Disconnected(facts) => {
            fields
                .extend([("code", EventValue::Number(facts.code.into())), ("reason", EventValue::Text(facts.reason))]);
            fields.extend([("cause", text(facts.cause)), ("duration_ms", EventValue::Number(facts.duration_ms))]);
            fields.push(("transport", text(facts.transport)));
            ("d", facts.life, None)
        }
        ClientChange::Subscribed { channel, number } => ("s", number, Some(channel.to_string())),
        ClientChange::Unsubscribed { channel, number, code, duration_ms } => {
            fields.extend(code.map(|code| ("code", EventValue::Number(code.into()))));
            fields.push(("duration_ms", EventValue::Number(duration_ms)));
            ("u", number, Some(channel.to_string()))
        }
    };
    if let Some(channel) = &channel {
        fields.push(("channel", text(channel)));
        fields.push(("namespace", text(node.generation().session.namespaces.namespace_of(channel))));
    }
    let subject = bounded(channel.clone().unwrap_or_else(|| client.to_string()));
    let id = match &channel {
        Some(_) => format!("{client}:{letter}:{subject}:{number}"),
        None => format!("{client}:{letter}:{number}"),
    };
    let key = client_key(&user, &client);
    (EventDraft { kind, id, subject, key, time_ms, generation: None, origin: EventOrigin::Node, fields }, channel)
}

/// Makes the event of a client that was lost with its node. `time_ms`: when this is reported, in Unix milliseconds.
/// `life`: the life of the node that ended with it.
pub(super) fn lost_client_draft(time_ms: u64, lost: LostClient, life: u32) -> EventDraft {
    let client = client_text(lost.client);
    EventDraft {
        kind: EventKind::Disconnected,
        id: format!("{client}:d:{life}"),
        key: client_key(&lost.user, &client),
        time_ms,
        generation: None,
        origin: EventOrigin::Elsewhere(lost.node),
        fields: vec![
            ("client", text(&client)),
            ("user", EventValue::Text(lost.user)),
            ("reason", text("node_lost")),
            ("cause", text("node_down")),
        ],
        subject: client,
    }
}

/// Makes the event of a channel that now has its first subscriber or has none, or of a user that now is online or
/// offline.
pub(super) fn state_draft(node: &Node, change: &StateChange) -> EventDraft {
    let is_held = change.is_held();
    let name = change.key.name();
    let (kind, mut fields, since) = match &change.key {
        StateKey::Channel(_) => {
            let namespace = node.generation().session.namespaces.namespace_of(name);
            let kind = if is_held { EventKind::Occupied } else { EventKind::Vacated };
            (kind, vec![("channel", text(name)), ("namespace", text(namespace))], "empty_since")
        }
        StateKey::User(_) => {
            let kind = if is_held { EventKind::UserOnline } else { EventKind::UserOffline };
            (kind, vec![("user", text(name))], "last_seen")
        }
    };
    fields.push(("reason", text(change.reason)));
    fields.extend(change.empty_since_ms.map(|since_ms| (since, EventValue::Time(since_ms))));
    let key = bounded(change.key.partition_key());
    EventDraft {
        kind,
        id: format!("{key}:{}", change.generation),
        subject: bounded(name.to_owned()),
        key,
        time_ms: change.time_ms,
        generation: Some(change.generation),
        origin: EventOrigin::Cluster,
        fields,
    }
}

/// Makes the event of a name or a group. `time_ms`: when it changed, in Unix milliseconds.
pub(super) fn entry_draft(time_ms: u64, incident: &EntryIncident) -> EventDraft {
    let EntryIncident { kind, scope, entry, reason, user, winner, .. } = incident;
    let (client, stamp) = (client_text(entry.owner()), entry.stamp().0);
    let is_group = matches!(kind, EventKind::MemberJoined | EventKind::MemberLeft);
    let key = bounded(format!("{}:{scope}/{}", if is_group { "group" } else { "name" }, entry.key()));
    let id = match kind {
        EventKind::NameUpdated => format!("{key}:{stamp}:{}", entry.revision()),
        EventKind::NameLost => format!("{key}:{stamp}:lost"),
        EventKind::MemberJoined => format!("{key}:{client}:{stamp}"),
        EventKind::MemberLeft => format!("{key}:{client}:{stamp}:left"),
        _ => format!("{key}:{stamp}"),
    };
    let mut fields = vec![("scope", text(scope)), (if is_group { "group" } else { "name" }, text(entry.key()))];
    fields.extend([("client", text(&client)), ("user", text(user)), ("reason", text(reason.as_str()))]);
    fields.extend(winner.as_ref().map(|winner| ("winner", text(&client_text(winner.owner())))));
    if !entry.meta().is_empty() {
        fields.push(("meta", EventValue::Optional(Bytes::copy_from_slice(entry.meta()))));
    }
    let subject = bounded(entry.key().to_owned());
    EventDraft { kind: *kind, id, subject, key, time_ms, generation: None, origin: EventOrigin::Cluster, fields }
}

/// Makes the event of a message that was not acknowledged in time. `time_ms`: when it was deleted, in Unix
/// milliseconds.
pub(super) fn expired_draft(time_ms: u64, message: &ExpiredMessage) -> EventDraft {
    let ExpiredMessage { id, scope, name, expires_ms } = message;
    EventDraft {
        kind: EventKind::InboxExpired,
        id: format!("inbox:{id}"),
        subject: bounded(name.to_string()),
        key: bounded(format!("name:{scope}/{name}")),
        time_ms,
        generation: None,
        origin: EventOrigin::Cluster,
        fields: vec![
            ("id", EventValue::Number(*id)),
            ("scope", text(scope)),
            ("name", text(name)),
            ("expired_at", EventValue::Time(*expires_ms)),
        ],
    }
}

/// Makes the event that says that events may be missing. `since_ms`: nothing before this time is in doubt, in Unix
/// milliseconds; `None` = everything is. `number`: the number of this event in the current life of the node.
pub(super) fn reset_draft(node: &Node, time_ms: u64, since_ms: Option<u64>, why: &str, number: u64) -> EventDraft {
    let since = since_ms.map(|since_ms| ("since", EventValue::Time(since_ms)));
    EventDraft {
        kind: EventKind::StateReset,
        id: format!("reset:{}:{number}", node.id),
        subject: node.id.clone(),
        key: "all".to_owned(),
        time_ms,
        generation: None,
        origin: EventOrigin::Node,
        fields: Some(("why", text(why))).into_iter().chain(since).collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_usual_key_is_what_it_stands_for() {
        assert_eq!(client_key("ann", "c"), "user:ann");
        assert_eq!(client_key("", "c"), "client:c");
        let longest = "a".repeat(KEY_SIZE_MAX - "user:".len());
        assert_eq!(client_key(&longest, "c"), format!("user:{longest}"));
    }

    proptest! {
        #[test]
        fn keys_are_short_and_as_different_as_what_they_stand_for(
            start in "[a-é😀]{0,600}", ends in prop::collection::btree_set("[a-é]{0,3}", 1..5),
        ) {
            let keys: Vec<String> = ends.iter().map(|end| client_key(&format!("u{start}{end}"), "c")).collect();
            prop_assert!(keys.iter().all(|key| key.len() <= KEY_SIZE_MAX && key.starts_with("user:u")));
            let different: std::collections::BTreeSet<&String> = keys.iter().collect();
            prop_assert_eq!(different.len(), ends.len());
        }
    }
}
