//! Where commands come from besides requests: a table of PostgreSQL, a stream of NATS.

use std::time::Duration;

use touchline_engine::hook::ClientTlsSettings;
use touchline_engine::setting::{
    Filled, Key, Misfit, SettingValue as _, SettingsTable, ValueKind, WrittenValue, described, fill,
};
use touchline_engine::{settings, words_of};

/// Most rows of one transaction.
const SELECT_LIMIT_MAX: u64 = 10_000;
/// Most partitions of a table: each has a loop and a connection on every node.
const PARTITIONS_MAX: u64 = 256;
/// Most messages that a consumer of a stream may hold without an acknowledgement.
const ACK_PENDING_MAX: u64 = 10_000;

/// What a consumer reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConsumerType {
    /// Nothing was written.
    #[default]
    Missing,
    /// A table of PostgreSQL.
    Postgresql,
    /// A stream of NATS JetStream.
    NatsJetStream,
}

words_of!(ConsumerType { Missing = "", Postgresql = "postgresql", NatsJetStream = "nats_jetstream" });

/// A consumer, with its name.
#[derive(Debug, Clone, Default)]
pub struct NamedConsumer {
    /// The name, for logs, metrics, locks and keys.
    pub name: String,
    /// What it reads, and how.
    pub options: ConsumerSettings,
}

/// What a consumer reads, and how.
#[derive(Debug, Clone, Default)]
pub struct ConsumerSettings {
    /// The consumer runs.
    pub enabled: bool,
    /// What it reads. The key is `type`.
    pub source: ConsumerType,
    /// The settings of each kind.
    pub sources: ConsumerSources,
}

/// What is said of `type`.
const TYPE_MEANING: &str = "What the consumer reads. Any other type stops the start, also in an entry that is off.";

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
    /// The settings of each kind of consumer.
    pub struct ConsumerSources {
        /// A table of PostgreSQL.
        section postgresql: OutboxSettings = OutboxSettings::default();
        /// A stream of NATS JetStream.
        section nats_jetstream: JetStreamSettings = JetStreamSettings::default();
    }
}

settings! {
    /// A table of PostgreSQL in which applications leave commands.
    pub struct OutboxSettings {
        /// Address of the database, `postgres://USER:PASSWORD@HOST/DATABASE`. Over the network TLS is a must unless it
        /// says `sslmode=disable`.
        key dsn: String = "", ValueKind::Secret;
        /// The table: a name, or a schema and a name with a dot between them.
        key outbox_table_name: String = "";
        /// The table that a row moves into that can't be carried out, written as `outbox_table_name`. Empty:
        /// `outbox_table_name` with `_dead` behind it. It is made where the role may make it.
        own dead_table_name: String = "";
        /// Partitions of the table, from 0 on.
        key num_partitions: usize = 1, ValueKind::Integer(1, PARTITIONS_MAX);
        /// Most rows of one transaction.
        key partition_select_limit: usize = 100, ValueKind::Integer(1, SELECT_LIMIT_MAX);
        /// Between two looks at a partition in which nothing was found.
        key partition_poll_interval: Duration = Duration::from_millis(300);
        /// Channel of `NOTIFY` by which the application tells that a partition has a row; empty: it tells none.
        key partition_notification_channel: String = "";
        /// Address of the database for notifications, where `dsn` leads through a pooler of transactions. Empty: `dsn`.
        key partition_notification_dsn: String = "", ValueKind::Secret;
        /// A node tries the lock of a partition, and looks again after `partition_poll_interval`. Else it waits for the
        /// lock in an open transaction.
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
        /// Path of a credentials file of NATS. It comes before `username` and `token`.
        key credentials_file: String = "";
        /// User for NATS. It comes before `token`.
        key username: String = "";
        /// Password for NATS.
        key password: String = "", ValueKind::Secret;
        /// Token for NATS.
        key token: String = "", ValueKind::Secret;
        /// The stream, which must exist.
        key stream_name: String = "";
        /// The durable consumer in the stream; nodes share it.
        key durable_consumer_name: String = "";
        /// Subjects that are read; empty: all of the stream.
        key subjects: Vec<String> = &[];
        /// Whether a new consumer begins with what is stored from then on, or with all that the stream has.
        key deliver_policy: String = "new", ValueKind::Choice(&["new", "all"]);
        /// Most messages that are under way on all nodes, and on each.
        key max_ack_pending: usize = 100, ValueKind::Integer(1, ACK_PENDING_MAX);
        /// The consumer is there, and stays as it is: `subjects`, `deliver_policy` and `max_ack_pending` do not count.
        key use_existing_consumer: bool = false;
        /// The header that names the method; then the message is the method's payload. A message without it is an
        /// object with `method` and `payload`.
        key method_header: String = "centrifugo-method";
        /// Messages that are publications by themselves.
        section publication_data_mode: PublicationDataSettings = PublicationDataSettings::default();
        /// TLS to NATS.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
    }
}

settings! {
    /// Messages whose payload is the data of a publication; what else it needs is in headers.
    pub struct PublicationDataSettings {
        /// The payload of a message is the data of a publication.
        key enabled: bool = false;
        /// The header with the channels, separated by commas.
        key channels_header: String = "centrifugo-channels";
        /// The header with the idempotency key.
        key idempotency_key_header: String = "centrifugo-idempotency-key";
        /// The header that says whether deltas are computed, which is accepted and has no effect: they always may be.
        key delta_header: String = "centrifugo-delta";
        /// The header with the version.
        key version_header: String = "centrifugo-version";
        /// The header with the epoch of the version.
        key version_epoch_header: String = "centrifugo-version-epoch";
        /// How the headers of tags begin; the rest of the name is the tag's.
        key tags_header_prefix: String = "centrifugo-tag-";
    }
}
