//! Settings of consumers: they read commands from a table of PostgreSQL or from a stream of NATS.

use std::time::Duration;

use touchline_engine::hook::ClientTlsSettings;
use touchline_engine::setting::{
    Filled, Key, Misfit, SettingValue as _, SettingsTable, ValueKind, WrittenValue, described, fill,
};
use touchline_engine::{settings, words_of};

/// Maximum number of rows of one transaction.
const SELECT_LIMIT_MAX: u64 = 10_000;
/// Maximum number of partitions of a table. Each partition has a loop and a connection on every node.
const PARTITIONS_MAX: u64 = 256;
/// Maximum number of messages that a consumer of a stream may hold without an acknowledgement.
const ACK_PENDING_MAX: u64 = 10_000;

/// The kind of source that a consumer reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConsumerType {
    /// The configuration has no type.
    #[default]
    Missing,
    /// A table of PostgreSQL.
    Postgresql,
    /// A stream of NATS JetStream.
    NatsJetStream,
}

words_of!(ConsumerType { Missing = "", Postgresql = "postgresql", NatsJetStream = "nats_jetstream" });

/// An entry of `consumers`: a consumer with its name.
#[derive(Debug, Clone, Default)]
pub struct NamedConsumer {
    /// The name, for logs, metrics, locks and keys.
    pub name: String,
    /// The source that the consumer reads, and how.
    pub options: ConsumerSettings,
}

/// The options of a consumer: the source that it reads, and how.
#[derive(Debug, Clone, Default)]
pub struct ConsumerSettings {
    /// The consumer runs.
    pub enabled: bool,
    /// The kind of source. The configuration key is `type`.
    pub source: ConsumerType,
    /// The settings for each kind of source.
    pub sources: ConsumerSources,
}

/// The meaning of the key `type` in the reference.
const TYPE_MEANING: &str =
    "Source that the consumer reads. With any other type the node does not start, even if the entry is off.";

impl SettingsTable for ConsumerSettings {
    fn visit(&self, visit: &mut dyn FnMut(Key)) {
        visit(described("enabled", bool::KIND, &self.enabled, "The consumer runs.", false));
        visit(described("type", ConsumerType::KIND, &self.source, TYPE_MEANING, false));
        self.sources.visit(visit);
    }

    fn set(&mut self, path: &str, written: &WrittenValue<'_>) -> Option<Result<Filled, Misfit>> {
        match path {
            "enabled" => Some(fill(&mut self.enabled, bool::KIND, written)),
            "type" => Some(fill(&mut self.source, ConsumerType::KIND, written).map_err(|_| match written {
                WrittenValue::Text(other) => Some(format!("{other:?}, which is not supported")),
                _ => None,
            })),
            _ => self.sources.set(path, written),
        }
    }
}

settings! {
    /// The settings for each kind of source. Only those of the consumer's type have an effect.
    pub struct ConsumerSources {
        /// A table of PostgreSQL.
        section postgresql: OutboxSettings = OutboxSettings::default();
        /// A stream of NATS JetStream.
        section nats_jetstream: JetStreamSettings = JetStreamSettings::default();
    }
}

settings! {
    /// A table of PostgreSQL into which applications write commands.
    pub struct OutboxSettings {
        /// Address of the database, `postgres://USER:PASSWORD@HOST/DATABASE`. Over a network TLS is required unless the
        /// address says `sslmode=disable`.
        key dsn: String = "", ValueKind::Secret;
        /// Name of the table, or schema and name separated by a dot.
        key outbox_table_name: String = "";
        /// Table for rows that cannot be executed, written as `outbox_table_name`. Empty: `outbox_table_name` followed
        /// by `_dead`. The node creates it if its database role may.
        own dead_table_name: String = "";
        /// Number of partitions of the table. They are numbered from 0.
        key num_partitions: usize = 1, ValueKind::Integer(1, PARTITIONS_MAX);
        /// Maximum number of rows that one transaction reads.
        key partition_select_limit: usize = 100, ValueKind::Integer(1, SELECT_LIMIT_MAX);
        /// Time between two reads of a partition that has no rows.
        key partition_poll_interval: Duration = Duration::from_millis(300);
        /// Channel of `NOTIFY` on which the application reports that a partition has a row. Empty: the application
        /// sends no notifications.
        key partition_notification_channel: String = "";
        /// Address of the database for notifications. Set it if `dsn` goes through a transaction pooler. Empty: `dsn`.
        key partition_notification_dsn: String = "", ValueKind::Secret;
        /// If a partition is locked, the node tries again after `partition_poll_interval`. Off: it waits for the lock
        /// in an open transaction.
        key use_try_lock: bool = true;
        /// TLS to the database.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
    }
}

settings! {
    /// A stream of NATS JetStream into which applications publish commands.
    pub struct JetStreamSettings {
        /// Addresses of NATS servers, separated by commas; `tls://` for TLS.
        key url: String = "nats://127.0.0.1:4222";
        /// Path of a NATS credentials file. It takes precedence over `username` and `token`.
        key credentials_file: String = "";
        /// User for NATS. It takes precedence over `token`.
        key username: String = "";
        /// Password for NATS.
        key password: String = "", ValueKind::Secret;
        /// Token for NATS.
        key token: String = "", ValueKind::Secret;
        /// Name of the stream. The stream must exist.
        key stream_name: String = "";
        /// Name of the durable consumer in the stream. All nodes share it.
        key durable_consumer_name: String = "";
        /// Subjects that the consumer reads. Empty: all subjects of the stream.
        key subjects: Vec<String> = &[];
        /// Where a new consumer begins: `new` reads only messages that are stored from then on, `all` reads the whole
        /// stream.
        key deliver_policy: String = "new", ValueKind::Choice(&["new", "all"]);
        /// Maximum number of unacknowledged messages, on all nodes together and on each node.
        key max_ack_pending: usize = 100, ValueKind::Integer(1, ACK_PENDING_MAX);
        /// The durable consumer exists and is not changed: `subjects`, `deliver_policy` and `max_ack_pending` have no
        /// effect.
        key use_existing_consumer: bool = false;
        /// Header with the name of the method. A message with this header is the payload of the method; a message
        /// without it is an object with `method` and `payload`.
        key method_header: String = "centrifugo-method";
        /// Messages that are publications by themselves.
        section publication_data_mode: PublicationDataSettings = PublicationDataSettings::default();
        /// TLS to NATS.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
    }
}

settings! {
    /// Messages whose payload is the data of a publication. Headers carry everything else.
    pub struct PublicationDataSettings {
        /// The payload of a message is the data of a publication.
        key enabled: bool = false;
        /// Header with the channels, separated by commas.
        key channels_header: String = "centrifugo-channels";
        /// Header with the idempotency key.
        key idempotency_key_header: String = "centrifugo-idempotency-key";
        /// Header that says whether deltas are computed. It is accepted and has no effect: deltas may always be
        /// computed.
        key delta_header: String = "centrifugo-delta";
        /// Header with the version.
        key version_header: String = "centrifugo-version";
        /// Header with the epoch of the version.
        key version_epoch_header: String = "centrifugo-version-epoch";
        /// Prefix of the headers that carry tags. The rest of the header's name is the name of the tag.
        key tags_header_prefix: String = "centrifugo-tag-";
    }
}
