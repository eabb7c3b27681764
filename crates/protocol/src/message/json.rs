//! Replies and pushes as JSON. Zero and empty fields are omitted, except those that the protocol always sends. A
//! method's result is always present.

use super::types::{ConnectResult, Push, Reply, SubscribeResult};
use crate::encode::{self, ObjectWriter, error, separated, text};

pub(super) fn reply(out: &mut Vec<u8>, command: u32, reply: &Reply<'_>) {
    let mut object = ObjectWriter::open(out);
    object.number("id", command.into());
    match reply {
        Reply::Error(why) => error(object.key("error"), why),
        Reply::Refusal { code, message, temporary } => {
            let mut why = ObjectWriter::open(object.key("error"));
            why.number("code", (*code).into()).text("message", message).flag("temporary", *temporary);
            why.close();
        }
        Reply::Connect(result) => connect_result(object.key("connect"), result),
        Reply::Subscribe(result) => subscribe_result(object.key("subscribe"), result),
        Reply::Unsubscribe => object.key("unsubscribe").extend_from_slice(b"{}"),
        Reply::Publish => object.key("publish").extend_from_slice(b"{}"),
        Reply::Presence(json) => object.key("presence").extend_from_slice(json),
        Reply::PresenceStats(json) => object.key("presence_stats").extend_from_slice(json),
        Reply::History { publications, epoch, offset } => {
            encode::history(
                object.key("history"),
                publications.iter().map(|publication| &**publication),
                epoch,
                *offset,
            );
        }
        Reply::Rpc(json) => {
            let mut result = ObjectWriter::open(object.key("rpc"));
            result.raw("data", (!json.is_empty()).then_some(*json));
            result.close();
        }
        Reply::Refresh { client, version, ttl_s } => {
            let mut result = ObjectWriter::open(object.key("refresh"));
            result.text("client", client).text("version", version);
            result.flag("expires", ttl_s.is_some()).number("ttl", ttl_s.unwrap_or(0));
            result.close();
        }
        Reply::SubRefresh { ttl_s } => {
            let mut result = ObjectWriter::open(object.key("sub_refresh"));
            result.flag("expires", ttl_s.is_some()).number("ttl", ttl_s.unwrap_or(0));
            result.close();
        }
    }
    object.close();
}

pub(super) fn push(out: &mut Vec<u8>, channel: &str, push: &Push<'_>) {
    out.extend_from_slice(b"{\"push\":");
    bare_push(out, channel, push);
    out.push(b'}');
}

pub(super) fn bare_push(out: &mut Vec<u8>, channel: &str, push: &Push<'_>) {
    let mut object = ObjectWriter::open(out);
    object.text("channel", channel);
    match push {
        Push::Publication(publication) => object.key("pub").extend_from_slice(publication.json()),
        Push::Unsubscribe(why) => {
            let mut body = ObjectWriter::open(object.key("unsubscribe"));
            body.number("code", why.code.into()).text("reason", why.reason);
            body.close();
        }
        Push::Message(data) => {
            let mut body = ObjectWriter::open(object.key("message"));
            body.raw("data", Some(data));
            body.close();
        }
        Push::Subscribe(result) => {
            let mut body = ObjectWriter::open(object.key("subscribe"));
            body.flag("recoverable", result.recoverable).text("epoch", result.epoch).number("offset", result.offset);
            body.flag("positioned", result.positioned).raw("data", result.data);
            body.close();
        }
        Push::Disconnect(why) => {
            let mut body = ObjectWriter::open(object.key("disconnect"));
            body.number("code", why.code.into()).text("reason", &why.reason).flag("reconnect", why.is_reconnect());
            body.close();
        }
        Push::Refresh { ttl_s } => {
            let mut body = ObjectWriter::open(object.key("refresh"));
            body.flag("expires", true).number("ttl", *ttl_s);
            body.close();
        }
    }
    object.close();
}

/// Writes the first push to a client that only listens.
pub(super) fn connect_push(out: &mut Vec<u8>, result: &ConnectResult<'_>) {
    let mut object = ObjectWriter::open(out);
    connect_result(object.key("connect"), result);
    object.close();
}

fn connect_result(out: &mut Vec<u8>, result: &ConnectResult<'_>) {
    let mut object = ObjectWriter::open(out);
    object.text("client", result.client).text("version", result.version);
    object.flag("expires", result.ttl_s.is_some()).number("ttl", result.ttl_s.unwrap_or(0));
    object.raw("data", result.data);
    if !result.subs.is_empty() {
        let out = object.key("subs");
        out.push(b'{');
        separated(out, result.subs, |out, (channel, subscribed)| {
            text(out, channel);
            out.push(b':');
            out.extend_from_slice(subscribed);
        });
        out.push(b'}');
    }
    object.number("ping", result.ping_s).flag("pong", result.pong);
    object.text("session", result.session).text("node", result.node).number("time", result.time_ms);
    object.close();
}

pub(super) fn subscribe_result(out: &mut Vec<u8>, result: &SubscribeResult<'_>) {
    let mut object = ObjectWriter::open(out);
    object.flag("expires", result.ttl_s.is_some()).number("ttl", result.ttl_s.unwrap_or(0));
    object.flag("recoverable", result.recoverable).text("epoch", result.epoch);
    if !result.missed.is_empty() {
        encode::list(object.key("publications"), result.missed.iter(), |out, item| item.write_json(out));
    }
    object.flag("recovered", result.recovered).number("offset", result.offset);
    object.flag("positioned", result.positioned).raw("data", result.data);
    object.flag("was_recovering", result.was_recovering).flag("delta", result.delta);
    object.close();
}
