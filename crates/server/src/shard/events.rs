//! Reports what a shard has seen of its connections and channels to the thread that sends events.

use touchline_engine::events::{EventKind, HeldChanges, StateKey};
use touchline_engine::session::{SubscriptionChange, SubscriptionEnd};
use touchline_protocol::message::Encoding;

use super::client_facts::{BROKEN_OFF, ConnectingFacts, EndCause};
use super::connections::Connection;
use super::state::Shard;
use crate::runtime::event_mailbox::{
    ClientChange, ClientIncident, ConnectedFacts, DisconnectedFacts, EventMailbox, EventMessage,
};

/// How many slots the shard looks at in one tick to report clients again.
const TOLD_AGAIN_IN_TICK: usize = 2_048;

impl Shard {
    /// The mailbox of the thread that sends events; None = no endpoint wants this kind.
    fn teller(&self, kind: EventKind) -> Option<&EventMailbox> {
        self.node.events.get().filter(|events| events.wants(kind))
    }

    /// Keeps what a connection reports about itself until its client has connected.
    pub(super) fn note_connecting(&mut self, slot: u32, note: impl FnOnce(&mut ConnectingFacts)) {
        if self.teller(EventKind::Connected).is_some() {
            note(self.connecting.entry(slot).or_default());
        }
    }

    /// Reports that a client has connected.
    pub(super) fn tell_connected(&mut self, slot: u32) {
        let facts = self.connecting.remove(&slot).unwrap_or_default();
        let (Some(events), Some(connection)) = (self.teller(EventKind::Connected), self.connections.get(slot)) else {
            return;
        };
        let (life, is_again) = (self.telling.of(slot), false);
        let message = EventMessage::Client(self.now_ms, connected(connection, facts, (life, is_again)));
        // Ends that wait get the room first; otherwise they could pile up while clients connect and disconnect.
        let is_told = if self.unsent_ends.are_waiting() {
            events.lose(&message);
            false
        } else {
            events.tell(message)
        };
        if let Some(connection) = self.connections.get_mut(slot) {
            connection.is_told = is_told;
        }
    }

    /// Reports some of the clients again that another node has reported as gone. The name and the version of the
    /// client's program are not kept, so they are missing.
    pub(super) fn tell_again(&mut self) {
        if self.unsent_ends.are_waiting() {
            return;
        }
        for _ in 0..TOLD_AGAIN_IN_TICK {
            let Some(slot) = self.telling.due(self.connections.slot_count()) else { return };
            let is_connected = |connection: &&Connection| connection.session.is_connected();
            if let Some(connection) = self.connections.get(slot).filter(is_connected)
                && let Some(events) = self.teller(EventKind::Connected)
            {
                let facts = ConnectingFacts { address: self.address_of(slot, connection), ..Default::default() };
                let incident = connected(connection, facts, (self.telling.coming(), true));
                if events.try_send(EventMessage::Client(self.now_ms, incident)).is_err() {
                    // There is no room: the next tick continues.
                    return;
                }
            }
            self.telling.enter();
        }
    }

    /// Reports that a connection ends. Its session is still unchanged. `reason`: the text that the client gets; empty =
    /// none.
    pub(super) fn tell_disconnected(&mut self, slot: u32, reason: &str, cause: EndCause) {
        let Some(connection) = self.connections.get(slot).filter(|connection| connection.session.is_connected()) else {
            return;
        };
        let Some(events) = self.teller(EventKind::Disconnected) else { return };
        let session = &connection.session;
        let facts = DisconnectedFacts {
            life: self.telling.of(slot),
            transport: connection.transport.as_str(),
            code: if connection.close_code == 0 { BROKEN_OFF } else { connection.close_code },
            reason: reason.into(),
            cause: cause.as_str(),
            duration_ms: self.now_ms.saturating_sub(self.node.clock.at(connection.opened)),
        };
        let change = ClientChange::Disconnected(Box::new(facts));
        let incident = ClientIncident { client: session.owner(), user: session.user().into(), change };
        let (end, is_told) = (EventMessage::Client(self.now_ms, incident), connection.is_told);
        if !is_told {
            events.tell(end);
            return;
        }
        let mut ends = std::mem::take(&mut self.unsent_ends);
        if let Some(events) = self.node.events.get() {
            ends.send(end, |end| events.try_send(end));
        }
        self.unsent_ends = ends;
    }

    /// Reports the subscriptions of a session that have begun or ended.
    pub(super) fn tell_subscriptions(&mut self, slot: u32) {
        let changes = std::mem::take(&mut self.effects.subscription_changes);
        let (Some(events), Some(connection)) = (self.node.events.get(), self.connections.get(slot)) else { return };
        let namespaces = &self.generation.session.namespaces;
        for SubscriptionChange { channel, number, end } in changes {
            let is_wanted = self.generation.wants.has_namespace(namespaces.namespace_of(&channel));
            let change = match end {
                None => ClientChange::Subscribed { channel, number },
                Some(SubscriptionEnd { code, duration_ms }) => {
                    ClientChange::Unsubscribed { channel, number, code, duration_ms }
                }
            };
            if is_wanted && events.wants(change.kind()) {
                let (client, user) = (connection.session.owner(), connection.session.user().into());
                events.tell(EventMessage::Client(self.now_ms, ClientIncident { client, user, change }));
            }
        }
    }

    /// Reports the ends of clients that had no room before, and changes of the channels and users held on this shard.
    /// Messages without room wait for the next tick.
    pub(super) fn tell_held(&mut self) {
        let Some(events) = self.node.events.get() else { return };
        self.unsent_ends.retry(|end| events.try_send(end));
        let namespaces = &self.generation.session.namespaces;
        if let Some(changes) = self.channels.held_changes() {
            let wants = &self.generation.wants;
            let is_wanted = |key: &StateKey| wants.has_namespace(namespaces.namespace_of(key.name()));
            send_held(events, self.id, changes, is_wanted);
        }
        if let Some(changes) = self.users.held_changes() {
            send_held(events, self.id, changes, |key| !key.name().is_empty());
        }
    }
}

/// Makes the report of a client that has connected. `life`: the life of the node. `is_again`: it was reported before.
fn connected(connection: &Connection, facts: ConnectingFacts, (life, is_again): (u32, bool)) -> ClientIncident {
    let session = &connection.session;
    let (meta, labels) = session.meta_and_labels();
    let ConnectingFacts { address, name, version } = facts;
    let facts = ConnectedFacts {
        life,
        is_again,
        transport: connection.transport.as_str(),
        encoding: if connection.wire.encoding == Encoding::Protobuf { "protobuf" } else { "json" },
        name,
        version,
        address,
        meta,
        labels,
    };
    let change = ClientChange::Connected(Box::new(facts));
    ClientIncident { client: session.owner(), user: session.user().into(), change }
}

fn send_held(events: &EventMailbox, shard: u16, changes: &mut HeldChanges, is_wanted: impl Fn(&StateKey) -> bool) {
    while let Some((key, is_held)) = changes.take() {
        if !is_wanted(&key) {
            continue;
        }
        if let Err(EventMessage::Held { key, is_held, .. }) =
            events.try_send(EventMessage::Held { key, shard, is_held })
        {
            return changes.put_back(key, is_held);
        }
    }
}
