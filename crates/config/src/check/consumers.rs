//! Checks the consumers: each needs its own name and a type, and an enabled one needs the options of its type.

use std::collections::{HashMap, HashSet};

use crate::finding::Finding;
use crate::item_path::{is_key_name, item_path};
use crate::keys::CONSUMERS;
use crate::settings::{
    ConsumerType, JetStreamSettings, NamedConsumer, OutboxSettings, PublicationDataSettings, Settings,
};
use crate::table_name::{TableName, identifier};

/// Maximum bytes of a consumer's name, which is part of keys, locks and metrics.
const NAME_LEN_MAX: usize = 64;

/// Maximum number of database connections of all consumers of a node: one for each partition, and one for each table.
const CONNECTIONS_MAX: usize = 512;

/// Checks all consumers.
pub(super) fn check(settings: &Settings, findings: &mut Vec<Finding>) {
    let mut names = HashSet::new();
    for (index, named) in settings.consumers.iter().enumerate() {
        let (name, options) = (named.name.as_str(), &named.options);
        let path = item_path(CONSUMERS, index, name);
        let mut error = |text: &str| findings.push(Finding::error(format!("{path}{text}"), None));
        if !is_key_name(name) || name.len() > NAME_LEN_MAX {
            error(".name: expected two to 64 of letters, digits and \"_\"");
        }
        if !names.insert(name) {
            error(".name: used twice");
        }
        match options.source {
            ConsumerType::Missing => error(".type: missing; expected \"postgresql\" or \"nats_jetstream\""),
            ConsumerType::Postgresql if options.enabled => outbox(&options.sources.postgresql, &mut error),
            ConsumerType::NatsJetStream if options.enabled => stream(&options.sources.nats_jetstream, &mut error),
            ConsumerType::Postgresql | ConsumerType::NatsJetStream => {}
        }
    }
    together(settings, findings);
}

/// Checks that no two consumers of one database read the same table or share a lock. The lock of a partition is the
/// name of the consumer followed by the number of the partition.
fn together(settings: &Settings, findings: &mut Vec<Finding>) {
    let (mut tables, mut locks, mut connections) = (HashSet::new(), HashMap::new(), 0);
    for (index, NamedConsumer { name, options }) in settings.consumers.iter().enumerate() {
        if !options.enabled || options.source != ConsumerType::Postgresql {
            continue;
        }
        let outbox = &options.sources.postgresql;
        let path = item_path(CONSUMERS, index, name);
        connections += outbox.num_partitions + 1;
        if let Ok(table) = outbox.outbox_table_name.parse::<TableName>()
            && !tables.insert((outbox.dsn.as_str(), table.quoted()))
        {
            let text = format!("{path}.postgresql.outbox_table_name: another consumer reads this table");
            findings.push(Finding::error(text, None));
        }
        let partitions =
            (0..outbox.num_partitions).map(|partition| (outbox.dsn.as_str(), format!("{name}{partition}")));
        let others = partitions.filter_map(|lock| locks.insert(lock, name)).find(|other| *other != name);
        if let Some(other) = others {
            let text =
                format!("{path}.name: followed by the number of a partition, it is also the name of a lock of {other}");
            findings.push(Finding::error(text, None));
        }
    }
    if connections > CONNECTIONS_MAX {
        let text = format!(
            "{CONSUMERS}: they would open {connections} database connections on each node (num_partitions plus one for \
             each consumer), more than {CONNECTIONS_MAX}"
        );
        findings.push(Finding::error(text, None));
    }
}

fn outbox(outbox: &OutboxSettings, error: &mut dyn FnMut(&str)) {
    if outbox.dsn.is_empty() {
        error(".postgresql.dsn: missing");
    }
    let table = match outbox.outbox_table_name.parse::<TableName>() {
        _ if outbox.outbox_table_name.is_empty() => {
            error(".postgresql.outbox_table_name: missing");
            None
        }
        table => table.map_err(|bad| error(&format!(".postgresql.outbox_table_name: {bad}"))).ok(),
    };
    let dead = outbox.dead_table_name.parse::<TableName>();
    if let (false, Err(bad)) = (outbox.dead_table_name.is_empty(), &dead) {
        error(&format!(".postgresql.dead_table_name: {bad}"));
    }
    if let Some(table) = table {
        if outbox.dead_table_name.is_empty() && table.with_suffix("_dead").is_err() {
            error(".postgresql.dead_table_name: missing, and outbox_table_name is too long to append \"_dead\"");
        }
        if dead == Ok(table) {
            error(".postgresql.dead_table_name: the same as outbox_table_name, so a row would be retried for ever");
        }
    }
    if outbox.partition_poll_interval.is_zero() {
        error(".postgresql.partition_poll_interval: must be above zero");
    }
    let channel = &outbox.partition_notification_channel;
    if !channel.is_empty() && identifier(channel).is_err() {
        error(".postgresql.partition_notification_channel: expected letters, digits and \"_\", at most 63");
    }
    if !outbox.partition_notification_dsn.is_empty() && channel.is_empty() {
        error(".postgresql.partition_notification_dsn: has no effect without partition_notification_channel");
    }
}

fn stream(stream: &JetStreamSettings, error: &mut dyn FnMut(&str)) {
    let is_name = |name: &str| !name.contains(|c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c));
    for (key, name) in [("stream_name", &stream.stream_name), ("durable_consumer_name", &stream.durable_consumer_name)]
    {
        if name.is_empty() {
            error(&format!(".nats_jetstream.{key}: missing"));
        } else if !is_name(name) {
            error(&format!(".nats_jetstream.{key}: expected a NATS name: without spaces and without \". * > / \\\""));
        }
    }
    if stream.url.split(',').all(|url| url.trim().is_empty()) {
        error(".nats_jetstream.url: missing");
    }
    if stream.subjects.iter().any(|subject| subject.is_empty() || subject.contains(char::is_whitespace)) {
        error(".nats_jetstream.subjects: expected NATS subjects");
    }
    if !stream.tls.server_name.is_empty() {
        error(".nats_jetstream.tls.server_name: NATS is verified by the host of its address; remove this key");
    }
    headers(&stream.method_header, &stream.publication_data_mode, error);
}

/// Checks the names of headers.
fn headers(method: &str, mode: &PublicationDataSettings, error: &mut dyn FnMut(&str)) {
    let is_header = |name: &str| name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    let mut bad = |key: &str| error(&format!(".nats_jetstream.{key}: expected the name of a NATS header"));
    if !is_header(method) {
        bad("method_header");
    }
    for (key, name) in [
        ("channels_header", &mode.channels_header),
        ("idempotency_key_header", &mode.idempotency_key_header),
        ("delta_header", &mode.delta_header),
        ("version_header", &mode.version_header),
        ("version_epoch_header", &mode.version_epoch_header),
        ("tags_header_prefix", &mode.tags_header_prefix),
    ] {
        if !is_header(name) {
            bad(&format!("publication_data_mode.{key}"));
        }
    }
    if mode.enabled && mode.channels_header.is_empty() {
        error(".nats_jetstream.publication_data_mode.channels_header: missing, so no publication would have a channel");
    }
}
