//! From what the ledger finds, and what this node has seen, to the events in the outbox: one for each durable endpoint
//! that is told of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use touchline_engine::events::{
    EventDraft, EventKind, EventOrigin, EventSources, EventValue, StateChange, StateKey, lane_of,
};
use touchline_store::ledger::{GoneClient, LedgerCause, Narrator, OutboxEvent, ToldKey};

use super::super::endpoint::EventEndpoint;
use super::super::writing::{client_key, state_draft};
use crate::node::Node;

/// Writes events for the outbox.
pub(super) struct Narration {
    node: Arc<Node>,
    sources: EventSources,
    endpoints: Vec<Arc<EventEndpoint>>,
}

/// What the ledger keeps of a client, so that any node can tell its end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ClientNote {
    /// Empty = anonymous.
    user: String,
    transport: String,
    /// When it connected, Unix milliseconds.
    connected_ms: u64,
    /// The life of its node in which it was told, from 1 on.
    life: u64,
}

impl Narration {
    pub(super) fn new(node: Arc<Node>, endpoints: Vec<Arc<EventEndpoint>>) -> Self {
        let sources = EventSources::new(&node.settings.cluster.name, &node.id);
        Narration { node, sources, endpoints }
    }

    /// Whether some endpoint is told of connections.
    pub(super) fn tells_clients(&self) -> bool {
        let is_told = |kind| self.endpoints.iter().any(|endpoint| endpoint.kinds.has(kind));
        is_told(EventKind::Connected) || is_told(EventKind::Disconnected)
    }

    /// Whether some endpoint is told of this. `channel`: that it is about, if endpoints are told of some only.
    pub(super) fn is_told(&self, kind: EventKind, channel: Option<&str>) -> bool {
        let namespace = channel.map(|channel| self.node.session.namespaces.namespace_of(channel));
        self.endpoints.iter().any(|endpoint| endpoint.is_told(kind, namespace))
    }

    /// Whether some endpoint is told whether a key is held.
    pub(super) fn counts(&self, key: &StateKey) -> bool {
        let (kinds, channel) = match key {
            StateKey::Channel(name) => ([EventKind::Occupied, EventKind::Vacated], Some(&**name)),
            StateKey::User(_) => ([EventKind::UserOnline, EventKind::UserOffline], None),
        };
        kinds.into_iter().any(|kind| self.is_told(kind, channel))
    }

    /// Writes an event for each endpoint that is told of it. One that is too large is left out.
    pub(super) fn tell(&self, draft: &EventDraft, channel: Option<&str>, outbox: &mut Vec<OutboxEvent>) {
        let namespace = channel.map(|channel| self.node.session.namespaces.namespace_of(channel));
        let mut told = self.endpoints.iter().filter(|endpoint| endpoint.is_told(draft.kind, namespace)).peekable();
        if told.peek().is_none() {
            return;
        }
        let written = draft.write(&self.sources);
        let Some(body) = written.and_then(|event| String::from_utf8(event.body.into()).ok()) else {
            tracing::warn!(id = draft.id, "an event is too large: it is not told");
            return;
        };
        for endpoint in told {
            let lanes = endpoint.options.lanes;
            let own = lane_of(&draft.key, lanes);
            // What may be wrong is told in every lane.
            let lanes = if draft.kind == EventKind::StateReset { 0..lanes } else { own..own + 1 };
            outbox.extend(lanes.map(|lane| OutboxEvent {
                endpoint: endpoint.name.as_str().into(),
                lane: lane as u32,
                body: body.clone(),
            }));
        }
    }
}

/// What the ledger keeps of a client that has connected, as JSON. `life`: that of the node.
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
                "what the ledger says of a client can't be read: its end is not told"
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
}
