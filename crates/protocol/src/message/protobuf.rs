//! Replies and pushes as Protobuf (`client.proto` of the Centrifugal protocol, version 2). Each is preceded by its
//! length.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::types::{ConnectResult, Push, Reply, SubscribeResult};
use crate::code::Error;
use crate::notation::bytes_of;
use crate::protobuf::{Fields, delimited};
use crate::publication::transcode::{Info, PUSH};

pub(super) fn reply(out: &mut Vec<u8>, command: u32, reply: &Reply<'_>) {
    delimited(out, |out| {
        let mut fields = Fields(out);
        fields.number(1, command.into());
        match reply {
            Reply::Error(why) => fields.message(2, |fields| error(fields, why)),
            Reply::Refusal { code, message, temporary } => fields.message(2, |fields| {
                fields.number(1, (*code).into()).text(2, message).flag(3, *temporary);
            }),
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
            Reply::Rpc(data) => fields.message(13, |fields| {
                fields.bytes(1, &bytes_of(data));
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
                    fields.bytes(1, &bytes_of(data));
                }),
                Push::Subscribe(result) => fields.message(9, |fields| {
                    fields.flag(1, result.recoverable).text(4, result.epoch).number(5, result.offset);
                    fields.flag(6, result.positioned).bytes(7, &bytes_of(result.data.unwrap_or_default()));
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
    fields.bytes(5, &bytes_of(result.data.unwrap_or_default()));
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
    fields.bytes(11, &bytes_of(result.data.unwrap_or_default())).flag(12, result.was_recovering).flag(13, result.delta);
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
