//! From what a thread of the node has seen to the event that tells it.

use std::net::IpAddr;

use aws_lc_rs::digest;
use touchline_engine::directory::client_text;
use touchline_engine::events::{EventDraft, EventKind, EventOrigin, EventValue};
use touchline_engine::session::SessionSigner;
use touchline_registry::OwnerId;

use crate::node::Node;
use crate::runtime::event_mailbox::{ClientChange, ClientIncident};

/// Bytes of the hash that stands for a session.
const SESSION_HASH_SIZE: usize = 16;

fn text(value: &str) -> EventValue {
    EventValue::Text(value.into())
}

/// The key by which the events of a client are ordered.
fn client_key(user: &str, client: &str) -> String {
    if user.is_empty() { format!("client:{client}") } else { format!("user:{user}") }
}

/// The hash of what proves a client's session: it tells two sessions apart, and nobody can use it.
fn session_hash(node: &Node, client: OwnerId) -> String {
    let hash = digest::digest(&digest::SHA256, node.signer.sign(client).as_bytes());
    hash.as_ref()[..SESSION_HASH_SIZE].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The event of what has happened to a client, and the channel that it is about. `time_ms`: when, Unix milliseconds.
pub(super) fn client_draft(node: &Node, time_ms: u64, incident: ClientIncident) -> (EventDraft, Option<String>) {
    let ClientIncident { client: owner, user, change } = incident;
    let client = client_text(owner);
    let kind = change.kind();
    let mut fields = vec![("client", text(&client)), ("user", text(&user))];
    let (letter, channel) = match change {
        ClientChange::Connected(facts) => {
            fields.push(("session", EventValue::Text(session_hash(node, owner).into())));
            fields.extend([("transport", text(facts.transport)), ("encoding", text(facts.encoding))]);
            fields.extend([("name", EventValue::Text(facts.name)), ("version", EventValue::Text(facts.version))]);
            fields.extend(facts.address.map(|address: IpAddr| ("address", text(&address.to_string()))));
            fields.push(("node", text(&node.settings.node.name)));
            fields.extend(facts.meta.map(|meta| ("meta", EventValue::Optional(meta))));
            fields.extend(facts.labels.map(|labels| ("labels", EventValue::Optional(labels))));
            ("c", None)
        }
        ClientChange::Disconnected(facts) => {
            fields
                .extend([("code", EventValue::Number(facts.code.into())), ("reason", EventValue::Text(facts.reason))]);
            fields.extend([("cause", text(facts.cause)), ("duration_ms", EventValue::Number(facts.duration_ms))]);
            fields.push(("transport", text(facts.transport)));
            ("d", None)
        }
        ClientChange::Subscribed(channel) => ("s", Some(channel.to_string())),
        ClientChange::Unsubscribed { channel, code, duration_ms } => {
            fields.extend(code.map(|code| ("code", EventValue::Number(code.into()))));
            fields.push(("duration_ms", EventValue::Number(duration_ms)));
            ("u", Some(channel.to_string()))
        }
    };
    if let Some(channel) = &channel {
        fields.push(("channel", text(channel)));
        fields.push(("namespace", text(node.session.namespaces.namespace_of(channel))));
    }
    let id = match &channel {
        Some(channel) => format!("{client}:{letter}:{channel}:{time_ms}"),
        None => format!("{client}:{letter}:1"),
    };
    let subject = channel.clone().unwrap_or_else(|| client.to_string());
    let key = client_key(&user, &client);
    (EventDraft { kind, id, subject, key, time_ms, generation: None, origin: EventOrigin::Node, fields }, channel)
}

/// The event that tells that something may not have been told. `number`: of those of this life of the node.
pub(super) fn reset_draft(node: &Node, time_ms: u64, since_ms: u64, why: &str, number: u64) -> EventDraft {
    EventDraft {
        kind: EventKind::StateReset,
        id: format!("reset:{}:{number}", node.id),
        subject: node.id.clone(),
        key: "all".to_owned(),
        time_ms,
        generation: None,
        origin: EventOrigin::Node,
        fields: vec![("why", text(why)), ("since", EventValue::Time(since_ms))],
    }
}
