//! Settings of lifecycle events: where the node sends them.

use std::time::Duration;

use touchline_engine::hook::{ClientTlsSettings, StringMap};
use touchline_engine::setting::{SOME, ValueKind};
use touchline_engine::settings;

settings! {
    /// A backend that receives lifecycle events.
    pub struct EventsSettings {
        /// Where events are sent: `http://…`, `https://…`, or `nats:` and a subject on the NATS servers of `[cluster]`.
        own endpoint: String = "";
        /// Types of events to send: `connected`, `disconnected`, `subscribed`, `unsubscribed`, `occupied`, `vacated`,
        /// `user_online`, `user_offline`, `name_registered`, `name_updated`, `name_lost`, `member_joined`,
        /// `member_left`, `inbox_expired`.
        own types: Vec<String> = &[];
        /// Namespaces whose channels cause events (`subscribed`, `unsubscribed`, `occupied`, `vacated`). `""` stands
        /// for channels without a namespace. Empty: all namespaces.
        own namespaces: Vec<String> = &[];
        /// Key that signs batches: `whsec_` and the base64 of 24 to 64 random bytes. Empty: batches are not signed.
        own secret: String = "", ValueKind::Secret;
        /// The previous value of `secret`. While it is set, batches are signed with both keys.
        own secret_previous: String = "", ValueKind::Secret;
        /// How long a channel must be without subscribers, or a user without connections, before the event is sent.
        own delay: Duration = Duration::from_secs(5);
        /// Maximum number of events in one batch.
        own batch_max: usize = 100, ValueKind::Integer(1, 100);
        /// How long an event waits for other events to fill its batch.
        own batch_wait: Duration = Duration::from_millis(100);
        /// Number of lanes; each sends one batch at a time. Events about the same user, channel or name use the same
        /// lane and stay in order. With 1 lane all events of the node stay in order.
        own lanes: usize = 8, ValueKind::Integer(1, 64);
        /// How long the endpoint may take to answer.
        own timeout: Duration = Duration::from_secs(15);
        /// How long the node retries an event. After this time the node gives the event up; a durable event becomes a
        /// dead letter.
        own max_age: Duration = Duration::from_hours(24);
        /// Events are stored in `store.primary` until they are delivered. Stored events survive the loss of their node.
        own durable: bool = false;
        /// Events that may wait on a node without `durable`. Beyond it the oldest are dropped, and the endpoint
        /// receives `state.reset`.
        own queue_max: usize = 100_000, SOME;
        /// Bytes of events that may wait on a node without `durable`. Beyond it the oldest are dropped, and the
        /// endpoint receives `state.reset`.
        own queue_max_size: usize = 67_108_864, SOME;
        /// Header fields of every request: a table of texts.
        own headers: StringMap = (), ValueKind::StringMap;
        /// TLS to the endpoint.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
    }
}

impl EventsSettings {
    /// The NATS subject that events are sent to. `None` = events are sent over HTTP.
    pub fn nats_subject(&self) -> Option<&str> {
        self.endpoint.strip_prefix("nats:")
    }
}

/// An entry of `events`: a backend that receives lifecycle events, with its name.
#[derive(Debug, Clone, Default)]
pub struct NamedEvents {
    /// The name, for logs and metrics.
    pub name: String,
    /// Where events are sent, and which events.
    pub options: EventsSettings,
}
