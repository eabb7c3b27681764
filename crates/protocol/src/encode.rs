//! Replies and pushes in their JSON form, appended to a buffer. Zero and empty fields are left out, but for those that the protocol always sends.

use std::io::Write;

use crate::publication::{ClientInfo, Content, Place, Publication};
use crate::{Error, Unsubscribe};

/// A JSON string.
pub fn text(out: &mut Vec<u8>, value: &str) {
    // Writing to a Vec can't fail, and a str is always a JSON string.
    let _ = serde_json::to_writer(out, value);
}

/// A decimal number.
pub fn number(out: &mut Vec<u8>, value: u64) {
    let _ = write!(out, "{value}");
}

/// Writes the members of one JSON object, with commas where they belong.
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    /// Opens an object.
    pub fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Object { out, is_empty: true }
    }

    /// Starts a member and gives the buffer for its value.
    pub fn key(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// A string member, unless it is empty.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        if !value.is_empty() {
            text(self.key(name), value);
        }
        self
    }

    /// A number, unless it is zero.
    pub fn number(&mut self, name: &str, value: u64) -> &mut Self {
        if value != 0 {
            number(self.key(name), value);
        }
        self
    }

    /// `true`, or nothing.
    pub fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        if value {
            self.key(name).extend_from_slice(b"true");
        }
        self
    }

    /// A JSON value, if there is one.
    pub fn raw(&mut self, name: &str, value: Option<&[u8]>) -> &mut Self {
        if let Some(value) = value {
            self.key(name).extend_from_slice(value);
        }
        self
    }

    /// Closes the object.
    pub fn close(self) {
        self.out.push(b'}');
    }
}

/// Values with commas between them.
fn separated<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Vec<u8>, T)) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
}

/// Writes an array, whatever writes each item.
pub fn list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, write: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    separated(out, items, write);
    out.push(b']');
}

/// `ClientInfo`; `user` and `client` are always there.
pub fn client_info(out: &mut Vec<u8>, info: &ClientInfo) {
    let mut object = Object::open(out);
    text(object.key("user"), &info.user);
    text(object.key("client"), &info.client);
    object.raw("conn_info", info.conn_info.as_deref()).raw("chan_info", info.chan_info.as_deref());
    object.close();
}

/// `Publication`. The first of a stream (offset 1) carries the epoch too.
pub fn publication(out: &mut Vec<u8>, content: &Content, place: Option<Place<'_>>) {
    let mut object = Object::open(out);
    object.raw("data", Some(&content.data));
    if let Some(info) = &content.info {
        client_info(object.key("info"), info);
    }
    if let Some(place) = place {
        object.number("offset", place.offset);
    }
    if !content.tags.is_empty() {
        let out = object.key("tags");
        // String to string: nothing in it can fail to be written.
        let _ = serde_json::to_writer(out, &content.tags);
    }
    if let Some(place) = place {
        object.number("time", place.time_ms);
        if place.offset == 1 {
            object.text("epoch", place.epoch);
        }
    }
    object.close();
}

/// The place of a publication, behind its other members.
pub fn place(out: &mut Vec<u8>, place: Place<'_>) {
    for (name, value) in [("offset", place.offset), ("time", place.time_ms)] {
        out.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
    }
    if place.offset == 1 {
        out.extend_from_slice(b",\"epoch\":");
        text(out, place.epoch);
    }
}

/// `[…]` of publications.
pub fn publications<'p>(out: &mut Vec<u8>, items: impl IntoIterator<Item = &'p Publication>) {
    out.push(b'[');
    separated(out, items, |out, item| out.extend_from_slice(item.json()));
    out.push(b']');
}

/// A reply whose result the closure writes, always present: `{"id":2,"publish":{}}`.
pub fn reply(out: &mut Vec<u8>, id: u32, method: &str, write: impl FnOnce(&mut Vec<u8>)) {
    let mut object = Object::open(out);
    object.number("id", id.into());
    write(object.key(method));
    object.close();
}

/// A reply with an empty result.
pub fn reply_empty(out: &mut Vec<u8>, id: u32, method: &str) {
    reply(out, id, method, |out| out.extend_from_slice(b"{}"));
}

/// `Error`, as it stands in replies of clients.
pub fn error(out: &mut Vec<u8>, error: &Error) {
    let mut object = Object::open(out);
    object.number("code", error.code.into()).text("message", error.message).flag("temporary", error.temporary);
    object.close();
}

/// A push of `channel` (empty for the connection's own) whose body the closure writes.
pub fn push(out: &mut Vec<u8>, channel: &str, kind: &str, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"{\"push\":");
    let mut object = Object::open(out);
    object.text("channel", channel);
    write(object.key(kind));
    object.close();
    out.push(b'}');
}

/// A join or leave push.
pub fn push_member(out: &mut Vec<u8>, channel: &str, kind: &str, info: &ClientInfo) {
    push(out, channel, kind, |out| {
        out.extend_from_slice(b"{\"info\":");
        client_info(out, info);
        out.push(b'}');
    });
}

/// A message that is for this client alone: `data` is JSON.
pub fn push_message(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(b"{\"push\":{\"message\":{\"data\":");
    out.extend_from_slice(data);
    out.extend_from_slice(b"}}}");
}

/// An unsubscribe push.
pub fn push_unsubscribe(out: &mut Vec<u8>, channel: &str, why: Unsubscribe) {
    push(out, channel, "unsubscribe", |out| {
        let mut object = Object::open(out);
        object.number("code", why.code.into()).text("reason", why.reason);
        object.close();
    });
}

/// A refresh push: the connection's time is over (`ttl_s` 0), or lasts so many seconds more.
pub fn push_refresh(out: &mut Vec<u8>, ttl_s: u64) {
    push(out, "", "refresh", |out| {
        let mut object = Object::open(out);
        object.flag("expires", true).number("ttl", ttl_s);
        object.close();
    });
}

/// What a connect reply says.
#[derive(Debug, Default)]
pub struct ConnectResult<'a> {
    /// The client id.
    pub client: &'a str,
    /// The server's version.
    pub version: &'a str,
    /// Seconds until the client must show a new token; none = never.
    pub ttl_s: Option<u64>,
    /// Server-side subscriptions: channel and `SubscribeResult` as JSON.
    pub subs: &'a [(String, Vec<u8>)],
    /// Ping interval in seconds.
    pub ping_s: u64,
    /// The server's time, Unix milliseconds; 0 = untold.
    pub time_ms: u64,
}

/// A connect reply.
pub fn reply_connect(out: &mut Vec<u8>, id: u32, result: &ConnectResult<'_>) {
    reply(out, id, "connect", |out| {
        let mut object = Object::open(out);
        object.text("client", result.client).text("version", result.version);
        object.flag("expires", result.ttl_s.is_some()).number("ttl", result.ttl_s.unwrap_or(0));
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
        object.number("ping", result.ping_s).flag("pong", result.ping_s > 0).number("time", result.time_ms);
        object.close();
    });
}

/// What a subscribe reply says.
#[derive(Debug, Default)]
pub struct SubscribeResult<'a> {
    /// Seconds until the client must show a new token; none = never.
    pub ttl_s: Option<u64>,
    /// The subscription can be recovered.
    pub recoverable: bool,
    /// The subscription has a position.
    pub positioned: bool,
    /// Epoch of the position.
    pub epoch: &'a str,
    /// Offset of the position.
    pub offset: u64,
    /// Everything missed is in `publications`.
    pub recovered: bool,
    /// The client had asked to recover.
    pub was_recovering: bool,
    /// JSON for the client.
    pub data: Option<&'a [u8]>,
}

/// `SubscribeResult`, with the publications it missed.
pub fn subscribe_result<'p>(out: &mut Vec<u8>, result: &SubscribeResult<'_>, missed: impl ExactSizeIterator<Item = &'p Publication>) {
    let mut object = Object::open(out);
    object.flag("expires", result.ttl_s.is_some()).number("ttl", result.ttl_s.unwrap_or(0));
    object.flag("recoverable", result.recoverable).text("epoch", result.epoch);
    if missed.len() > 0 {
        publications(object.key("publications"), missed);
    }
    object.flag("recovered", result.recovered).number("offset", result.offset);
    object.flag("positioned", result.positioned).raw("data", result.data);
    object.flag("was_recovering", result.was_recovering);
    object.close();
}

/// `SubscribePush`: the server has subscribed the client.
pub fn push_subscribe(out: &mut Vec<u8>, channel: &str, result: &SubscribeResult<'_>) {
    push(out, channel, "subscribe", |out| {
        let mut object = Object::open(out);
        object.flag("recoverable", result.recoverable).text("epoch", result.epoch).number("offset", result.offset);
        object.flag("positioned", result.positioned).raw("data", result.data);
        object.close();
    });
}

/// `PresenceResult`.
pub fn presence<'i>(out: &mut Vec<u8>, members: impl IntoIterator<Item = &'i ClientInfo>) {
    out.extend_from_slice(b"{\"presence\":{");
    separated(out, members, |out, info| {
        text(out, &info.client);
        out.push(b':');
        client_info(out, info);
    });
    out.extend_from_slice(b"}}");
}

/// `PresenceStatsResult`.
pub fn presence_stats(out: &mut Vec<u8>, clients: u64, users: u64) {
    let mut object = Object::open(out);
    number(object.key("num_clients"), clients);
    number(object.key("num_users"), users);
    object.close();
}

/// `HistoryResult`.
pub fn history<'p>(out: &mut Vec<u8>, items: impl IntoIterator<Item = &'p Publication>, epoch: &str, offset: u64) {
    let mut object = Object::open(out);
    publications(object.key("publications"), items);
    text(object.key("epoch"), epoch);
    number(object.key("offset"), offset);
    object.close();
}

/// `RefreshResult`.
pub fn reply_refresh(out: &mut Vec<u8>, id: u32, client: &str, version: &str, ttl_s: Option<u64>) {
    reply(out, id, "refresh", |out| {
        let mut object = Object::open(out);
        object.text("client", client).text("version", version);
        object.flag("expires", ttl_s.is_some()).number("ttl", ttl_s.unwrap_or(0));
        object.close();
    });
}

/// `SubRefreshResult`.
pub fn reply_sub_refresh(out: &mut Vec<u8>, id: u32, ttl_s: Option<u64>) {
    reply(out, id, "sub_refresh", |out| {
        let mut object = Object::open(out);
        object.flag("expires", ttl_s.is_some()).number("ttl", ttl_s.unwrap_or(0));
        object.close();
    });
}
