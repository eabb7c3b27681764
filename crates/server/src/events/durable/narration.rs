//! Makes the events in the outbox from what the ledger finds and this node has seen. The rows of the endpoints decide
//! which endpoint receives an event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};
use touchline_engine::events::{
    EventDraft, EventKind, EventOrigin, EventSources, EventValue, StateChange, StateKey, place_of,
};
use touchline_store::ledger::{GoneClient, LedgerCause, Narrator, OutboxEvent, ToldKey};

use super::super::writing::{client_key, reset_draft, state_draft};
use crate::node::Node;

/// Writes events for the outbox.
pub(super) struct Narration {
    node: Arc<Node>,
    sources: EventSources,
    /// How many times the ledger has reported that events may be missing.
    resets: AtomicU64,
}

/// What the ledger keeps of a client, so that any node can report its end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClientNote {
    /// The user of the client; empty = anonymous.
    user: String,
    transport: String,
    /// When the client connected, in Unix milliseconds.
    connected_ms: u64,
    /// The life of its node in which the client was reported, from 1.
    life: u64,
}

impl Narration {
    pub(super) fn new(node: Arc<Node>) -> Self {
        let sources = EventSources::new(&node.generation().settings.cluster.name, &node.id);
        Narration { node, sources, resets: AtomicU64::new(0) }
    }

    fn json(&self, draft: &EventDraft) -> Option<String> {
        let written = draft.write(&self.sources);
        written.and_then(|event| String::from_utf8(event.body.into()).ok())
    }

    /// Writes an event. An event that is too large is left out.
    pub(super) fn tell(&self, draft: &EventDraft, channel: Option<&str>, outbox: &mut Vec<OutboxEvent>) {
        let Some(body) = self.json(draft) else {
            tracing::warn!(id = draft.id, "an event is too large: it is not sent");
            return;
        };
        let namespace = channel.map(|channel| self.node.generation().session.namespaces.namespace_of(channel).into());
        outbox.push(OutboxEvent { word: draft.kind.word(), namespace, place: place_of(&draft.key), body });
    }
}

/// Returns what the ledger keeps of a connected client, as JSON. `life`: the life of its node.
pub(super) fn client_note(draft: &EventDraft, life: u64) -> String {
    let text = |wanted: &str| {
        draft.fields.iter().find_map(|(name, value)| match value {
            EventValue::Text(text) if *name == wanted => Some(text.to_string()),
            _ => None,
        })
    };
    let note = ClientNote {
        user: text("user").unwrap_or_default(),
        transport: text("transport").unwrap_or_default(),
        connected_ms: draft.time_ms,
        life,
    };
    serde_json::to_string(&note).unwrap_or_default()
}

impl Narrator for Narration {
    fn tell_key(&self, told: &ToldKey, outbox: &mut Vec<OutboxEvent>) {
        let (empty_since_ms, reason) = match told.empty {
            None => (None, "normal"),
            Some((since_ms, LedgerCause::Left)) => (Some(since_ms), "normal"),
            Some((since_ms, LedgerCause::NodeDown)) => (Some(since_ms), "node_down"),
            Some((since_ms, LedgerCause::Restart)) => (Some(since_ms), "restart"),
        };
        let change = StateChange {
            key: told.key.clone(),
            generation: told.generation,
            reason,
            empty_since_ms,
            time_ms: told.time_ms,
        };
        let channel = matches!(change.key, StateKey::Channel(_)).then(|| change.key.name());
        self.tell(&state_draft(&self.node, &change), channel, outbox);
    }

    fn tell_lost(&self, lost: &GoneClient, outbox: &mut Vec<OutboxEvent>) {
        let Ok(note) = serde_json::from_str::<ClientNote>(&lost.about) else {
            tracing::error!(
                client = lost.client,
                "the ledger's record of a client cannot be read: the end of the client is not reported"
            );
            return;
        };
        let text = |value: &str| EventValue::Text(value.into());
        let client = &lost.client;
        let cause = if lost.cause == LedgerCause::Restart { "restart" } else { "node_down" };
        let draft = EventDraft {
            kind: EventKind::Disconnected,
            id: format!("{client}:d:{}", note.life),
            subject: client.clone(),
            key: client_key(&note.user, client),
            time_ms: lost.time_ms,
            generation: None,
            origin: EventOrigin::Elsewhere(lost.node.as_str().into()),
            fields: vec![
                ("client", text(client)),
                ("user", text(&note.user)),
                ("reason", text("node_lost")),
                ("cause", text(cause)),
                ("duration_ms", EventValue::Number(lost.time_ms.saturating_sub(note.connected_ms))),
                ("transport", text(&note.transport)),
            ],
        };
        self.tell(&draft, None, outbox);
    }

    fn tell_reset(&self, why: &'static str) -> String {
        let (number, now_ms) = (self.resets.fetch_add(1, Relaxed) + 1, self.node.clock.now_ms());
        let mut draft = reset_draft(&self.node, now_ms, None, why, number);
        // The node itself also reports losses, and numbers them on its own.
        draft.id = format!("reset:{}:l{number}", self.node.id);
        // The event contains no texts of clients and nothing else that could make it too large.
        self.json(&draft).unwrap_or_default()
    }
}
