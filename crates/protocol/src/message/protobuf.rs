//! Replies and pushes as Protobuf (`client.proto` of the Centrifugal protocol, version 2), each with its length before
//! it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ConnectResult, Push, Reply, SubscribeResult};
use crate::Error;
use crate::protobuf::{Fields, delimited};

/// The field of a reply that a push stands in.
const PUSH: u32 = 4;

pub(super) fn reply(out: &mut Vec<u8>, command: u32, reply: &Reply<'_>) {
    delimited(out, |out| {
        let mut fields = Fields(out);
        fields.number(1, command.into());
        match reply {
            Reply::Error(why) => fields.message(2, |fields| error(fields, why)),
            Reply::Connect(result) => fields.message(5, |fields| connect_result(fields, result)),
            Reply::Subscribe(result) => fields.message(6, |fields| subscribe_result(fields, result)),
            Reply::Unsubscribe => fields.whole(7, &[]),
            Reply::Publish => fields.whole(8, &[]),
            Reply::Presence(json) => fields.message(9, |fields| presence(fields, json)),
            Reply::PresenceStats(json) => fields.message(10, |fields| presence_stats(fields, json)),
            Reply::History { publications, epoch, offset } => fields.message(11, |fields| {
                for publication in *publications {
                    fields.whole(1, &publication.protobuf());
                }
                fields.text(2, epoch).number(3, *offset);
            }),
            Reply::Rpc(json) => fields.message(13, |fields| {
                fields.bytes(1, json);
            }),
            Reply::Refresh { client, version, ttl_s } => fields.message(14, |fields| {
                fields.text(1, client).text(2, version);
                fields.flag(3, ttl_s.is_some()).number(4, ttl_s.unwrap_or(0));
            }),
            Reply::SubRefresh { ttl_s } => fields.message(15, |fields| {
                fields.flag(1, ttl_s.is_some()).number(2, ttl_s.unwrap_or(0));
            }),
        };
    });
}

pub(super) fn push(out: &mut Vec<u8>, channel: &str, push: &Push<'_>) {
    delimited(out, |out| {
        Fields(out).message(PUSH, |fields| {
            fields.text(2, channel);
            match push {
                Push::Publication(publication) => fields.whole(4, &publication.protobuf()),
                Push::Unsubscribe(why) => fields.message(7, |fields| {
                    fields.number(2, why.code.into()).text(3, why.reason);
                }),
                Push::Message(data) => fields.message(8, |fields| {
                    fields.bytes(1, data);
                }),
                Push::Subscribe(result) => fields.message(9, |fields| {
                    fields.flag(1, result.recoverable).text(4, result.epoch).number(5, result.offset);
                    fields.flag(6, result.positioned).bytes(7, result.data.unwrap_or_default());
                }),
                Push::Disconnect(why) => fields.message(11, |fields| {
                    fields.number(1, why.code.into()).text(2, &why.reason).flag(3, why.is_reconnect());
                }),
                Push::Refresh { ttl_s } => fields.message(12, |fields| {
                    fields.flag(1, true).number(2, *ttl_s);
                }),
            };
        });
    });
}

fn error(fields: &mut Fields<'_>, error: &Error) {
    fields.number(1, error.code.into()).text(2, error.message).flag(3, error.temporary);
}

fn connect_result(fields: &mut Fields<'_>, result: &ConnectResult<'_>) {
    fields.text(1, result.client).text(2, result.version);
    fields.flag(3, result.ttl_s.is_some()).number(4, result.ttl_s.unwrap_or(0));
    for (channel, subscribed) in result.subs {
        fields.message(6, |entry| {
            entry.text(1, channel).whole(2, subscribed);
        });
    }
    fields.number(7, result.ping_s).flag(8, result.pong);
    fields.text(9, result.session).text(10, result.node).number(11, result.time_ms);
}

pub(super) fn subscribe_result(fields: &mut Fields<'_>, result: &SubscribeResult<'_>) {
    fields.flag(1, result.ttl_s.is_some()).number(2, result.ttl_s.unwrap_or(0));
    fields.flag(3, result.recoverable).text(6, result.epoch);
    for item in result.missed.iter() {
        fields.whole(7, &item.protobuf());
    }
    fields.flag(8, result.recovered).number(9, result.offset).flag(10, result.positioned);
    fields.bytes(11, result.data.unwrap_or_default()).flag(12, result.was_recovering).flag(13, result.delta);
}

/// `ClientInfo`, as we write it in JSON.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Info<'a> {
    #[serde(borrow)]
    user: Cow<'a, str>,
    #[serde(borrow)]
    client: Cow<'a, str>,
    #[serde(borrow)]
    conn_info: Option<&'a RawValue>,
    #[serde(borrow)]
    chan_info: Option<&'a RawValue>,
}

impl Info<'_> {
    fn write(&self, fields: &mut Fields<'_>) {
        let bytes = |json: Option<&RawValue>| json.map_or(&b""[..], |json| json.get().as_bytes()).to_vec();
        fields
            .text(1, &self.user)
            .text(2, &self.client)
            .bytes(3, &bytes(self.conn_info))
            .bytes(4, &bytes(self.chan_info));
    }
}

/// A publication, as we write it in JSON.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Item<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    info: Option<Info<'a>>,
    offset: u64,
    #[serde(borrow)]
    tags: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    delta: bool,
    time: u64,
    #[serde(borrow)]
    epoch: Cow<'a, str>,
}

impl Item<'_> {
    /// `is_text`: the payload is not a JSON value, but the text in that value.
    fn write(&self, fields: &mut Fields<'_>, is_text: bool) {
        let data = self.data.map_or("", |data| data.get());
        match is_text.then(|| serde_json::from_str::<Cow<'_, str>>(data)) {
            Some(Ok(text)) => fields.text(4, &text),
            _ => fields.text(4, data),
        };
        if let Some(info) = &self.info {
            fields.message(5, |fields| info.write(fields));
        }
        fields.number(6, self.offset);
        for (key, value) in &self.tags {
            fields.message(7, |entry| {
                entry.text(1, key).text(2, value);
            });
        }
        fields.flag(8, self.delta).number(9, self.time).text(14, &self.epoch);
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectMember<'a> {
    #[serde(borrow)]
    info: Info<'a>,
}

/// A push that many get, as we write it in JSON.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SharedInfo<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(borrow)]
    r#pub: Option<Item<'a>>,
    #[serde(borrow)]
    join: Option<ObjectMember<'a>>,
    #[serde(borrow)]
    leave: Option<ObjectMember<'a>>,
    #[serde(borrow)]
    message: Option<MessageObject<'a>>,
}

/// A message for one client that others are given too.
#[derive(Deserialize)]
struct MessageObject<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
}

/// A publication's object from our own JSON.
pub(crate) fn publication_of_json(json: &[u8], is_text: bool) -> Vec<u8> {
    let item: Item<'_> = serde_json::from_slice(json).unwrap_or_default();
    let mut out = Vec::with_capacity(json.len());
    item.write(&mut Fields(&mut out), is_text);
    out
}

/// A whole message from a push of our own in JSON, without anything around it.
pub(crate) fn push_of_json(json: &[u8], is_text: bool) -> Vec<u8> {
    let shared: SharedInfo<'_> = serde_json::from_slice(json).unwrap_or_default();
    let mut out = Vec::with_capacity(json.len());
    delimited(&mut out, |out| {
        Fields(out).message(PUSH, |fields| {
            fields.text(2, &shared.channel);
            if let Some(item) = &shared.r#pub {
                fields.message(4, |fields| item.write(fields, is_text));
            }
            for (tag, member) in [(5, &shared.join), (6, &shared.leave)] {
                if let Some(member) = member {
                    fields.message(tag, |fields| {
                        fields.message(1, |fields| member.info.write(fields));
                    });
                }
            }
            if let Some(message) = &shared.message {
                fields.message(8, |fields| {
                    fields.bytes(1, message.data.get().as_bytes());
                });
            }
        });
    });
    out
}

fn presence(fields: &mut Fields<'_>, json: &[u8]) {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Presence<'a> {
        #[serde(borrow)]
        presence: BTreeMap<Cow<'a, str>, Info<'a>>,
    }
    let presence: Presence<'_> = serde_json::from_slice(json).unwrap_or_default();
    for (client, info) in &presence.presence {
        fields.message(1, |entry| {
            entry.text(1, client).message(2, |fields| info.write(fields));
        });
    }
}

fn presence_stats(fields: &mut Fields<'_>, json: &[u8]) {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Stats {
        num_clients: u64,
        num_users: u64,
    }
    let stats: Stats = serde_json::from_slice(json).unwrap_or_default();
    fields.number(1, stats.num_clients).number(2, stats.num_users);
}
