//! JSON, appended to a buffer. Zero and empty fields are left out, but for those that the protocol always sends.

use std::io::Write;

use crate::Error;
use crate::publication::{ClientInfo, Content, LogPosition, Publication};
use crate::stream::Offset;

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
pub struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Opens an object.
    pub fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        ObjectWriter { out, is_empty: true }
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
pub(crate) fn separated<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
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
    let mut object = ObjectWriter::open(out);
    text(object.key("user"), &info.user);
    text(object.key("client"), &info.client);
    object.raw("conn_info", info.conn_info.as_deref()).raw("chan_info", info.chan_info.as_deref());
    object.close();
}

/// `Publication`. The first of a stream (offset 1) carries the epoch too.
pub fn publication(out: &mut Vec<u8>, content: &Content, position: Option<LogPosition<'_>>) {
    let mut object = ObjectWriter::open(out);
    object.raw("data", Some(&content.data));
    if let Some(info) = &content.info {
        client_info(object.key("info"), info);
    }
    if let Some(position) = position {
        object.number("offset", position.offset.0);
    }
    if !content.tags.is_empty() {
        let out = object.key("tags");
        // String to string: nothing in it can fail to be written.
        let _ = serde_json::to_writer(out, &content.tags);
    }
    object.number("expires_at", content.expires_ms);
    if let Some(position) = position {
        object.number("time", position.time_ms);
        if position.offset == Offset(1) {
            object.text("epoch", position.epoch);
        }
    }
    object.close();
}

/// The place of a publication, behind its other members.
pub fn position_members(out: &mut Vec<u8>, position: LogPosition<'_>) {
    for (name, value) in [("offset", position.offset.0), ("time", position.time_ms)] {
        out.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
    }
    if position.offset == Offset(1) {
        out.extend_from_slice(b",\"epoch\":");
        text(out, position.epoch);
    }
}

/// `[…]` of publications.
pub fn publications<'p>(out: &mut Vec<u8>, items: impl IntoIterator<Item = &'p Publication>) {
    out.push(b'[');
    separated(out, items, |out, item| out.extend_from_slice(item.json()));
    out.push(b']');
}

/// `Error`, as it stands in replies of clients.
pub fn error(out: &mut Vec<u8>, error: &Error) {
    let mut object = ObjectWriter::open(out);
    object.number("code", error.code.into()).text("message", error.message).flag("temporary", error.temporary);
    object.close();
}

/// `PresenceStatsResult`.
pub fn presence_stats(out: &mut Vec<u8>, clients: u64, users: u64) {
    let mut object = ObjectWriter::open(out);
    number(object.key("num_clients"), clients);
    number(object.key("num_users"), users);
    object.close();
}

/// `HistoryResult`.
pub fn history<'p>(out: &mut Vec<u8>, items: impl IntoIterator<Item = &'p Publication>, epoch: &str, offset: u64) {
    let mut object = ObjectWriter::open(out);
    publications(object.key("publications"), items);
    text(object.key("epoch"), epoch);
    number(object.key("offset"), offset);
    object.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_say_both_numbers_even_if_they_are_zero() {
        for (clients, users, json) in
            [(0, 0, r#"{"num_clients":0,"num_users":0}"#), (3, 2, r#"{"num_clients":3,"num_users":2}"#)]
        {
            let mut out = Vec::new();
            presence_stats(&mut out, clients, users);
            assert_eq!(out, json.as_bytes());
        }
    }
}
