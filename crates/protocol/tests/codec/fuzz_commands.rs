//! Passes commands (valid, written in other ways, and mutated) through this crate's decoder and through plain
//! serde_json.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use touchline_protocol::command::{Command, CommandKind, Commands};
use touchline_protocol::message::Encoding;
use touchline_protocol::stream::Offset;

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
        match random.below(12) {
            0 => set("channel", random.text().into()),
            1 => set("token", random.text().into()),
            2 => set("data", data(random, 3)),
            3 => set("offset", (random.next() >> 11).into()),
            4 => set("recover", random.one_in(2).into()),
            5 => set("method", random.text().into()),
            6 => set(&format!("unknown_{}", random.below(9)), data(random, 2)),
            7 => set("since", json!({"offset": random.below(100), "epoch": random.text()})),
            8 => set("subs", json!({(random.text()): {"offset": random.below(100), "recover": random.one_in(2)}})),
            9 => set("headers", json!({(random.text()): random.text()})),
            10 => set("flag", (random.below(5) as i64 - 2).into()),
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

/// The name of the method that a command was read as.
fn name_of(command: &Command<'_>) -> &'static str {
    match &command.operation {
        None => "unheard_of",
        Some(CommandKind::Connect(_)) => "connect",
        Some(CommandKind::Send(_)) => "send",
        Some(CommandKind::Subscribe(_)) => "subscribe",
        Some(CommandKind::Unsubscribe(_)) => "unsubscribe",
        Some(CommandKind::Publish(_)) => "publish",
        Some(CommandKind::Presence(_)) => "presence",
        Some(CommandKind::PresenceStats(_)) => "presence_stats",
        Some(CommandKind::History(_)) => "history",
        Some(CommandKind::Rpc(_)) => "rpc",
        Some(CommandKind::Refresh(_)) => "refresh",
        Some(CommandKind::SubRefresh(_)) => "sub_refresh",
    }
}

#[test]
fn good_commands_are_read_as_they_were_written() {
    fuzz(|random| {
        let written: Vec<Value> = (0..1 + random.below(4)).map(|_| command(random)).collect();
        let text: String = written.iter().map(|command| format!("{command}\n")).collect();
        let read: Vec<Command<'_>> =
            Commands::read(Encoding::Json, text.as_bytes()).map(|command| command.expect("it is good")).collect();
        assert_eq!(read.len(), written.len());
        for (read, written) in read.iter().zip(&written) {
            assert_eq!(u64::from(read.id), written["id"]);
            let channel =
                |name: &str| written[name].get("channel").and_then(Value::as_str).unwrap_or_default().to_owned();
            if let Some(CommandKind::Subscribe(subscribe)) = &read.operation {
                assert_eq!(subscribe.channel, channel("subscribe"));
                assert_eq!(subscribe.recover, written["subscribe"].get("recover").is_some_and(|flag| flag == true));
                assert_eq!(
                    subscribe.offset,
                    Offset(written["subscribe"].get("offset").and_then(Value::as_u64).unwrap_or(0))
                );
            }
            if let Some(CommandKind::Publish(publish)) = &read.operation {
                assert_eq!(publish.channel, channel("publish"));
                // `null` means absence in the protocol.
                let data =
                    publish.data.map(|data| serde_json::from_str::<Value>(data.text()).expect("raw JSON is JSON"));
                assert_eq!(data.unwrap_or_default(), written["publish"].get("data").cloned().unwrap_or_default());
            }
            assert!(written.get(name_of(read)).is_some(), "{read:?} {written}");
        }
    });
}

/// White space that JSON allows between its parts.
fn space(random: &mut Random) -> String {
    (0..random.below(3)).map(|_| [' ', '\t', '\r', '\n'][random.below(4)]).collect()
}

/// A string in which any character may be written as an escape (RFC 8259 section 7).
fn string(random: &mut Random, text: &str) -> String {
    let mut written = String::from('"');
    for character in text.chars() {
        if random.one_in(3) || character < ' ' || matches!(character, '"' | '\\') {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                written += &if random.one_in(2) { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") };
            }
        } else {
            written.push(character);
        }
    }
    written + "\""
}

/// An object with its members in any order. Unless it is a map, unknown or absent members are among them. `data` is
/// passed on unchanged.
fn object(random: &mut Random, members: &serde_json::Map<String, Value>, is_map: bool) -> String {
    const ABSENT: &[&str] =
        &["token", "channel", "recover", "offset", "epoch", "since", "tf", "limit", "name", "delta", "positioned"];
    let mut written: Vec<String> = Vec::new();
    for (name, value) in members {
        let name_written = string(random, name);
        let value = match value {
            kept if name == "data" => kept.to_string(),
            Value::Object(members) => object(random, members, matches!(name.as_str(), "subs" | "headers")),
            Value::String(text) => string(random, text),
            plain => plain.to_string(),
        };
        written.push(format!("{name_written}{}:{}{value}", space(random), space(random)));
    }
    for _ in 0..if is_map { 0 } else { random.below(3) } {
        let value = data(random, 2);
        written.push(format!("\"new\":{}{value}", space(random)));
    }
    let absent = ABSENT[random.below(ABSENT.len())];
    if !is_map && random.one_in(2) && !members.contains_key(absent) {
        written.push(format!("\"{absent}\":null"));
    }
    for last in (1..written.len()).rev() {
        written.swap(last, random.below(last + 1));
    }
    let mut text = String::from("{");
    for (index, member) in written.iter().enumerate() {
        text += if index > 0 { "," } else { "" };
        text += &format!("{}{member}{}", space(random), space(random));
    }
    text + "}"
}

#[test]
fn a_command_that_is_written_in_another_way_is_the_same_command() {
    fuzz(|random| {
        let command = command(random);
        let plain = command.to_string();
        let other = object(random, command.as_object().expect("it is an object"), false);
        let read = |text: &str| {
            let all: Result<Vec<_>, _> = Commands::read(Encoding::Json, text.as_bytes()).collect();
            format!("{:?}", all.unwrap_or_else(|error| panic!("{error:?}: {text}")))
        };
        assert_eq!(read(&plain), read(&other), "{plain}\n{other}");
    });
}

/// The members of an object as they are written, including members that occur twice.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// The kind of value that a member of a command or of a request may have. `null` always means absence.
#[derive(Clone, Copy)]
enum Kind {
    Anything,
    Text,
    Flag,
    Unsigned(u64),
    Signed(i64),
    Object(&'static [(&'static str, Kind)]),
    /// An object whose members are all objects with these members.
    Map(&'static [(&'static str, Kind)]),
    /// An object whose members are all text.
    Texts,
}

const POSITION: &[(&str, Kind)] = &[("offset", Kind::Unsigned(u64::MAX)), ("epoch", Kind::Text)];
const CHANNEL: &[(&str, Kind)] = &[("channel", Kind::Text)];
const SUBSCRIBE: &[(&str, Kind)] = &[
    ("channel", Kind::Text),
    ("token", Kind::Text),
    ("data", Kind::Anything),
    ("recover", Kind::Flag),
    ("epoch", Kind::Text),
    ("offset", Kind::Unsigned(u64::MAX)),
    ("positioned", Kind::Flag),
    ("recoverable", Kind::Flag),
    ("join_leave", Kind::Flag),
    ("delta", Kind::Text),
    ("flag", Kind::Signed(i64::MAX)),
    ("type", Kind::Signed(i32::MAX as i64)),
];
const COMMAND: &[(&str, Kind)] = &[
    ("id", Kind::Unsigned(u32::MAX as u64)),
    (
        "connect",
        Kind::Object(&[
            ("token", Kind::Text),
            ("data", Kind::Anything),
            ("subs", Kind::Map(SUBSCRIBE)),
            ("headers", Kind::Texts),
            ("name", Kind::Text),
            ("version", Kind::Text),
        ]),
    ),
    ("send", Kind::Object(&[("data", Kind::Anything)])),
    ("subscribe", Kind::Object(SUBSCRIBE)),
    ("unsubscribe", Kind::Object(CHANNEL)),
    (
        "publish",
        Kind::Object(&[
            ("channel", Kind::Text),
            ("data", Kind::Anything),
            ("type", Kind::Signed(i32::MAX as i64)),
            ("key", Kind::Text),
        ]),
    ),
    ("presence", Kind::Object(CHANNEL)),
    ("presence_stats", Kind::Object(CHANNEL)),
    (
        "history",
        Kind::Object(&[
            ("channel", Kind::Text),
            ("limit", Kind::Signed(i32::MAX as i64)),
            ("since", Kind::Object(POSITION)),
            ("reverse", Kind::Flag),
        ]),
    ),
    ("rpc", Kind::Object(&[("data", Kind::Anything), ("method", Kind::Text)])),
    ("refresh", Kind::Object(&[("token", Kind::Text)])),
    ("sub_refresh", Kind::Object(&[("channel", Kind::Text), ("token", Kind::Text)])),
];

/// Whether JSON is an object with known members of these kinds, or with unknown members. It is stricter than JSON: a
/// known member occurs only once. `None` = undecided, because serde reads an array as an object's members in their
/// order.
fn has_members(text: &str, known: &[(&str, Kind)]) -> Option<bool> {
    let Ok(Members(members)) = serde_json::from_str(text) else { return Some(false) };
    let count = |name: &str| members.iter().filter(|(other, _)| other == name).count();
    let mut is_good = known.iter().all(|(name, _)| count(name) <= 1);
    for (name, value) in &members {
        let kind = known.iter().find(|(known, _)| known == name).map_or(Kind::Anything, |(_, kind)| *kind);
        is_good &= is_of(value.get(), kind)?;
    }
    Some(is_good)
}

fn is_of(text: &str, kind: Kind) -> Option<bool> {
    if text == "null" {
        return Some(true);
    }
    // This is stricter than JSON: an integer has neither a fraction nor an exponent, and zero has no sign.
    let integer = || text.parse::<i128>().ok().filter(|_| text != "-0");
    Some(match kind {
        Kind::Anything => true,
        Kind::Text => serde_json::from_str::<String>(text).is_ok(),
        Kind::Flag => matches!(text, "true" | "false"),
        Kind::Unsigned(most) => integer().is_some_and(|number| (0..=i128::from(most)).contains(&number)),
        Kind::Signed(most) => {
            integer().is_some_and(|number| (-i128::from(most) - 1..=i128::from(most)).contains(&number))
        }
        Kind::Object(_) if text.starts_with('[') => return None,
        Kind::Object(known) => return has_members(text, known),
        Kind::Texts => serde_json::from_str::<BTreeMap<String, String>>(text).is_ok(),
        Kind::Map(known) => {
            let Ok(Members(subs)) = serde_json::from_str(text) else { return Some(false) };
            let mut is_good = true;
            for (_, value) in &subs {
                is_good &= is_of(value.get(), Kind::Object(known))? && value.get() != "null";
            }
            is_good
        }
    })
}

#[test]
fn exactly_that_is_read_which_is_json_and_has_the_members_of_a_command() {
    fuzz(|random| {
        let mut bytes =
            (0..1 + random.below(3)).map(|_| command(random).to_string()).collect::<Vec<_>>().join("\n").into_bytes();
        random.mutate(&mut bytes);
        // The transport has checked UTF-8 before.
        let Ok(text) = String::from_utf8(bytes) else { return };
        let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Box<RawValue>>();
        for read in Commands::read(Encoding::Json, text.as_bytes()) {
            match (read.is_ok(), values.next().expect("there is a value for each command")) {
                (is_read, Ok(value)) => {
                    let is_command = has_members(value.get(), COMMAND);
                    assert!(
                        is_command.is_none_or(|is_command| is_command == is_read),
                        "read: {is_read}: {value} in {text}"
                    );
                    if !is_read {
                        return;
                    }
                }
                (true, Err(error)) => panic!("we have read what is no JSON ({error}): {text}"),
                (false, Err(_)) => return,
            }
        }
    });
}
