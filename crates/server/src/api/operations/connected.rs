//! The operation `connections`: finds connections by user, client, session or channel, or scans every node.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use touchline_config::Networks;
use touchline_engine::directory::{client_from_text, client_text};
use touchline_protocol::Error;
use touchline_protocol::data::object;
use touchline_protocol::encode::{ObjectWriter, list, text};
use touchline_protocol::filter::{Filter, FilterNode};

use crate::api::connection_cursor::{CURSOR_SIZE_MAX, ConnectionCursor, ConnectionPlace};
use crate::api::connection_page::{ConnectionPage, page};
use crate::api::description::OperationScope;
use crate::api::json::WriteJson;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::api::params::{nullable, nullable_fields};
use crate::api::shapes::{ConnectionInfoShape, FilterNodeShape};
use crate::auth::NamedChannels;
use crate::net::transport::Transport;
use crate::runtime::connection_query::{ConnectionFilter, ConnectionQuery, ConnectionRow, ConnectionSelection};

/// The most users that one request may name.
pub(super) const USERS_MAX: usize = 1_000;
/// The most connections on one page.
const LIMIT_MAX: usize = 1_000;
const LIMIT_DEFAULT: usize = 100;

/// Returns the names of all transports, and the empty name.
fn transport_names() -> Vec<&'static str> {
    std::iter::once("").chain(Transport::ALL.map(Transport::as_str)).collect()
}

/// A request for connections. At most one of `user`, `users`, `client`, `session` and `channel` selects connections.
/// The other fields narrow the selection.
#[derive(Deserialize, Serialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct ConnectionsRequest {
    /// Select the connections of this user; empty = of the anonymous user.
    user: Option<String>,
    /// Select the connections of these users.
    #[schemars(length(min = 1, max = USERS_MAX))]
    users: Option<Vec<String>>,
    /// Select the connection with this client id.
    #[schemars(length(min = 1))]
    client: Option<String>,
    /// Select the connection with this session, as the connect reply gave it to the client.
    #[schemars(length(min = 1))]
    session: Option<String>,
    /// Select the connections that are subscribed to this channel.
    #[schemars(length(min = 1))]
    channel: Option<String>,
    /// Only connections of programs with this name (`app_name`); empty = any.
    #[serde(deserialize_with = "nullable")]
    program: String,
    /// Only connections of programs with this version (`app_version`); empty = any.
    #[serde(deserialize_with = "nullable")]
    version: String,
    /// Only connections over this transport; empty = any.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("enum" = transport_names()))]
    transport: String,
    /// Only connections from this address or network; empty = any.
    #[serde(deserialize_with = "nullable")]
    address: String,
    /// Only connections whose labels match this filter; it is written like a filter of tags.
    #[serde(deserialize_with = "object")]
    #[schemars(with = "Option<FilterNodeShape>")]
    label_filter: Option<FilterNode>,
    /// The greatest number of connections on the page; absent = 100.
    #[serde(skip_serializing)]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit: Option<usize>,
    /// The `cursor` of the previous page; empty = the first page.
    #[serde(skip_serializing, deserialize_with = "nullable")]
    #[schemars(length(max = CURSOR_SIZE_MAX))]
    cursor: String,
}

impl ConnectionsRequest {
    /// # Errors
    /// 107 when several fields select, or a field holds a value that selects nothing.
    fn selection(&self, node: RequestNode<'_>) -> Result<ConnectionSelection, OperationError> {
        let given = [
            ("user", self.user.is_some()),
            ("users", self.users.is_some()),
            ("client", self.client.is_some()),
            ("session", self.session.is_some()),
            ("channel", self.channel.is_some()),
        ];
        let mut given = given.into_iter().filter(|(_, is_given)| *is_given).map(|(field, _)| field);
        let selecting = given.next();
        if let Some(another) = given.next() {
            return Err(OperationError::bad(another));
        }
        // An empty text selects no connection. Treated as absent, it would select all of them.
        let texts = [("client", &self.client), ("session", &self.session), ("channel", &self.channel)];
        if let Some((field, _)) = texts.into_iter().find(|(_, text)| text.as_deref() == Some("")) {
            return Err(OperationError::bad(field));
        }
        Ok(match selecting {
            Some("user") => ConnectionSelection::Users(self.user.iter().map(|user| user.as_str().into()).collect()),
            Some("users") => {
                let users = self.users.as_deref().unwrap_or_default();
                if users.is_empty() || users.len() > USERS_MAX {
                    return Err(OperationError::bad("users"));
                }
                ConnectionSelection::Users(users.iter().map(|user| user.as_str().into()).collect())
            }
            Some("client") => ConnectionSelection::Client(
                client_from_text(self.client.as_deref().unwrap_or_default()).ok_or(OperationError::bad("client"))?,
            ),
            // Only the node that signed a session can read its client id. On the other nodes the session selects
            // nothing.
            Some("session") => match node.signer.open(self.session.as_deref().unwrap_or_default()).map(client_text) {
                Some(client) => ConnectionSelection::Client(client_from_text(&client).ok_or(Error::INTERNAL)?),
                None => ConnectionSelection::Users([].into()),
            },
            Some(_) => ConnectionSelection::Channel(self.channel.as_deref().unwrap_or_default().into()),
            None => ConnectionSelection::All,
        })
    }

    /// # Errors
    /// 107 for an unknown transport, and for an address or filter that is not valid.
    fn filter(&self, node: RequestNode<'_>) -> Result<ConnectionFilter, OperationError> {
        let some = |text: &str| Some(text).filter(|text| !text.is_empty()).map(Box::from);
        let transport = |text: &str| {
            let known = Transport::ALL.into_iter().find(|transport| transport.as_str() == text);
            known.ok_or(OperationError::bad("transport"))
        };
        let networks = |text: &str| Networks::parse(&[text.to_owned()]).map_err(|_| OperationError::bad("address"));
        let limits = node.generation().session.namespaces.filter_limits();
        let labels = |wanted: &FilterNode| Filter::check(wanted, limits).ok_or(OperationError::bad("label_filter"));
        Ok(ConnectionFilter {
            program: some(&self.program),
            version: some(&self.version),
            transport: some(&self.transport).as_deref().map(transport).transpose()?,
            networks: some(&self.address).as_deref().map(networks).transpose()?,
            labels: self.label_filter.as_ref().map(labels).transpose()?,
        })
    }
}

/// One page of connections, from all nodes.
pub(crate) struct ConnectionsReply {
    /// The connections by node; those of this node come first.
    rows: Vec<ConnectionRow>,
    limit: usize,
    /// The cursor of the request; None = the request has none.
    earlier: Option<ConnectionCursor>,
    cursor: ConnectionCursor,
    missing: Vec<Box<str>>,
    /// The nodes of `missing` that are busy with another scan.
    busy: Vec<Box<str>>,
    /// Nodes whose connections begin with this page although it is not the first page.
    new: Vec<Box<str>>,
    is_cut_off: bool,
}

/// One page of connections.
#[derive(JsonSchema)]
#[schemars(rename = "ConnectionsReply")]
#[expect(dead_code, reason = "no value of this type is made: the schema comes from it")]
struct ConnectionsShape {
    /// The connections on this page, by client id.
    connections: BTreeMap<String, ConnectionInfoShape>,
    /// The cursor of the next page; absent = this is the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    /// The ids of nodes that did not answer in time, cannot answer now, or have not been seen since an earlier page.
    /// The cursor keeps the position of these nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<String>,
    /// The nodes of `missing_nodes` that are busy with another scan: send the request again soon.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    busy_nodes: Vec<String>,
    /// The ids of nodes that joined after the previous page. The list has their connections from this page on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    new_nodes: Vec<String>,
    /// `true`: connections may be left out. Nodes are missing, or the asked node is cut off from the others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_partial: bool,
}

impl JsonSchema for ConnectionsReply {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        ConnectionsShape::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        ConnectionsShape::json_schema(generator)
    }
}

impl WriteJson for ConnectionsReply {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::open(out);
        let mut connections = ObjectWriter::open(object.key("connections"));
        for row in &self.rows {
            connections.text_key(&client_text(row.client)).extend_from_slice(&row.json);
        }
        connections.close();
        object.text("cursor", &self.cursor.text().unwrap_or_default());
        let nodes = [("missing_nodes", &self.missing), ("busy_nodes", &self.busy), ("new_nodes", &self.new)];
        for (name, nodes) in nodes {
            if !nodes.is_empty() {
                list(object.key(name), nodes, |out, node| text(out, node));
            }
        }
        if self.is_cut_off || !self.missing.is_empty() {
            object.raw("is_partial", Some(b"true"));
        }
        object.close();
    }
}

/// The part of the page that another node returned.
#[derive(Deserialize)]
struct PartOfNode<'a> {
    #[serde(borrow)]
    connections: BTreeMap<&'a str, &'a RawValue>,
    #[serde(default)]
    cursor: String,
}

impl ConnectionsReply {
    /// Returns a page without connections. `earlier`: the cursor of the request; `list`: the same cursor without
    /// places.
    fn new(limit: usize, earlier: Option<ConnectionCursor>, list: ConnectionCursor) -> Self {
        let (rows, missing, busy, new) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        ConnectionsReply { rows, limit, earlier, cursor: list, missing, busy, new, is_cut_off: false }
    }

    /// Adds the connections of a node, as far as the limit allows. `next`: where the next page of that node begins.
    fn add(&mut self, node: &str, rows: Vec<ConnectionRow>, next: Option<ConnectionPlace>) {
        let before = self.earlier.as_ref().map(|earlier| earlier.place(node));
        if before == Some(None) {
            self.new.push(node.into());
        }
        let room = self.limit.saturating_sub(self.rows.len());
        let place = match (rows.len() > room, room.checked_sub(1).and_then(|last| rows.get(last))) {
            (false, _) => next,
            (true, Some(last)) => Some(ConnectionPlace::behind(last.client)),
            (true, None) => before.flatten().unwrap_or(Some(ConnectionPlace(0, 0))),
        };
        self.cursor.set(node, place);
        self.rows.extend(rows.into_iter().take(room));
    }

    /// Notes a node that did not return its part. `comes_back`: the node may return it later, so the cursor keeps its
    /// place.
    fn miss(&mut self, node: &str, comes_back: bool) {
        let place = self.earlier.as_ref().and_then(|earlier| earlier.place(node));
        // A node that returned all of its connections on earlier pages is not missing.
        if place == Some(None) {
            return self.cursor.set(node, None);
        }
        if comes_back {
            self.cursor.set(node, Some(place.flatten().unwrap_or(ConnectionPlace(0, 0))));
        }
        self.missing.push(node.into());
    }

    /// Keeps the places of nodes that are in the cursor, did not return a part, and are not in `missing`: they are not
    /// visible at present. Their silence does not mean that they have no more connections, because they may come back.
    fn keep_unseen(&mut self) {
        let Some(earlier) = self.earlier.take() else { return };
        for (node, place) in earlier.places() {
            if self.cursor.place(node).is_some() || self.missing.iter().any(|missing| **missing == *node) {
                continue;
            }
            self.cursor.set(node, place);
            if place.is_some() {
                self.missing.push(node.into());
            }
        }
    }
}

/// The operation `connections`.
pub(crate) struct ConnectionsOperation;

impl Operation for ConnectionsOperation {
    const NAME: &'static str = "connections";
    const SUMMARY: &'static str =
        "Lists the connections of users, of a client, of a session, of a channel, or all connections, page by page";
    const RESULT: &'static str = "`connections`: client id → `{user, transport, protocol, app_name, app_version, \
                                  state, connected_at_ms, ping_pong_latency_ms, labels, address, queued_bytes, node, \
                                  names, groups, entries_truncated, entries_missing}`; \
                                  `cursor` (absent: last page), `missing_nodes`, `busy_nodes`, `new_nodes`, \
                                  `is_partial`";
    const EXAMPLE: &'static str = r#"{"user": "42"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"connections": {"5b23579a-9066-444b-bfc3-000100000000": {
        "app_name": "js", "transport": "websocket", "protocol": "json", "user": "42",
        "state": {"channels": {"news": {}}, "connection_token": {"issued_at": 1795359600}},
        "connected_at_ms": 1795359601300, "ping_pong_latency_ms": 23, "address": "192.0.2.7", "queued_bytes": 0,
        "node": "a", "names": [{"scope": "devices", "name": "bike-7"}],
        "groups": [{"scope": "devices", "group": "bikes"}]}}}"#;
    const ERRORS: &'static [Error] = &[Error::TOO_MANY_REQUESTS];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;

    // Boxed because it is large: otherwise the requests of the other operations would be moved with as many bytes.
    type Request<'a> = Box<ConnectionsRequest>;
    type Reply = ConnectionsReply;

    fn channels<'r>(request: &'r Box<ConnectionsRequest>) -> NamedChannels<'r> {
        // Without a channel the request is about all channels. A key that is limited to some channels may not send it.
        NamedChannels::One(request.channel.as_deref().unwrap_or_default())
    }

    async fn run(node: RequestNode<'_>, request: Box<ConnectionsRequest>) -> Result<ConnectionsReply, OperationError> {
        let limit = request.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(OperationError::bad("limit"));
        }
        let query = ConnectionQuery { selection: request.selection(node)?, filter: request.filter(node)? };
        let list = ConnectionCursor::of(&serde_json::to_vec(&request).unwrap_or_default());
        let read = || list.read(&request.cursor).ok_or(OperationError::bad("cursor"));
        let earlier = (!request.cursor.is_empty()).then(read).transpose()?;
        let place = earlier.as_ref().and_then(|earlier| earlier.place(&node.id));
        // In a scan each node returns a share of the page. Otherwise most of the rows would be thrown away.
        let nodes = node.node_count().saturating_sub(earlier.as_ref().map_or(0, ConnectionCursor::finished));
        let rows_max = match query.selection {
            ConnectionSelection::All => limit.div_ceil(nodes.max(1)),
            _ => limit,
        };
        let ConnectionPage { rows, next } = match place.unwrap_or(Some(ConnectionPlace(0, 0))) {
            Some(place) => page(&node, &Arc::new(query), place, rows_max).await?,
            None => ConnectionPage { rows: Vec::new(), next: None },
        };
        let mut reply = ConnectionsReply::new(limit, earlier, list);
        reply.add(&node.id, rows, next);
        if node.cluster.is_none() {
            // Nothing is merged: the cursor's places on other nodes are from an earlier start of this node.
            reply.keep_unseen();
        }
        Ok(reply)
    }

    fn merge(reply: &mut ConnectionsReply, others: &OtherNodes<'_>) {
        let list = reply.cursor.emptied();
        for (node, json) in &others.results {
            let (Some(node), Ok(part)) = (node, serde_json::from_str::<PartOfNode<'_>>(json.get())) else { continue };
            let next = match part.cursor.as_str() {
                "" => Some(None),
                cursor => list.read(cursor).and_then(|cursor| cursor.place(node)),
            };
            // An unreadable reply does not mean that the node has no more connections.
            let Some(own) = next else {
                reply.miss(node, true);
                continue;
            };
            let row = |(client, json): (&str, &RawValue)| {
                Some(ConnectionRow { client: client_from_text(client)?, json: json.get().as_bytes().to_vec() })
            };
            let mut rows: Vec<ConnectionRow> = part.connections.into_iter().filter_map(row).collect();
            rows.sort_unstable_by_key(|row| ConnectionPlace::of(row.client));
            reply.add(node, rows, own);
        }
        for node in &others.missing {
            reply.miss(node, others.may_come_back);
        }
        reply.keep_unseen();
        // A node that returned all of its connections earlier is not missing, whether it is busy or not.
        reply.busy = others.busy.iter().filter(|node| reply.missing.contains(node)).cloned().collect();
        reply.is_cut_off = others.is_cut_off;
    }
}

#[cfg(test)]
mod tests {
    use touchline_registry::OwnerId;

    use super::*;
    use crate::runtime::registry_mailbox::client_id_suffix;

    fn row(slot: u32) -> ConnectionRow {
        let mut id = [7; 16];
        id[10..].copy_from_slice(&client_id_suffix(1, slot));
        ConnectionRow { client: OwnerId(id), json: b"{}".to_vec() }
    }

    fn reply(earlier: Option<ConnectionCursor>) -> ConnectionsReply {
        ConnectionsReply::new(3, earlier, ConnectionCursor::of(b"{}"))
    }

    #[test]
    fn a_page_has_its_limit_and_what_did_not_fit_keeps_its_place() {
        let mut first = reply(None);
        first.add("a", vec![row(4), row(9)], None);
        first.add("b", vec![row(5), row(6)], None);
        first.add("c", vec![row(7)], None);
        first.miss("d", true);
        first.miss("e", false);
        assert_eq!((first.rows.len(), &first.new), (3, &Vec::new()));
        assert_eq!(first.missing, ["d", "e"].map(Box::from));
        let places = ["a", "b", "c", "d", "e"].map(|node| first.cursor.place(node));
        let start = Some(Some(ConnectionPlace(0, 0)));
        assert_eq!(places, [Some(None), Some(Some(ConnectionPlace(1, 6))), start, start, None]);
        // On the next page, a node that is complete is not missing, and a node that has joined is named.
        let mut second = reply(Some(first.cursor));
        second.add("b", vec![row(6)], Some(ConnectionPlace(1, 512)));
        second.add("new", vec![row(1)], None);
        second.miss("a", true);
        second.miss("d", true);
        assert_eq!((second.missing.as_slice(), second.new.as_slice()), (&["d".into()][..], &["new".into()][..]));
        let places = ["a", "b", "d", "new"].map(|node| second.cursor.place(node));
        assert_eq!(places, [Some(None), Some(Some(ConnectionPlace(1, 512))), start, Some(None)]);
    }

    #[test]
    fn a_node_out_of_sight_keeps_its_place_and_is_named() {
        let list = ConnectionCursor::of(b"{}");
        let mut earlier = list.clone();
        let at = Some(ConnectionPlace(1, 7));
        for (node, place) in [("here", at), ("done", None), ("gone", at), ("silent", at), ("told", at)] {
            earlier.set(node, place);
        }
        let told = format!(r#"{{"connections":{{"{}":{{}}}}}}"#, client_text(row(9).client));
        let told: &RawValue = serde_json::from_str(&told).expect("JSON");
        let merged = |earlier: &ConnectionCursor| {
            let mut page = reply(Some(earlier.clone()));
            page.add("here", vec![row(8)], None);
            let results = vec![(Some("told"), told)];
            let (missing, busy) = (vec!["silent".into()], vec!["silent".into(), "done".into()]);
            let others = OtherNodes { results, missing, busy, may_come_back: true, is_cut_off: false };
            ConnectionsOperation::merge(&mut page, &others);
            page
        };
        let page = merged(&earlier);
        assert_eq!((page.missing.as_slice(), page.rows.len()), (&["silent", "gone"].map(Box::from)[..], 2));
        assert_eq!((page.new.len(), page.busy.as_slice()), (0, &["silent".into()][..]));
        let places = ["here", "done", "gone", "silent", "told"].map(|node| page.cursor.place(node));
        assert_eq!(places, [Some(None), Some(None), Some(at), Some(at), Some(None)]);
        let cursor = page.cursor.text().expect("two nodes have more");
        // Only missing nodes are left: the cursor does not change.
        let again = merged(&list.read(&cursor).expect("a cursor"));
        assert_eq!((again.cursor.text(), again.missing), (Some(cursor), page.missing));
    }
}
