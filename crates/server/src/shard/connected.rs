//! Answers which clients are connected to this shard. It finds connections by user and channel, and describes those
//! that match, a limited number in each turn.

use std::borrow::Cow;
use std::net::IpAddr;

use touchline_engine::hub::LocalChannel;
use touchline_protocol::encode::{ObjectWriter, number, text};
use touchline_protocol::message::Encoding;
use touchline_protocol::publication::Tags;

use super::connections::{Connection, ConnectionStage, NONE};
use super::state::Shard;
use crate::net::socket::Socket;
use crate::runtime::connection_query::{
    ConnectionFilter, ConnectionQuery, ConnectionQuestion, ConnectionRow, ConnectionSelection, ConnectionSlice,
    SLICE_MAX, SUBSCRIPTIONS_IN_TURN_MAX, SlotRange, USERS_IN_TURN_MAX,
};

/// How many channels the description of a connection lists; of further channels it has only the number.
const LISTED_CHANNELS_MAX: usize = 128;
/// How many bytes one turn may describe; the rest waits for another turn.
const SLICE_SIZE_MAX: usize = 256 * 1_024;

/// The cost of one turn so far.
#[derive(Default)]
struct SliceCost {
    /// Bytes of descriptions.
    size: usize,
    /// Subscriptions that the shard has looked at.
    subscriptions: usize,
}

impl SliceCost {
    /// Takes the subscriptions of the next connection into this turn. False = the connection waits for another turn.
    fn take(&mut self, subscriptions: usize) -> bool {
        let sum = self.subscriptions.saturating_add(subscriptions);
        let has_room = self.subscriptions == 0 || sum <= SUBSCRIPTIONS_IN_TURN_MAX;
        if has_room {
            self.subscriptions = sum;
        }
        has_room
    }
}

impl Shard {
    /// Answers a question about connections.
    pub(super) fn list_connections(&mut self, question: ConnectionQuestion) {
        match question {
            ConnectionQuestion::OfUsers { users, from, reply } => {
                let _ = reply.send(self.slots_of_users(&users, from));
            }
            ConnectionQuestion::OfChannel { channel, from, reply } => {
                let _ = reply.send(self.slots_of_channel(&channel, from));
            }
            ConnectionQuestion::Slice { query, slots, rows_max, reply } => {
                let slice = self.slice(&query, slots, rows_max);
                self.made += slice.rows.iter().map(|row| row.json.len()).sum::<usize>();
                let _ = reply.send(slice);
            }
            ConnectionQuestion::AreOnline { users, reply } => {
                debug_assert!(users.len() <= USERS_IN_TURN_MAX);
                let online = users.iter().map(|user| self.users.first_of(user, &self.connections) != NONE);
                let _ = reply.send(online.collect());
            }
        }
    }

    /// The slots of the connections of some users; see [`ConnectionQuestion::OfUsers`].
    fn slots_of_users(&self, users: &[Box<str>], from: u32) -> Option<Vec<u32>> {
        debug_assert!(users.len() <= USERS_IN_TURN_MAX);
        let (mut slots, mut visited) = (Vec::new(), 0);
        for user in users {
            let mut next = self.users.first_of(user, &self.connections);
            while next != NONE {
                visited += 1;
                if visited > SLICE_MAX {
                    return None;
                }
                slots.push(next);
                next = self.connections.get(next).map_or(NONE, |connection| connection.next_of_user);
            }
        }
        Some(ordered(slots, from))
    }

    /// The slots of the subscribers of a channel; see [`ConnectionQuestion::OfChannel`].
    fn slots_of_channel(&self, channel: &str, from: u32) -> Option<Vec<u32>> {
        let Some(channel) = self.hub.find(channel) else { return Some(Vec::new()) };
        let is_few = self.hub.subscriber_count(channel) <= SLICE_MAX;
        is_few.then(|| ordered(self.hub.subscribers(channel).collect(), from))
    }

    /// The matching connections in some slots; see [`ConnectionQuestion::Slice`].
    fn slice(&self, query: &ConnectionQuery, slots: SlotRange, rows_max: usize) -> ConnectionSlice {
        let matcher = Matcher::of(self, query);
        let end = self.connections.slot_count();
        let (slots, after): (Box<dyn Iterator<Item = u32>>, Option<u32>) = match slots {
            SlotRange::From(first) => {
                let last = first.saturating_add(SLICE_MAX as u32).min(end);
                (Box::new(first..last), (last < end).then_some(last))
            }
            SlotRange::These(slots) => (Box::new(slots.into_iter().take(SLICE_MAX)), None),
        };
        let (mut rows, mut cost) = (Vec::new(), SliceCost::default());
        for slot in slots {
            if rows.len() >= rows_max || cost.size >= SLICE_SIZE_MAX {
                return ConnectionSlice { rows, next: Some(slot) };
            }
            let fits = |connection: &&Connection| matcher.fits(slot, connection);
            let Some(connection) = self.connections.get(slot).filter(fits) else { continue };
            // Connections that do not match are skipped without a look at their subscriptions.
            if !cost.take(connection.session.subscription_count()) {
                return ConnectionSlice { rows, next: Some(slot) };
            }
            if matcher.is_of_channel(connection) {
                let json = self.describe(slot, connection, matcher.channel);
                cost.size += json.len();
                rows.push(ConnectionRow { client: connection.session.owner(), json });
            }
        }
        ConnectionSlice { rows, next: after }
    }

    /// Notes the address of a new connection's client, if the socket does not know it.
    pub(super) fn note_address(&mut self, slot: u32, socket: &Socket, client: IpAddr) {
        let tells_client = || self.generation.proxies.is_empty() || socket.peer_address() == Some(client);
        if !(socket.has_peer_address() && tells_client()) {
            self.told_addresses.insert(slot, client);
        }
    }

    /// The address of a connection's client; None = the system does not know it any more.
    pub(super) fn address_of(&self, slot: u32, connection: &Connection) -> Option<IpAddr> {
        self.told_addresses.get(&slot).copied().or_else(|| connection.socket.peer_address())
    }

    /// Describes a connection as a JSON object. `only`: the one channel to list; None = all channels.
    fn describe(&self, slot: u32, connection: &Connection, only: Option<LocalChannel>) -> Vec<u8> {
        let session = &connection.session;
        let mut out = Vec::with_capacity(384);
        let mut object = ObjectWriter::open(&mut out);
        if let Some((name, version)) = self.metrics.programs.label(connection.program) {
            object.text("app_name", &name).text("app_version", &version);
        }
        object.text("transport", connection.transport.as_str());
        let is_protobuf = matches!(connection.wire.encoding, Encoding::Protobuf);
        object.text("protocol", if is_protobuf { "protobuf" } else { "json" });
        text(object.key("user"), session.user());
        self.describe_state(connection, only, object.key("state"));
        number(object.key("connected_at_ms"), self.node.clock.at(connection.opened));
        match session.latency_ms() {
            Some(latency_ms) => number(object.key("ping_pong_latency_ms"), latency_ms.into()),
            None => object.key("ping_pong_latency_ms").extend_from_slice(b"-1"),
        }
        object.raw("labels", session.labels().map(|labels| &labels[..]));
        if let Some(address) = self.address_of(slot, connection) {
            object.text("address", &address.to_string());
        }
        number(object.key("queued_bytes"), connection.queue.as_ref().map_or(0, |queue| queue.bytes()) as u64);
        object.text("node", &self.node.id);
        object.close();
        out
    }

    /// Describes the state of a connection, which changes during its life.
    fn describe_state(&self, connection: &Connection, only: Option<LocalChannel>, out: &mut Vec<u8>) {
        let session = &connection.session;
        let mut state = ObjectWriter::open(out);
        let mut channels = ObjectWriter::open(state.key("channels"));
        let is_listed = |(channel, _): &(LocalChannel, bool)| only.is_none_or(|only| only == *channel);
        let listed_max = if only.is_some() { 1 } else { LISTED_CHANNELS_MAX };
        let mut subscribed = session.settled_subscriptions().filter(is_listed);
        for (channel, is_server_side) in subscribed.by_ref().take(listed_max) {
            let mut subscription = ObjectWriter::open(channels.text_key(self.hub.name(channel)));
            subscription.flag("server_side", is_server_side);
            subscription.close();
        }
        channels.close();
        if only.is_none() {
            state.number("channels_truncated", subscribed.count() as u64);
        }
        if let Some(issued_s) = session.token_issued_s() {
            let mut token = ObjectWriter::open(state.key("connection_token"));
            token.number("issued_at", issued_s.into());
            token.close();
        }
        state.raw("meta", session.meta().map(|meta| &meta[..]));
        state.close();
    }
}

/// The slots that are not below `from`, sorted.
fn ordered(mut slots: Vec<u32>, from: u32) -> Vec<u32> {
    slots.retain(|slot| *slot >= from);
    slots.sort_unstable();
    slots
}

/// Decides which connections of one slice match a query.
struct Matcher<'s> {
    shard: &'s Shard,
    query: &'s ConnectionQuery,
    /// The channel of the query, if it has a subscriber on this shard.
    channel: Option<LocalChannel>,
    /// The numbers of the programs that match; None = all match.
    programs: Option<Vec<u8>>,
}

impl<'s> Matcher<'s> {
    fn of(shard: &'s Shard, query: &'s ConnectionQuery) -> Self {
        let ConnectionFilter { program, version, .. } = &query.filter;
        let is_named = program.is_some() || version.is_some();
        let fits = |own: &str, wanted: &Option<Box<str>>| wanted.as_ref().is_none_or(|wanted| **wanted == *own);
        let numbers =
            || shard.metrics.programs.numbers(|name, version_here| fits(name, program) && fits(version_here, version));
        let channel = match &query.selection {
            ConnectionSelection::Channel(channel) => shard.hub.find(channel),
            _ => None,
        };
        Matcher { shard, query, channel, programs: is_named.then(numbers) }
    }

    /// Whether a connection matches the query, apart from its channel.
    fn fits(&self, slot: u32, connection: &Connection) -> bool {
        let session = &connection.session;
        let filter = &self.query.filter;
        connection.stage == ConnectionStage::Open
            && session.is_connected()
            && self.is_selected(connection)
            && self.programs.as_ref().is_none_or(|numbers| numbers.contains(&connection.program))
            && filter.transport.is_none_or(|transport| transport == connection.transport)
            && filter.networks.as_ref().is_none_or(|networks| {
                self.shard.address_of(slot, connection).is_some_and(|address| networks.contains(address))
            })
            && filter.labels.as_ref().is_none_or(|labels| {
                let own: Cow<'_, [u8]> = session.labels().map_or(b"{}"[..].into(), |own| own[..].into());
                serde_json::from_slice::<Tags>(&own).is_ok_and(|own| labels.fits(&own))
            })
    }

    fn is_selected(&self, connection: &Connection) -> bool {
        let session = &connection.session;
        match &self.query.selection {
            ConnectionSelection::All | ConnectionSelection::Channel(_) => true,
            ConnectionSelection::Users(users) => users.contains(session.user()),
            ConnectionSelection::Client(owner) => session.owner() == *owner,
        }
    }

    /// Whether a connection is subscribed to the channel of the query. True if the query has no channel.
    fn is_of_channel(&self, connection: &Connection) -> bool {
        let is_it = |(channel, _)| self.channel.is_some_and(|wanted| wanted == channel);
        !matches!(self.query.selection, ConnectionSelection::Channel(_))
            || connection.session.settled_subscriptions().any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_looks_at_so_many_subscriptions_and_at_one_connection_at_least() {
        // How many connections with this many subscriptions fit into a turn.
        let in_turn = |each: usize| {
            let mut cost = SliceCost::default();
            (0..SLICE_MAX).take_while(|_| cost.take(each)).count()
        };
        assert_eq!(in_turn(0), SLICE_MAX);
        assert_eq!(in_turn(128), SUBSCRIPTIONS_IN_TURN_MAX / 128);
        assert_eq!(in_turn(SUBSCRIPTIONS_IN_TURN_MAX / 2), 2);
        assert_eq!(in_turn(SUBSCRIPTIONS_IN_TURN_MAX), 1);
        assert_eq!(in_turn(usize::MAX), 1, "it must not be left out for ever");
        let mut cost = SliceCost::default();
        assert!(cost.take(1) && !cost.take(SUBSCRIPTIONS_IN_TURN_MAX), "a large one waits for another turn");
    }
}
