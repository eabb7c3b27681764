//! What each limit protects, and what a client is told that reaches it. `docs/reference/limits.md` is made from these
//! tables; defaults are those of the tables of settings.

/// A limit that has a key.
pub(crate) struct Limit {
    /// Its path, as in `KEYS`; of options of channels and scopes with `channel.…` or `scope.…` before it.
    pub(crate) path: &'static str,
    /// What would grow without it.
    pub(crate) protects: &'static str,
    /// What the client, backend or node that reaches it is told, or what happens instead.
    pub(crate) told: &'static str,
}

/// A limit that is a constant.
pub(crate) struct Fixed {
    /// Where it is, below `crates/`.
    pub(crate) file: &'static str,
    /// Its name there; its value is read from there.
    pub(crate) name: &'static str,
    /// What it counts.
    pub(crate) what: &'static str,
    /// What the client, backend or node that reaches it is told, or what happens instead.
    pub(crate) told: &'static str,
}

const fn limit(path: &'static str, protects: &'static str, told: &'static str) -> Limit {
    Limit { path, protects, told }
}

const fn fixed(file: &'static str, name: &'static str, what: &'static str, told: &'static str) -> Fixed {
    Fixed { file, name, what, told }
}

const STREAM_BODY: &str = "memory of a request that opens a stream";
const SERVED_413: &str = "413";
const SLOWER: &str = "nothing: it is read more slowly; over `/emulation` it ends with 3013";

/// Limits that can be set, in the order of `docs/configuration.md`.
#[rustfmt::skip] // a table: one row each
pub(crate) const LIMITS: &[Limit] = &[
    limit("http_server.backlog", "the kernel's queue of connections that nobody has taken yet", "its connection is not answered until there is room"),
    limit("http_server.header_timeout", "connections that send no request, or a head without end", "the connection is closed"),
    limit("http_server.request_timeout", "requests whose body does not come", "408, or the connection is closed"),
    limit("http_server.idle_timeout", "connections that wait between two requests", "the connection is closed"),
    limit("http_server.tls_handshake_rate_limit", "time of the shard that TLS handshakes take", "nothing: its handshake waits"),
    limit("http_api.body_size_limit", "memory of a request to the server API", SERVED_413),
    limit("client.channel_limit", "subscriptions of a connection", "error 106; 3505 at connect"),
    limit("client.user_connection_limit", "connections of a user on a node", "3504"),
    limit("client.connection_limit", "connections of a node", "503 with `Retry-After`; over bare TCP the connection is closed"),
    limit("client.unauthenticated_connection_limit", "connections of a node that have not connected", "the oldest of them is closed"),
    limit("client.connection_limit_by_address", "connections from one address", "429; over bare TCP the connection is closed"),
    limit("client.connection_rate_limit", "new connections of a node in a second", "503 with `Retry-After`; over bare TCP the connection is closed"),
    limit("client.commands_in_flight_max", "commands of a connection that wait for their answers", "nothing: it is not read until there is room"),
    limit("client.answer_timeout", "answers that a client has asked for and does not read", "3012"),
    limit("client.answer_max_size", "memory of one answer to a client", "a shorter page of history; no `recovered`"),
    limit("client.command_rate_limit", "time of the shard", SLOWER),
    limit("client.byte_rate_limit", "time of the shard, and the network", SLOWER),
    limit("client.queue_max_size", "memory for a connection that does not read", "3008"),
    limit("client.queue_max_entries", "messages that wait for a connection that does not read", "3008"),
    limit("client.pong_timeout", "connections whose peer is gone", "3012"),
    limit("client.stale_close_delay", "connections that have shown no token", "3502"),
    limit("client.expired_close_delay", "connections whose token has expired", "3005"),
    limit("client.expired_sub_close_delay", "subscriptions whose token has expired", "unsubscribe 2501"),
    limit("client.history_max_publication_limit", "the answer to `history`", "fewer publications"),
    limit("client.presence_max_clients", "the answer to `presence`", "a sample, with the exact number"),
    limit("client.recovery_max_publication_limit", "the answer to a subscribe with recovery", "no `recovered`"),
    limit("channel.history_meta_ttl", "records of channels that nobody uses any more", "a new epoch: no `recovered`"),
    limit("channel.max_length", "names of channels", "error 107"),
    limit("channel.tags_filter_max_nodes", "comparisons and values of a tag filter", "error 107"),
    limit("channel.tags_filter_max_size", "bytes of a tag filter", "error 107"),
    limit("channel.idempotency_key_max_length", "idempotency keys that are remembered", "error 107"),
    limit("channel.empty_channels_max", "records of channels that were only looked at", "the oldest goes: a new epoch, no `recovered`"),
    limit("websocket.message_size_limit", "memory of a message, also of what a compressed one becomes", "1009; 1007 for a compressed one"),
    limit("http_stream.max_request_body_size", STREAM_BODY, SERVED_413),
    limit("sse.max_request_body_size", STREAM_BODY, SERVED_413),
    limit("emulation.max_request_body_size", "memory of commands that come by a request", SERVED_413),
    limit("uni_http_stream.max_request_body_size", STREAM_BODY, SERVED_413),
    limit("uni_sse.max_request_body_size", STREAM_BODY, SERVED_413),
    limit("tcp.message_size_limit", "memory of a line", "3501, then the connection is closed"),
    limit("tcp.idle_timeout", "connections of lines that say nothing", "4000"),
    limit("shutdown.timeout", "the time that a stop takes", "the connection is closed"),
    limit("node.publish_backlog_max", "publications that wait at a shard", "error 111, 503 to backends"),
    limit("node.buffer_max_size", "memory of a node for all that waits to be sent or worked on", "503 with `Retry-After` for new connections, error 111 for history and presence, then 3008 for the largest queues"),
    limit("node.channel_limit", "channels of a node", "error 106"),
    limit("cluster.stream_max_bytes", "a stream of history in NATS", "the oldest publications go: no `recovered`"),
    limit("cluster.node_timeout", "names of a node that is gone", "names of that node: 4002"),
    limit("cluster.suspect_grace", "names of a node whose process has ended", "messages and calls to its names: 4006; then 4002"),
    limit("cluster.clock_drift_max", "clocks of a cluster against one that is wrong", "nothing: it is counted"),
    limit("store.primary.timeout", "what waits for a database that does not answer", "error 4010"),
    limit("store.primary.pool_size", "connections to the database", "nothing: reads wait"),
    limit("store.primary.read_queue", "reads that wait for the database", "error 111, or 4010 for a channel's history"),
    limit("store.stats.timeout", "questions that wait for the database of statistics", "error 100"),
    limit("store.stats.pool_size", "questions to statistics at a time", "nothing: questions wait"),
    limit("store.stats.queue_size", "rows of statistics that wait to be written", "nothing: rows are dropped and counted"),
    limit("store.stats.retention", "statistics on the disk", "nothing: old ones go"),
    limit("store.stats.track_rate", "events that a connection reports", "error 111"),
    limit("store.stats.track_size", "properties of a reported event", "error 107"),
    limit("store.commit_size", "a transaction of durable publications", "nothing: the rest is in the next one"),
    limit("store.commit_queue", "durable publications that wait for the disk", "error 111"),
    limit("channel.history_size", "publications kept for a channel", "the oldest go: no `recovered`"),
    limit("channel.history_ttl", "how long they are kept", "they go: no `recovered`"),
    limit("scope.watch_log_size", "changes kept for those who watch a scope", "`list: true`: it has to list again"),
    limit("scope.name_max_length", "names and groups of the registry", "error 107"),
    limit("scope.meta_max_size", "metadata of a name or membership", "error 107"),
    limit("scope.client_entries_limit", "names and memberships of a connection", "error 106"),
    limit("scope.call_timeout_max", "how long a call may wait", "error 4005"),
    limit("scope.calls_limit", "calls that wait on a node", "error 4007"),
    limit("scope.client_calls_limit", "calls of one connection that wait", "error 4007"),
    limit("scope.inbox_size", "messages kept for a name", "error 4011"),
    limit("scope.inbox_ttl_max", "how long they are kept", "nothing: they go, and are counted"),
    limit("scope.call_members_limit", "members that one call of a group reaches", "error 4007"),
    limit("scope.members_limit", "the answer to `members`", "a sample, with the exact count"),
];

/// Keys that are called as limits are, and are none: what they set costs nobody anything.
pub(crate) const NO_LIMITS: &[&str] = &[
    "client.channel_position_check_delay",
    "websocket.compression_min_size",
    "http_stream.compression_min_size",
    "sse.compression_min_size",
    "uni_http_stream.compression_min_size",
    "uni_sse.compression_min_size",
    "store.commit_delay",
    "channel.allow_user_limited_channels",
];

/// Limits that are constants.
#[rustfmt::skip] // a table: one row each
pub(crate) const FIXED: &[Fixed] = &[
    fixed("protocol/src/data.rs", "DEPTH_MAX", "Nesting of a payload", "error 107, or 3501"),
    fixed("protocol/src/filter.rs", "DEPTH_MAX", "Nesting of a tag filter", "error 107"),
    fixed("protocol/src/websocket/head.rs", "CONTROL_MAX", "Bytes of a WebSocket control frame (RFC 6455)", "1002"),
    fixed("server/src/transport/http/caller.rs", "HEAD_MAX", "Bytes of a request's head", "431"),
    fixed("server/src/net/headers.rs", "HEADERS_MAX", "Header fields of a request", "431"),
    fixed("server/src/transport/http/http2.rs", "STREAMS_MAX", "Streams of an HTTP/2 connection at a time", "REFUSED_STREAM"),
    fixed("config/src/settings/transports.rs", "BODY_MAX", "Bytes of a request that opens a stream or brings commands, where its key is 0", SERVED_413),
    fixed("engine/src/session/lines.rs", "MISTAKES_MAX", "Lines that are no commands; a hundred commands make up for one", "error 4013 each, then 3509"),
    fixed("engine/src/session/commands.rs", "EARLY_FRAMES_MAX", "Control frames and empty lines before the connect", "3013"),
    fixed("server/src/shard/budget.rs", "ANSWERS_AHEAD", "Bytes of answers that a socket has not taken, when the next one begins", "nothing: its commands wait"),
    fixed("server/src/shard/turn.rs", "MADE_MAX", "Bytes of answers that a shard makes in a turn", "nothing: the rest waits for the next turn"),
    fixed("server/src/transport/http/body.rs", "PASSED_MAX", "Bytes of an unread body that are passed over", "`Connection: close`"),
    fixed("server/src/transport/http/http2.rs", "SEND_MAX", "Bytes that wait in a stream of HTTP/2", "nothing: the rest waits"),
    fixed("server/src/net/proxy_protocol.rs", "TEXT_MAX", "Bytes of a PROXY header, version 1", "the connection is closed"),
    fixed("server/src/net/proxy_protocol.rs", "BINARY_MAX", "Bytes of a PROXY header, version 2", "the connection is closed"),
    fixed("engine/src/directory/parse.rs", "ACKNOWLEDGED_MAX", "Ids in one `inbox.ack`", "error 107"),
    fixed("engine/src/directory/size.rs", "CLIENTS_MAX", "Clients that one message between nodes is for", "nothing: the others get another one"),
    fixed("engine/src/idempotency.rs", "BYTES_MAX", "Bytes of idempotency keys remembered by a shard", "nothing: the oldest is forgotten"),
    fixed("engine/src/channels/remembered_refusals.rs", "REFUSED_MAX", "Refused subscribes that a shard remembers for a moment", "nothing: the oldest is forgotten"),
    fixed("engine/src/session/connect.rs", "REFUSED_CLOSE_MS", "Milliseconds that a refused client may take to close", "the connection is closed"),
    fixed("server/src/shard/read.rs", "CLOSE_TENTHS", "Tenths of a second that a client may take to answer a close frame", "the connection is closed"),
    fixed("server/src/shard/read.rs", "READS_MAX", "Reads of one connection in a turn of its shard", "nothing: the rest waits for the next turn"),
    fixed("server/src/shard/read.rs", "READ_SIZE", "Bytes of such a read", "nothing: the rest waits for the next turn"),
    fixed("server/src/shard/queue.rs", "WRITE_PER_TURN_BYTES_MAX", "Bytes written to one connection in a turn", "nothing: the rest waits for the next turn"),
    fixed("server/src/shard/turn.rs", "NOTES_MAX", "Deliveries that a shard has noted and not written", "nothing: publications wait, then error 111"),
    fixed("server/src/net/socket.rs", "WAITING_MAX", "Encrypted bytes that wait for a socket", "nothing: the rest waits in the clear"),
    fixed("engine/src/idempotency.rs", "KEYS_MAX", "Idempotency keys remembered by a shard", "nothing: the oldest is forgotten"),
    fixed("protocol/src/stream/log.rs", "IDEMPOTENCY_KEY_TTL_MS", "Milliseconds for which one is remembered", "nothing: it is forgotten"),
    fixed("engine/src/directory/inbox.rs", "WINDOW", "Kept messages that a client is given before it acknowledges some", "nothing: the others follow"),
    fixed("engine/src/directory/parse.rs", "PAGE_MAX", "Entries in a page of `names` or `groups`", "a cursor to the rest"),
    fixed("engine/src/tracker.rs", "NAME_MAX", "Bytes of a reported event's name", "error 107"),
    fixed("engine/src/channels/cache.rs", "BEHIND_GAP_MAX", "Publications that wait behind a gap in a cluster", "unsubscribe 2500: it recovers"),
    fixed("server/src/runtime/programs.rs", "PROGRAMS_MAX", "Names of client programs in the metrics of a shard", "nothing: it counts as `other`"),
    fixed("server/src/runtime/programs.rs", "NAME_MAX", "Bytes of such a name", "nothing: it is cut"),
    fixed("server/src/api/batch.rs", "COMMANDS_MAX", "Operations in a batch, or lines of `POST /api`", "error 107"),
    fixed("server/src/net/glob.rs", "PATTERN_MAX", "Bytes of a pattern of channels", "error 107"),
    fixed("server/src/api/operations/publish.rs", "CHANNELS_MAX", "Channels of a broadcast", "error 107"),
    fixed("protocol/src/websocket/head.rs", "CLOSE_REASON_MAX", "Bytes of the reason of a disconnect", "error 107"),
    fixed("server/src/api/operations/channel_directory.rs", "TEXT_MAX", "Bytes of a title, kind or tag in the directory of channels", "error 107"),
    fixed("server/src/api/operations/channel_directory.rs", "DESCRIPTION_MAX", "Bytes of a description", "error 107"),
    fixed("server/src/api/operations/channel_directory.rs", "TAGS_MAX", "Tags of a channel in the directory", "error 107"),
    fixed("server/src/api/operations/channel_directory.rs", "PAGE_MAX", "Channels in an answer of the directory", "error 107"),
    fixed("server/src/api/operations/channel_directory.rs", "OFFSET_MAX", "Channels that a search may skip", "error 107"),
    fixed("server/src/api/operations/stats.rs", "RANGE_MAX", "Seconds that a question to statistics may cover", "error 107"),
    fixed("server/src/api/operations/stats.rs", "STEP_MAX", "Seconds of a step of such a question", "error 107"),
    fixed("server/src/api/operations/stats.rs", "POINTS_MAX", "Points of an answer", "error 107"),
    fixed("server/src/api/operations/stats.rs", "TOP_MAX", "Lines of a top", "error 107"),
    fixed("store/src/stats/mod.rs", "QUERIES_MAX", "Questions to statistics that wait", "error 111"),
    fixed("store/src/search.rs", "COMPARED_MAX", "Channels that are compared for one search", "nothing: those that share the rarest words are"),
    fixed("store/src/sqlite/channel_rows.rs", "KNOWN_MAX", "Channels that the database's writer remembers between commits", "nothing: the row is read again"),
    fixed("registry/src/sync.rs", "DEPARTED_MAX", "Nodes whose departure is remembered", "nothing: the oldest is forgotten"),
    fixed("registry/src/codec.rs", "NODE_LEN_MAX", "Bytes of a node's name in messages of the registry", "nothing: the message is passed over"),
    fixed("cluster/src/members.rs", "NODE_LEN_MAX", "Bytes of a node's id in its hello", "nothing: the hello is passed over"),
    fixed("cluster/src/connection.rs", "SIGNALS_MAX", "Hellos of other nodes that wait to be read", "nothing: they are said again at once"),
    fixed("cluster/src/members.rs", "MEMBERS_MAX", "Nodes of a cluster that a node knows", "nothing: hellos of others are passed over"),
    fixed("registry/src/peer.rs", "PARTS_MAX", "Pieces of another node's snapshot", "nothing: it is passed over, and asked for again"),
];

/// Constants that are called as limits are, and bound no input: (file, name).
pub(crate) const NO_FIXED: &[(&str, &str)] = &[
    ("engine/src/session/refusal.rs", "CHANNEL_SHOWN_MAX"),
    ("server/src/runtime/refusals.rs", "LINES_MAX"),
    ("server/src/runtime/refusals.rs", "ORIGIN_SHOWN_MAX"),
    ("cluster/src/marks.rs", "LEFT_MAX"),
    ("cluster/src/outage.rs", "CAUSES_MAX"),
    ("store/src/metrics.rs", "CAUSES_MAX"),
    ("cluster/src/loader.rs", "READING_MAX"),
    ("cluster/src/loader.rs", "CHECKING_MAX"),
    ("protocol/src/deflate.rs", "STORED_MAX"),
    ("protocol/src/message/messages.rs", "KEPT_MAX"),
    ("server/src/shard/budget.rs", "REST_MAX"),
    ("server/src/shard/room.rs", "STALE_MAX"),
    ("server/src/shard/outbox.rs", "GATHERED_MAX"),
    ("protocol/src/publication/push.rs", "HEAD_MAX"),
    ("protocol/src/websocket/head.rs", "HEAD_MAX"),
    ("server/src/shard/accept.rs", "ACCEPTS_MAX"),
    ("server/src/shard/room.rs", "ROOM_MAX"),
    ("server/src/runtime/run_lock.rs", "INLINE_RECHECKS_MAX"),
    ("server/src/runtime/sync.rs", "SPINS_MAX"),
    ("server/src/registry/actor.rs", "IDLE_WAIT_MAX"),
    ("server/src/shard/minute_stats.rs", "VISITS_MAX"),
    ("server/src/shard/turn.rs", "EVENTS_MAX"),
    ("server/src/shard/state.rs", "MESSAGES_MAX"),
    ("server/src/shard/turn.rs", "WRITES_MAX"),
    ("server/src/shard/turn.rs", "INLINE_RUNS_PER_TURN_MAX"),
    ("store/src/tfidf.rs", "STEM_MAX"),
];
