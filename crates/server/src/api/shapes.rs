//! The shapes of results that the engine writes as JSON by itself. A test of the whole server compares real results
//! with them.
//!
//! A field that may be absent says when it is not written.

#![expect(dead_code, reason = "no value of these types is made: the schema comes from them")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::Value;
use touchline_protocol::publication::Tags;

/// Nothing.
#[derive(JsonSchema)]
pub(crate) struct EmptyShape {}

/// A client as others see it in a channel.
#[derive(JsonSchema)]
#[schemars(rename = "ClientInfo")]
pub(crate) struct ClientInfoShape {
    /// The user; empty = the anonymous user.
    user: String,
    /// The client id.
    client: String,
    /// What the connection's token says of it.
    #[serde(skip_serializing_if = "is_absent")]
    conn_info: Value,
    /// What the subscription's token says of it.
    #[serde(skip_serializing_if = "is_absent")]
    chan_info: Value,
}

/// A publication.
#[derive(JsonSchema)]
#[schemars(rename = "Publication")]
struct PublicationShape {
    /// What was published.
    data: Value,
    /// The client that published it; absent = the server API.
    #[serde(skip_serializing_if = "is_absent")]
    info: ClientInfoShape,
    /// The number in the channel's log.
    #[serde(skip_serializing_if = "is_absent")]
    offset: u64,
    /// Labels.
    #[serde(skip_serializing_if = "is_absent")]
    tags: Tags,
    /// When it expires, Unix milliseconds; absent = it does not.
    #[serde(skip_serializing_if = "is_absent")]
    expires_at: u64,
    /// When it was published, Unix milliseconds.
    #[serde(skip_serializing_if = "is_absent")]
    time: u64,
    /// The epoch of the log, in its first publication.
    #[serde(skip_serializing_if = "is_absent")]
    epoch: String,
}

/// Publications of a channel and its position.
#[derive(JsonSchema)]
pub(crate) struct HistoryShape {
    /// The publications, in the order that was asked for.
    publications: Vec<PublicationShape>,
    /// The epoch of the log.
    epoch: String,
    /// The offset of the newest publication; 0 = there was none.
    offset: u64,
}

/// The clients in a channel.
#[derive(JsonSchema)]
pub(crate) struct PresenceShape {
    /// The clients, by client id.
    presence: BTreeMap<String, ClientInfoShape>,
    /// `true`: these are some of more clients.
    #[serde(skip_serializing_if = "is_absent")]
    sample: bool,
    /// How many there are, beside a sample.
    #[serde(skip_serializing_if = "is_absent")]
    num_clients: u64,
}

/// How many clients and users are in a channel.
#[derive(JsonSchema)]
pub(crate) struct PresenceStatsShape {
    /// Clients.
    num_clients: u64,
    /// Different users.
    num_users: u64,
}

/// A name with its owner.
#[derive(JsonSchema)]
#[schemars(rename = "Name")]
pub(crate) struct NameShape {
    /// The name.
    name: String,
    /// The client id of the owner.
    client: String,
    /// The node that the owner is connected to.
    node: String,
    /// Metadata.
    #[serde(skip_serializing_if = "is_absent")]
    meta: Value,
    /// The version of the entry, for `update_meta`.
    version: String,
}

/// A page of names.
#[derive(JsonSchema)]
pub(crate) struct NamesShape {
    /// The names.
    names: Vec<NameShape>,
    /// Of names in no order, where the next page begins; absent = that was all.
    #[serde(skip_serializing_if = "is_absent")]
    cursor: u32,
    /// Of names in their order (`after`), the last one if there are more; absent = that was all.
    #[serde(skip_serializing_if = "is_absent")]
    last: String,
}

/// How many entries a scope has.
#[derive(JsonSchema)]
pub(crate) struct CountShape {
    /// Names.
    names: u64,
    /// Groups.
    groups: u64,
    /// Memberships.
    members: u64,
    /// How the entries spread over the nodes.
    nodes: Vec<NodeCountShape>,
}

/// The entries of one node.
#[derive(JsonSchema)]
#[schemars(rename = "NodeCount")]
struct NodeCountShape {
    /// The node.
    node: String,
    /// Names and memberships of its clients.
    entries: u64,
}

/// A member of a group.
#[derive(JsonSchema)]
#[schemars(rename = "Member")]
pub(crate) struct MemberShape {
    /// The client id.
    client: String,
    /// The node that the client is connected to.
    node: String,
    /// Metadata.
    #[serde(skip_serializing_if = "is_absent")]
    meta: Value,
}

/// Members of a group.
#[derive(JsonSchema)]
pub(crate) struct MembersShape {
    /// The members.
    members: Vec<MemberShape>,
    /// How many there are.
    count: u64,
    /// `true`: the members are some of more.
    #[serde(skip_serializing_if = "is_absent")]
    sample: bool,
    /// Where the next page begins; absent = that was all, or no page was asked for.
    #[serde(skip_serializing_if = "is_absent")]
    cursor: u32,
}

/// A page of groups.
#[derive(JsonSchema)]
pub(crate) struct GroupsShape {
    /// The groups.
    groups: Vec<GroupShape>,
    /// Where the next page begins; absent = that was all.
    #[serde(skip_serializing_if = "is_absent")]
    cursor: u32,
}

/// A group.
#[derive(JsonSchema)]
#[schemars(rename = "Group")]
struct GroupShape {
    /// The group.
    group: String,
    /// How many members it has.
    count: u32,
}

/// What has changed in a scope since a position.
#[derive(JsonSchema)]
pub(crate) struct ChangesShape {
    /// The offset of the last change.
    offset: u64,
    /// The epoch that the offset belongs to.
    epoch: String,
    /// The changes; absent = there may be more of them than are kept.
    #[serde(skip_serializing_if = "is_absent")]
    changes: Vec<ChangeShape>,
    /// `true`: changes are lost, so list the scope again.
    #[serde(skip_serializing_if = "is_absent")]
    list: bool,
    /// `true`: ask again for more changes.
    #[serde(skip_serializing_if = "is_absent")]
    more: bool,
}

/// One change: of a name, or of a member of a group.
#[derive(JsonSchema)]
#[schemars(rename = "Change")]
struct ChangeShape {
    /// What has changed.
    #[schemars(extend("enum" = ["registered", "updated", "unregistered", "joined", "member_updated", "left"]))]
    change: String,
    /// The name.
    #[serde(skip_serializing_if = "is_absent")]
    name: String,
    /// The group.
    #[serde(skip_serializing_if = "is_absent")]
    group: String,
    /// The client id of the owner or member.
    client: String,
    /// The node that the client is, or was, connected to.
    node: String,
    /// Metadata.
    #[serde(skip_serializing_if = "is_absent")]
    meta: Value,
    /// Why.
    #[schemars(extend("enum" = ["normal", "closed", "conflict", "node_up", "node_down", "taken_over"]))]
    reason: String,
}

/// What became of a message.
#[derive(JsonSchema)]
#[serde(untagged)]
pub(crate) enum SentShape {
    /// It was sent.
    Sent {
        /// To how many clients.
        sent: u64,
    },
    /// It is kept until the owner of the name acknowledges it.
    Stored {
        /// The id of the message.
        id: String,
        /// Until when it is kept, Unix milliseconds.
        expires_at: u64,
    },
}

/// What a call was answered with.
#[derive(JsonSchema)]
#[serde(untagged)]
pub(crate) enum CallShape {
    /// The client's answer.
    Answer {
        /// The data.
        data: Value,
    },
    /// The client's own error.
    Failure {
        /// The error.
        error: Value,
    },
    /// The answers of a group.
    Group {
        /// Members that answered.
        replies: Vec<MemberReplyShape>,
        /// Members that did not.
        silent: Vec<SilentMemberShape>,
    },
}

/// The answer of one member: `data`, or its own `error`.
#[derive(JsonSchema)]
#[schemars(rename = "CallAnswer")]
pub(crate) struct MemberReplyShape {
    /// The client id.
    client: String,
    /// The data.
    #[serde(skip_serializing_if = "is_absent")]
    data: Value,
    /// The client's own error.
    #[serde(skip_serializing_if = "is_absent")]
    error: Value,
}

/// A member that did not answer.
#[derive(JsonSchema)]
#[schemars(rename = "SilentMember")]
pub(crate) struct SilentMemberShape {
    /// The client id.
    client: String,
    /// Why.
    error: MemberErrorShape,
}

/// Why a member did not answer.
#[derive(JsonSchema)]
#[schemars(rename = "MemberError")]
struct MemberErrorShape {
    /// The number of the error.
    code: u32,
    /// Its text.
    message: String,
    /// `true`: a call may succeed later.
    #[serde(skip_serializing_if = "is_absent")]
    temporary: bool,
}

/// A comparison of a tag or label, or several that are combined.
#[derive(JsonSchema)]
#[schemars(rename = "FilterNode")]
pub(crate) struct FilterNodeShape {
    /// Empty for a comparison, or `and`, `or`, `not`.
    #[serde(skip_serializing_if = "is_absent")]
    op: String,
    /// The tag or label that is compared.
    #[serde(skip_serializing_if = "is_absent")]
    key: String,
    /// `eq neq in nin ex nex sw ew ct lt lte gt gte`.
    #[serde(skip_serializing_if = "is_absent")]
    cmp: String,
    /// What it is compared to.
    #[serde(skip_serializing_if = "is_absent")]
    val: String,
    /// For `in` and `nin`: what it may, or may not, be.
    #[serde(skip_serializing_if = "is_absent")]
    vals: Vec<String>,
    /// What `and`, `or` and `not` combine.
    #[serde(skip_serializing_if = "is_absent")]
    nodes: Vec<FilterNodeShape>,
}

/// A connection.
#[derive(JsonSchema)]
#[schemars(rename = "ConnectionInfo")]
pub(crate) struct ConnectionInfoShape {
    /// The name of the program; absent = the client has not named it.
    #[serde(skip_serializing_if = "is_absent")]
    app_name: String,
    /// Its version.
    #[serde(skip_serializing_if = "is_absent")]
    app_version: String,
    /// The transport.
    transport: String,
    /// `json` or `protobuf`.
    protocol: String,
    /// The user; empty = the anonymous user.
    user: String,
    /// What changes while the connection lives.
    state: ConnectionStateShape,
    /// When it was opened, Unix milliseconds.
    connected_at_ms: u64,
    /// How long the client took to answer the last ping, milliseconds; -1 = it has answered none, or is being pinged.
    ping_pong_latency_ms: i64,
    /// Its labels.
    #[serde(skip_serializing_if = "is_absent")]
    labels: BTreeMap<String, String>,
    /// The address of the client.
    #[serde(skip_serializing_if = "is_absent")]
    address: String,
    /// Bytes that its socket has not taken.
    queued_bytes: u64,
    /// The id of its node.
    node: String,
    /// Names that it has in the registry, 64 at most together with its groups. Absent = none, or `channel` selects.
    #[serde(skip_serializing_if = "is_absent")]
    names: Vec<HeldNameShape>,
    /// Groups of the registry that it is in.
    #[serde(skip_serializing_if = "is_absent")]
    groups: Vec<HeldGroupShape>,
    /// How many further names and memberships it has.
    #[serde(skip_serializing_if = "is_absent")]
    entries_truncated: u64,
    /// `true`: the registry of its node has not answered in time, so names and groups are not known.
    #[serde(skip_serializing_if = "is_absent")]
    entries_missing: bool,
}

/// A name of a connection.
#[derive(JsonSchema)]
#[schemars(rename = "HeldName")]
struct HeldNameShape {
    /// The scope.
    scope: String,
    /// The name.
    name: String,
}

/// A group that a connection is in.
#[derive(JsonSchema)]
#[schemars(rename = "HeldGroup")]
struct HeldGroupShape {
    /// The scope.
    scope: String,
    /// The group.
    group: String,
}

/// What changes while a connection lives.
#[derive(JsonSchema)]
#[schemars(rename = "ConnectionState")]
struct ConnectionStateShape {
    /// Its channels; where a channel was asked for, that one alone.
    channels: BTreeMap<String, ConnectionChannelShape>,
    /// How many further channels it has.
    #[serde(skip_serializing_if = "is_absent")]
    channels_truncated: u64,
    /// The token that it has shown last.
    #[serde(skip_serializing_if = "is_absent")]
    connection_token: ConnectionTokenShape,
    /// What the token or the backend has said of it, where a hook is sent that.
    #[serde(skip_serializing_if = "is_absent")]
    meta: BTreeMap<String, Value>,
}

/// A channel of a connection.
#[derive(JsonSchema)]
#[schemars(rename = "ConnectionChannel")]
struct ConnectionChannelShape {
    /// `true`: the server has subscribed it.
    #[serde(skip_serializing_if = "is_absent")]
    server_side: bool,
}

/// A token.
#[derive(JsonSchema)]
#[schemars(rename = "ConnectionToken")]
struct ConnectionTokenShape {
    /// When it was issued, Unix seconds.
    issued_at: u64,
}
