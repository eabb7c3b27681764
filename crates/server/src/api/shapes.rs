//! The shapes of results that the engine writes as JSON by itself. A test of the whole server compares real results
//! with them.
//!
//! A field that may be absent has the attribute `skip_serializing_if`.

#![expect(dead_code, reason = "no value of these types is made: the schema comes from them")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::Value;
use touchline_protocol::publication::Tags;

/// An empty object.
#[derive(JsonSchema)]
pub(crate) struct EmptyShape {}

/// A client as others see it in a channel.
#[derive(JsonSchema)]
#[schemars(rename = "ClientInfo")]
pub(crate) struct ClientInfoShape {
    /// The user of the client; empty = the anonymous user.
    user: String,
    /// The client id of the connection.
    client: String,
    /// The information about the connection for other clients, from the token or the backend; absent = none.
    #[serde(skip_serializing_if = "is_absent")]
    conn_info: Value,
    /// The information about the subscription for other clients, from the token or the backend; absent = none.
    #[serde(skip_serializing_if = "is_absent")]
    chan_info: Value,
}

/// One publication of a channel.
#[derive(JsonSchema)]
#[schemars(rename = "Publication")]
struct PublicationShape {
    /// The data that were published.
    data: Value,
    /// The client that published it; absent = a backend published it over the server API.
    #[serde(skip_serializing_if = "is_absent")]
    info: ClientInfoShape,
    /// The number of the publication in the channel's log; absent in a channel without history.
    #[serde(skip_serializing_if = "is_absent")]
    offset: u64,
    /// Labels of the publication; absent = it has none.
    #[serde(skip_serializing_if = "is_absent")]
    tags: Tags,
    /// The time when it expires, in Unix milliseconds; absent = it does not expire.
    #[serde(skip_serializing_if = "is_absent")]
    expires_at: u64,
    /// The time when it was published, in Unix milliseconds; absent in a channel without history.
    #[serde(skip_serializing_if = "is_absent")]
    time: u64,
    /// The epoch of the log, in its first publication only.
    #[serde(skip_serializing_if = "is_absent")]
    epoch: String,
}

/// The publications of a channel and the position of its log.
#[derive(JsonSchema)]
pub(crate) struct HistoryShape {
    /// The publications, in the order that the request asks for.
    publications: Vec<PublicationShape>,
    /// The epoch of the log, as text.
    epoch: String,
    /// The offset of the newest publication; 0 = there was none.
    offset: u64,
}

/// The clients in a channel.
#[derive(JsonSchema)]
pub(crate) struct PresenceShape {
    /// The clients, by client id.
    presence: BTreeMap<String, ClientInfoShape>,
    /// `true`: the channel has more clients, and this is a sample of them.
    #[serde(skip_serializing_if = "is_absent")]
    sample: bool,
    /// The exact number of clients; only with a sample.
    #[serde(skip_serializing_if = "is_absent")]
    num_clients: u64,
}

/// The number of clients and users in a channel.
#[derive(JsonSchema)]
pub(crate) struct PresenceStatsShape {
    /// The number of clients.
    num_clients: u64,
    /// The number of users; a user with several connections counts once.
    num_users: u64,
}

/// A name of the registry with its owner.
#[derive(JsonSchema)]
#[schemars(rename = "Name")]
pub(crate) struct NameShape {
    /// The name as text.
    name: String,
    /// The client id of the owner.
    client: String,
    /// The node that the owner is connected to.
    node: String,
    /// The metadata of the name; absent = it has none.
    #[serde(skip_serializing_if = "is_absent")]
    meta: Value,
    /// The version of the entry, for `update_meta`.
    version: String,
}

/// One page of names.
#[derive(JsonSchema)]
pub(crate) struct NamesShape {
    /// The names on this page.
    names: Vec<NameShape>,
    /// The cursor of the next page, for names in no order; absent = this is the last page.
    #[serde(skip_serializing_if = "is_absent")]
    cursor: u32,
    /// The last name of the page, for names in their order (`after`); absent = this is the last page.
    #[serde(skip_serializing_if = "is_absent")]
    last: String,
}

/// The number of entries in a scope.
#[derive(JsonSchema)]
pub(crate) struct CountShape {
    /// The number of names.
    names: u64,
    /// The number of groups.
    groups: u64,
    /// The number of memberships in groups.
    members: u64,
    /// The entries of each node.
    nodes: Vec<NodeCountShape>,
}

/// The number of entries of one node.
#[derive(JsonSchema)]
#[schemars(rename = "NodeCount")]
struct NodeCountShape {
    /// The id of the node.
    node: String,
    /// The number of names and memberships that clients of the node have.
    entries: u64,
}

/// One member of a group.
#[derive(JsonSchema)]
#[schemars(rename = "Member")]
pub(crate) struct MemberShape {
    /// The client id of the member.
    client: String,
    /// The node that the member is connected to.
    node: String,
    /// The metadata of the membership; absent = it has none.
    #[serde(skip_serializing_if = "is_absent")]
    meta: Value,
}

/// The members of a group.
#[derive(JsonSchema)]
pub(crate) struct MembersShape {
    /// The members, or a part of them.
    members: Vec<MemberShape>,
    /// The number of all members.
    count: u64,
    /// `true`: the group has more members, and this is a sample of them.
    #[serde(skip_serializing_if = "is_absent")]
    sample: bool,
    /// The cursor of the next page; absent = this is the last page, or no page was asked for.
    #[serde(skip_serializing_if = "is_absent")]
    cursor: u32,
}

/// One page of groups.
#[derive(JsonSchema)]
pub(crate) struct GroupsShape {
    /// The groups on this page.
    groups: Vec<GroupShape>,
    /// The cursor of the next page; absent = this is the last page.
    #[serde(skip_serializing_if = "is_absent")]
    cursor: u32,
}

/// A group with its size.
#[derive(JsonSchema)]
#[schemars(rename = "Group")]
struct GroupShape {
    /// The name of the group.
    group: String,
    /// The number of its members.
    count: u32,
}

/// The changes in a scope since a position.
#[derive(JsonSchema)]
pub(crate) struct ChangesShape {
    /// The offset of the last change.
    offset: u64,
    /// The epoch that the offset belongs to.
    epoch: String,
    /// The changes; absent = `list` is `true`.
    #[serde(skip_serializing_if = "is_absent")]
    changes: Vec<ChangeShape>,
    /// `true`: the registry does not keep all of these changes any more, so list the scope again.
    #[serde(skip_serializing_if = "is_absent")]
    list: bool,
    /// `true`: there are further changes, so ask again.
    #[serde(skip_serializing_if = "is_absent")]
    more: bool,
}

/// One change of a name, or of a member of a group.
#[derive(JsonSchema)]
#[schemars(rename = "Change")]
struct ChangeShape {
    /// The kind of the change.
    #[schemars(extend("enum" = ["registered", "updated", "unregistered", "joined", "member_updated", "left"]))]
    change: String,
    /// The name that changed; absent = a membership changed.
    #[serde(skip_serializing_if = "is_absent")]
    name: String,
    /// The group whose membership changed; absent = a name changed.
    #[serde(skip_serializing_if = "is_absent")]
    group: String,
    /// The client id of the owner or member.
    client: String,
    /// The node that the client is, or was, connected to.
    node: String,
    /// The metadata of the entry; absent = it has none.
    #[serde(skip_serializing_if = "is_absent")]
    meta: Value,
    /// The reason for the change.
    #[schemars(extend("enum" = ["normal", "closed", "conflict", "node_up", "node_down", "taken_over"]))]
    reason: String,
}

/// The result of a message.
#[derive(JsonSchema)]
#[serde(untagged)]
pub(crate) enum SentShape {
    /// The message was sent.
    Sent {
        /// The number of clients that it was sent to.
        sent: u64,
    },
    /// The message is stored until the owner of the name acknowledges it.
    Stored {
        /// The id of the message.
        id: String,
        /// The time until which it is stored, in Unix milliseconds.
        expires_at: u64,
    },
}

/// The answer of a call.
#[derive(JsonSchema)]
#[serde(untagged)]
pub(crate) enum CallShape {
    /// The client answered.
    Answer {
        /// The data of the answer.
        data: Value,
    },
    /// The client answered with an error of its own.
    Failure {
        /// The error, as the client sent it.
        error: Value,
    },
    /// The call was to a group.
    Group {
        /// The answers of the members that answered.
        replies: Vec<MemberReplyShape>,
        /// The members that did not answer.
        silent: Vec<SilentMemberShape>,
    },
}

/// The answer of one member: `data`, or its own `error`.
#[derive(JsonSchema)]
#[schemars(rename = "CallAnswer")]
pub(crate) struct MemberReplyShape {
    /// The client id of the member.
    client: String,
    /// The data of the answer; absent = the member answered with an error.
    #[serde(skip_serializing_if = "is_absent")]
    data: Value,
    /// The client's own error; absent = the member answered with data.
    #[serde(skip_serializing_if = "is_absent")]
    error: Value,
}

/// A member that did not answer.
#[derive(JsonSchema)]
#[schemars(rename = "SilentMember")]
pub(crate) struct SilentMemberShape {
    /// The client id of the member.
    client: String,
    /// Why the member did not answer.
    error: MemberErrorShape,
}

/// The reason why a member did not answer.
#[derive(JsonSchema)]
#[schemars(rename = "MemberError")]
struct MemberErrorShape {
    /// The number of the error.
    code: u32,
    /// The text of the error.
    message: String,
    /// `true`: a later call may succeed.
    #[serde(skip_serializing_if = "is_absent")]
    temporary: bool,
}

/// A comparison of one tag or label, or a combination of comparisons.
#[derive(JsonSchema)]
#[schemars(rename = "FilterNode")]
pub(crate) struct FilterNodeShape {
    /// The combination: `and`, `or` or `not`; empty = a comparison.
    #[serde(skip_serializing_if = "is_absent")]
    op: String,
    /// The tag or label to compare.
    #[serde(skip_serializing_if = "is_absent")]
    key: String,
    /// The comparison: `eq neq in nin ex nex sw ew ct lt lte gt gte`.
    #[serde(skip_serializing_if = "is_absent")]
    cmp: String,
    /// The value to compare with.
    #[serde(skip_serializing_if = "is_absent")]
    val: String,
    /// The values to compare with, for `in` and `nin`.
    #[serde(skip_serializing_if = "is_absent")]
    vals: Vec<String>,
    /// The filters that `and`, `or` and `not` combine.
    #[serde(skip_serializing_if = "is_absent")]
    nodes: Vec<FilterNodeShape>,
}

/// One connection of a client.
#[derive(JsonSchema)]
#[schemars(rename = "ConnectionInfo")]
pub(crate) struct ConnectionInfoShape {
    /// The name of the program; absent = the client has not sent it.
    #[serde(skip_serializing_if = "is_absent")]
    app_name: String,
    /// The version of the program; absent = the client has not sent it.
    #[serde(skip_serializing_if = "is_absent")]
    app_version: String,
    /// The transport of the connection.
    transport: String,
    /// The encoding: `json` or `protobuf`.
    protocol: String,
    /// The user of the connection; empty = the anonymous user.
    user: String,
    /// The properties that change while the connection lives.
    state: ConnectionStateShape,
    /// The time when it was opened, in Unix milliseconds.
    connected_at_ms: u64,
    /// How long the client took to answer the last ping, in milliseconds; -1 = no answer yet, or a ping is under way.
    ping_pong_latency_ms: i64,
    /// The labels of the connection; absent = it has none.
    #[serde(skip_serializing_if = "is_absent")]
    labels: BTreeMap<String, String>,
    /// The address of the client; absent = unknown.
    #[serde(skip_serializing_if = "is_absent")]
    address: String,
    /// The bytes that wait because the client's socket has not accepted them.
    queued_bytes: u64,
    /// The id of the node that the client is connected to.
    node: String,
    /// Its names in the registry, 64 at most together with its groups. Absent = it has none, or the request has
    /// `channel`.
    #[serde(skip_serializing_if = "is_absent")]
    names: Vec<HeldNameShape>,
    /// Its groups in the registry; absent = it has none, or the request has `channel`.
    #[serde(skip_serializing_if = "is_absent")]
    groups: Vec<HeldGroupShape>,
    /// The number of names and memberships that are not listed; absent = all are listed.
    #[serde(skip_serializing_if = "is_absent")]
    entries_truncated: u64,
    /// `true`: the registry of its node did not answer in time, so names and groups are unknown.
    #[serde(skip_serializing_if = "is_absent")]
    entries_missing: bool,
}

/// A name that a connection has in the registry.
#[derive(JsonSchema)]
#[schemars(rename = "HeldName")]
struct HeldNameShape {
    /// The scope of the name.
    scope: String,
    /// The name as text.
    name: String,
}

/// A group that a connection is in.
#[derive(JsonSchema)]
#[schemars(rename = "HeldGroup")]
struct HeldGroupShape {
    /// The scope of the group.
    scope: String,
    /// The name of the group.
    group: String,
}

/// The properties of a connection that change while it lives.
#[derive(JsonSchema)]
#[schemars(rename = "ConnectionState")]
struct ConnectionStateShape {
    /// Its channels. If the request names a channel, only that one.
    channels: BTreeMap<String, ConnectionChannelShape>,
    /// The number of channels that are not listed; absent = all are listed.
    #[serde(skip_serializing_if = "is_absent")]
    channels_truncated: u64,
    /// The token that the client sent last; absent = it sent none.
    #[serde(skip_serializing_if = "is_absent")]
    connection_token: ConnectionTokenShape,
    /// Metadata from the token or the backend, for hooks; absent = there are none.
    #[serde(skip_serializing_if = "is_absent")]
    meta: BTreeMap<String, Value>,
}

/// A channel of a connection.
#[derive(JsonSchema)]
#[schemars(rename = "ConnectionChannel")]
struct ConnectionChannelShape {
    /// `true`: the server subscribed the connection.
    #[serde(skip_serializing_if = "is_absent")]
    server_side: bool,
}

/// The connection token that the client sent last.
#[derive(JsonSchema)]
#[schemars(rename = "ConnectionToken")]
struct ConnectionTokenShape {
    /// The time when it was issued, in Unix seconds.
    issued_at: u64,
}
