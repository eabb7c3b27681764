//! Commands, good and mutated, through our decoder and through serde_json as it is.

use serde_json::{Value, json};
use touchline_protocol::command::{Command, Commands, Operation};
use touchline_protocol::message::Body;

use crate::random::{Random, fuzz};

const METHODS: &[&str] = &[
    "connect",
    "subscribe",
    "unsubscribe",
    "publish",
    "presence",
    "presence_stats",
    "history",
    "send",
    "rpc",
    "refresh",
    "sub_refresh",
    "unheard_of",
];

fn command(random: &mut Random) -> Value {
    let method = METHODS[random.below(METHODS.len())];
    let mut request = json!({});
    let mut set = |name: &str, value: Value| request[name] = value;
    for _ in 0..random.below(6) {
        match random.below(8) {
            0 => set("channel", random.text().into()),
            1 => set("token", random.text().into()),
            2 => set("data", data(random, 3)),
            3 => set("offset", (random.next() >> 11).into()),
            4 => set("recover", random.one_in(2).into()),
            5 => set("method", random.text().into()),
            6 => set(&format!("unknown_{}", random.below(9)), data(random, 2)),
            _ => set("limit", (random.below(100) as i64 - 1).into()),
        }
    }
    json!({"id": random.below(1 << 20), method: request})
}

fn data(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 4 } else { 6 }) {
        0 => Value::Null,
        1 => random.text().into(),
        2 => (random.next() >> 12).into(),
        3 => random.one_in(2).into(),
        4 => (0..random.below(4)).map(|_| data(random, depth - 1)).collect(),
        _ => Value::Object((0..random.below(4)).map(|_| (random.text(), data(random, depth - 1))).collect()),
    }
}

/// The method that a command was read as.
fn name_of(command: &Command<'_>) -> &'static str {
    match &command.operation {
        None => "unheard_of",
        Some(Operation::Connect(_)) => "connect",
        Some(Operation::Send) => "send",
        Some(Operation::Subscribe(_)) => "subscribe",
        Some(Operation::Unsubscribe(_)) => "unsubscribe",
        Some(Operation::Publish(_)) => "publish",
        Some(Operation::Presence(_)) => "presence",
        Some(Operation::PresenceStats(_)) => "presence_stats",
        Some(Operation::History(_)) => "history",
        Some(Operation::Rpc(_)) => "rpc",
        Some(Operation::Refresh(_)) => "refresh",
        Some(Operation::SubRefresh(_)) => "sub_refresh",
    }
}

#[test]
fn good_commands_are_read_as_they_were_written() {
    fuzz(|random| {
        let written: Vec<Value> = (0..1 + random.below(4)).map(|_| command(random)).collect();
        let text: String = written.iter().map(|command| format!("{command}\n")).collect();
        let read: Vec<Command<'_>> = Commands::read(Body::Json, text.as_bytes()).map(|command| command.expect("it is good")).collect();
        assert_eq!(read.len(), written.len());
        for (read, written) in read.iter().zip(&written) {
            assert_eq!(u64::from(read.id), written["id"]);
            let channel = |name: &str| written[name].get("channel").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(Operation::Subscribe(subscribe)) = &read.operation {
                assert_eq!(subscribe.channel, channel("subscribe"));
                assert_eq!(subscribe.recover, written["subscribe"].get("recover").is_some_and(|flag| flag == true));
                assert_eq!(subscribe.offset, written["subscribe"].get("offset").and_then(Value::as_u64).unwrap_or(0));
            }
            if let Some(Operation::Publish(publish)) = &read.operation {
                assert_eq!(publish.channel, channel("publish"));
                // `null` is absence, as the protocol has it.
                let data = publish.data.map(|data| serde_json::from_str::<Value>(data.get()).expect("raw JSON is JSON"));
                assert_eq!(data.unwrap_or_default(), written["publish"].get("data").cloned().unwrap_or_default());
            }
            assert!(written.get(name_of(read)).is_some(), "{read:?} {written}");
        }
    });
}

#[test]
fn nothing_is_read_that_is_no_json() {
    fuzz(|random| {
        let mut bytes = (0..1 + random.below(3)).map(|_| command(random).to_string()).collect::<Vec<_>>().join("\n").into_bytes();
        random.mutate(&mut bytes);
        // The transport has checked UTF-8 before.
        let Ok(text) = String::from_utf8(bytes) else { return };
        let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        for read in Commands::read(Body::Json, text.as_bytes()) {
            let value = values.next().expect("there is a value for each command");
            match (read, value) {
                (Ok(_), Ok(value)) => assert!(value.is_object() || value.is_array(), "{text}"),
                (Ok(_), Err(error)) if error.to_string().starts_with("number out of range") => {
                    // Raw data is passed on unread: a number that no double holds is the receiver's affair.
                    return;
                }
                (Ok(_), Err(error)) => panic!("we have read what is no JSON ({error}): {text}"),
                (Err(_), _) => return,
            }
        }
    });
}
