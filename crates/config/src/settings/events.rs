//! Lifecycle events: where they are sent.

use std::time::Duration;

use touchline_engine::hook::{ClientTlsSettings, StringMap};
use touchline_engine::setting::{SOME, ValueKind};
use touchline_engine::settings;

settings! {
    /// A backend that is told what happens.
    pub struct EventsSettings {
        /// Where events are sent: `http://…`, `https://…`, or `nats:` with a subject on the servers of `[cluster]`.
        own endpoint: String = "";
        /// What is told: `connected`, `disconnected`, `subscribed`, `unsubscribed`, `occupied`, `vacated`,
        /// `user_online`, `user_offline`, `name_registered`, `name_updated`, `name_lost`, `member_joined`,
        /// `member_left`, `inbox_expired`.
        own types: Vec<String> = &[];
        /// Namespaces of the channels that are told of (`subscribed`, `unsubscribed`, `occupied`, `vacated`); `""` is
        /// that of channels without one. Empty: all.
        own namespaces: Vec<String> = &[];
        /// The key by which batches are signed: `whsec_` and base64 of 24 to 64 random bytes. Empty: they are not.
        own secret: String = "", ValueKind::Secret;
        /// The key before `secret`. While it is set, batches are signed by both.
        own secret_previous: String = "", ValueKind::Secret;
        /// How long a channel must be without subscribers, or a user without connections, until that is told.
        own delay: Duration = Duration::from_secs(5);
        /// Events in one batch.
        own batch_max: usize = 100, ValueKind::Integer(1, 100);
        /// How long an event waits for others of its batch.
        own batch_wait: Duration = Duration::from_millis(100);
        /// Batches that are under way at the same time. Events about the same user, channel or name are in the same
        /// lane, and so stay in order. With 1 all events of the node do.
        own lanes: usize = 8, ValueKind::Integer(1, 64);
        /// How long the endpoint may take to answer.
        own timeout: Duration = Duration::from_secs(15);
        /// How long an event is tried; then it is dead.
        own max_age: Duration = Duration::from_hours(24);
        /// Events are kept in `store.primary` until they have arrived, so those in it outlive their node.
        own durable: bool = false;
        /// Events that may wait on a node without `durable`; the oldest are dropped, and `state.reset` is told.
        own queue_max: usize = 100_000, SOME;
        /// Bytes of events that may wait on a node without `durable`; the oldest are dropped, and `state.reset` is
        /// told.
        own queue_max_size: usize = 67_108_864, SOME;
        /// Header fields of every request: a table of texts.
        own headers: StringMap = (), ValueKind::StringMap;
        /// TLS to the endpoint.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
    }
}

impl EventsSettings {
    /// The subject of NATS that events are sent to; `None` = they are sent over HTTP.
    pub fn nats_subject(&self) -> Option<&str> {
        self.endpoint.strip_prefix("nats:")
    }
}

/// A backend that is told what happens, with its name.
#[derive(Debug, Clone, Default)]
pub struct NamedEvents {
    /// The name, for logs and metrics.
    pub name: String,
    /// Where events are sent, and which.
    pub options: EventsSettings,
}
