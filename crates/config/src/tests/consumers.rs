//! Consumers: which keys are read, from which sources, and which values are refused.

use super::*;
use crate::settings::ConsumerType;

/// A list with one consumer, whose fields are written in TOML.
fn one(fields: &str) -> String {
    format!("consumers = [{{{fields}}}]")
}

const OUTBOX: &str = "name = \"shop\", enabled = true, type = \"postgresql\", \
     postgresql = {dsn = \"postgres://a:tops3cret@b/c\", outbox_table_name = \"shop.Outbox\"}";

#[test]
fn a_consumer_is_read_and_its_variables_come_over_it() {
    let file = File::new("consumers.toml", &one(OUTBOX));
    let reading = file.read(&[
        ("CENTRIFUGO_CONSUMERS_SHOP_POSTGRESQL_NUM_PARTITIONS", "4"),
        ("TOUCHLINE_CONSUMERS_SHOP_POSTGRESQL_DSN", "postgres://x:tops3cret@y/z"),
        ("TOUCHLINE_CONSUMERS_SHOP_POSTGRESQL_TLS_SERVER_NAME", "db"),
        ("TOUCHLINE_CONSUMERS_OTHER_ENABLED", "true"),
    ]);
    assert!(
        texts(&reading).iter().any(|text| text.contains("TOUCHLINE_CONSUMERS_OTHER_ENABLED: no key")),
        "{:?}",
        texts(&reading)
    );
    let settings = settings(reading);
    let [consumer] = settings.consumers.as_slice() else { panic!("there is one") };
    assert_eq!((consumer.name.as_str(), consumer.options.source), ("shop", ConsumerType::Postgresql));
    let outbox = &consumer.options.sources.postgresql;
    assert_eq!((outbox.dsn.as_str(), outbox.num_partitions), ("postgres://x:tops3cret@y/z", 4));
    assert_eq!((outbox.partition_select_limit, outbox.partition_poll_interval), (100, Duration::from_millis(300)));
    assert_eq!((outbox.tls.server_name.as_str(), outbox.use_try_lock), ("db", true));
    let shown = format!("{settings:?}");
    assert!(shown.contains("outbox_table_name") && !shown.contains("tops3cret"), "{shown}");
}

#[test]
fn a_type_that_is_not_supported_stops_the_start_in_an_entry_that_is_off_too() {
    for fields in ["name = \"shop\", type = \"kafka\"", "name = \"shop\", type = \"junk\"", "name = \"shop\", type = 7"]
    {
        let found = texts(&toml(&one(fields)));
        let told = found.iter().find(|text| text.starts_with("Error")).expect("the list is refused");
        assert!(told.contains("consumers[shop].type: expected one of") && told.contains("nats_jetstream"), "{told}");
    }
    let found = texts(&toml(&one("name = \"shop\", type = \"kafka\"")));
    assert!(found.iter().any(|text| text.contains("found \"kafka\", which is not supported")), "{found:?}");
    let found = texts(&toml(&one("name = \"shop\"")));
    assert!(found.iter().any(|text| text.contains("consumers[shop].type: missing")), "{found:?}");
    let off = "name = \"shop\", type = \"nats_jetstream\", kafka = {brokers = [\"a\"]}";
    assert!(texts(&toml(&one(off))).iter().all(|text| !text.contains("consumers")), "it needs no more keys");
}

#[test]
fn what_a_consumer_needs_is_asked_for() {
    let outbox = |more: &str| {
        format!(
            "name = \"shop\", enabled = true, type = \"postgresql\", \
             postgresql = {{dsn = \"postgres://a@b/c\", {more}}}"
        )
    };
    let stream =
        |more: &str| format!("name = \"shop\", enabled = true, type = \"nats_jetstream\", nats_jetstream = {{{more}}}");
    for (fields, told) in [
        ("name = \"a\", type = \"postgresql\"".to_owned(), "expected two to 64"),
        ("name = \"a-b\", type = \"postgresql\"".to_owned(), "expected two to 64"),
        (format!("{OUTBOX}}}, {{{OUTBOX}"), "used twice"),
        (format!("{OUTBOX}}}, {{{}", OUTBOX.replace("shop\"", "news\"")), "another consumer reads this table"),
        (
            format!(
                "{}, num_partitions = 11}}}}, {{{}",
                OUTBOX.trim_end_matches('}'),
                OUTBOX.replace("shop\"", "shop1\"").replace("Outbox", "other")
            ),
            "it is also the name of a lock of shop",
        ),
        ("name = \"shop\", enabled = true, type = \"postgresql\"".to_owned(), "postgresql.dsn: missing"),
        (outbox("num_partitions = 1"), "outbox_table_name: missing"),
        (outbox("outbox_table_name = \"a; DROP TABLE b\""), "outbox_table_name: expected a name"),
        (outbox("outbox_table_name = \"a\", dead_table_name = \"A\""), "the same as outbox_table_name"),
        (outbox("outbox_table_name = \"a\", dead_table_name = \"a b\""), "dead_table_name: expected a name"),
        (outbox("outbox_table_name = \"a\", partition_poll_interval = 0"), "must be above zero"),
        (outbox("outbox_table_name = \"a\", num_partitions = 0"), "expected a number from 1"),
        (
            outbox("outbox_table_name = \"a\", partition_notification_channel = \"a'b\""),
            "partition_notification_channel",
        ),
        (outbox("outbox_table_name = \"a\", partition_notification_dsn = \"postgres://a\""), "has no effect without"),
        (stream("durable_consumer_name = \"a\""), "stream_name: missing"),
        (stream("stream_name = \"a\", durable_consumer_name = \"a.b\""), "durable_consumer_name: expected a NATS name"),
        (stream("stream_name = \"a\", durable_consumer_name = \"a\", deliver_policy = \"last\""), "expected one of"),
        (
            stream("stream_name = \"a\", durable_consumer_name = \"a\", method_header = \"a b\""),
            "name of a NATS header",
        ),
        (stream("stream_name = \"a\", durable_consumer_name = \"a\", url = \",\""), "url: missing"),
    ] {
        let found = texts(&toml(&one(&fields)));
        assert!(found.iter().any(|text| text.starts_with("Error") && text.contains(told)), "{fields}: {found:?}");
    }
}

#[test]
fn the_connections_of_all_consumers_together_have_a_limit() {
    let of = |name: &str, partitions: u32| {
        let more = format!(", num_partitions = {partitions}}}");
        OUTBOX.replace("shop\"", &format!("{name}\"")).replace("Outbox", name).replace('}', &more)
    };
    let found = |last: u32| {
        let all = [of("aa", 255), of("bb", last)].map(|fields| format!("{{{fields}}}")).join(", ");
        texts(&toml(&format!("consumers = [{all}]")))
    };
    assert!(found(255).iter().all(|text| !text.starts_with("Error")), "{:?}", found(255));
    let refused = found(256);
    assert!(
        refused.iter().any(|text| text.contains("513 database connections") && text.starts_with("Error")),
        "{refused:?}"
    );
}
