//! The cursor of a list of connections: how far each node of the cluster has got.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use touchline_registry::OwnerId;

use crate::runtime::registry_mailbox::route;

/// The longest cursor, in bytes: room for some hundreds of nodes.
pub(super) const CURSOR_SIZE_MAX: usize = 64 * 1_024;

/// The next connection on a node. All connections before it have been visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ConnectionPlace(pub(super) u16, pub(super) u32);

impl ConnectionPlace {
    /// Returns the place of a connection, which its id contains.
    pub(super) fn of(client: OwnerId) -> Self {
        let (shard, slot) = route(client, usize::from(u16::MAX) + 1).unwrap_or_default();
        ConnectionPlace(shard, slot)
    }

    /// Returns the place after a connection.
    pub(super) fn behind(client: OwnerId) -> Self {
        let ConnectionPlace(shard, slot) = Self::of(client);
        match slot.checked_add(1) {
            Some(slot) => ConnectionPlace(shard, slot),
            None => ConnectionPlace(shard.saturating_add(1), 0),
        }
    }
}

/// How far each node has got, by the id of the node. Each start of a node has another id, because places of an earlier
/// start are of no use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ConnectionCursor {
    /// The list that the cursor belongs to: a hash of the request.
    list: u64,
    /// The next place on each node; None = the node has returned all of its connections.
    nodes: BTreeMap<Box<str>, Option<ConnectionPlace>>,
}

impl ConnectionCursor {
    /// Returns the cursor of a list from which no node has returned anything yet. `asked`: the request.
    pub(super) fn of(asked: &[u8]) -> Self {
        let hash = digest(&SHA256, asked);
        let list = hash.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        ConnectionCursor { list, nodes: BTreeMap::new() }
    }

    /// Returns a cursor of the same list without any place.
    pub(super) fn emptied(&self) -> Self {
        ConnectionCursor { list: self.list, nodes: BTreeMap::new() }
    }

    /// Reads a cursor that this list has issued; None = the text is not such a cursor.
    pub(super) fn read(&self, text: &str) -> Option<Self> {
        let json = Some(text).filter(|text| text.len() <= CURSOR_SIZE_MAX)?;
        let cursor: Self = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(json).ok()?).ok()?;
        (cursor.list == self.list && !cursor.nodes.is_empty()).then_some(cursor)
    }

    /// Returns the text that [`ConnectionCursor::read`] reads; None = every node has returned all of its connections.
    pub(super) fn text(&self) -> Option<String> {
        let is_open = self.nodes.values().any(Option::is_some);
        is_open.then(|| URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default()))
    }

    /// Returns the place of a node; the inner None = the node has returned all. The outer None = the node is unknown.
    pub(super) fn place(&self, node: &str) -> Option<Option<ConnectionPlace>> {
        self.nodes.get(node).copied()
    }

    /// Returns every known node with its place; None = the node has returned all.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, Option<ConnectionPlace>)> {
        self.nodes.iter().map(|(node, place)| (&**node, *place))
    }

    /// Sets the place of a node; None = the node has returned all.
    pub(super) fn set(&mut self, node: &str, place: Option<ConnectionPlace>) {
        self.nodes.insert(node.into(), place);
    }

    /// Returns the number of nodes that have returned all of their connections.
    pub(super) fn finished(&self) -> usize {
        self.nodes.values().filter(|place| place.is_none()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::registry_mailbox::client_id_suffix;

    fn client(shard: u16, slot: u32) -> OwnerId {
        let mut id = [7; 16];
        id[10..].copy_from_slice(&client_id_suffix(shard, slot));
        OwnerId(id)
    }

    #[test]
    fn a_cursor_is_read_by_its_own_list_only() {
        let list = ConnectionCursor::of(b"{}");
        let mut cursor = list.clone();
        assert_eq!(cursor.text(), None, "nothing is left");
        cursor.set("a", Some(ConnectionPlace::of(client(3, 70_000))));
        cursor.set("b", None);
        let text = cursor.text().expect("node a has more");
        assert_eq!(list.read(&text), Some(cursor.clone()));
        assert_eq!(ConnectionCursor::of(b"other").read(&text), None);
        assert_eq!((cursor.place("a"), cursor.place("b")), (Some(Some(ConnectionPlace(3, 70_000))), Some(None)));
        assert_eq!((cursor.place("c"), cursor.finished()), (None, 1));
        cursor.set("a", None);
        assert_eq!(cursor.text(), None);
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        let list = ConnectionCursor::of(b"{}");
        let encoded = |json: String| URL_SAFE_NO_PAD.encode(json);
        let own = |nodes: &str| encoded(format!(r#"{{"list":{},"nodes":{nodes}}}"#, list.list));
        assert!(list.read(&own(r#"{"a":[0,5]}"#)).is_some());
        let long = own(&format!(r#"{{"a":[0,5]{}}}"#, " ".repeat(CURSOR_SIZE_MAX)));
        for bad in ["", "x", "e30", &own("{}"), &own(r#"{"a":[0]}"#), &own(r#"{"a":[65536,0]}"#), &own("[]"), &long] {
            assert_eq!(list.read(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_place_behind_the_last_slot_is_on_the_next_shard() {
        assert_eq!(ConnectionPlace::behind(client(2, 9)), ConnectionPlace(2, 10));
        assert_eq!(ConnectionPlace::behind(client(2, u32::MAX)), ConnectionPlace(3, 0));
    }
}
