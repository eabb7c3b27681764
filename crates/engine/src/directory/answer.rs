//! The JSON of the directory's replies and messages.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Error;
use touchline_protocol::encode::{self, ObjectWriter};
use touchline_protocol::publication::EncodedPush;
use touchline_registry::{Entry, EntryChange, OwnerId, Reason, RegistryEvent, Replica};

use super::calls::{CallError, CallReply};
use super::client_id::client_text;
use super::request::Requester;

pub(super) fn empty() -> Vec<u8> {
    b"{}".to_vec()
}

fn meta(entry: &Entry) -> Option<&[u8]> {
    Some(entry.meta()).filter(|meta| !meta.is_empty())
}

fn write_entry(out: &mut Vec<u8>, entry: &Entry, key: &str) {
    let mut object = ObjectWriter::open(out);
    object.text(key, entry.key()).text("client", &client_text(entry.owner())).text("node", entry.node());
    object.raw("meta", meta(entry)).text("version", &format!("{}.{}", entry.stamp().0, entry.revision()));
    object.close();
}

/// Writes a name with its owner. `version` is for `update_meta`.
pub(super) fn entry(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    write_entry(&mut out, entry, "name");
    out
}

pub(super) fn names(entries: &[Entry], next: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::list(object.key("names"), entries, |out, entry| write_entry(out, entry, "name"));
    object.number("cursor", next.into());
    object.close();
    out
}

/// Writes a page of names in their order. If there are more names, the last name of the page is the cursor.
pub(super) fn names_in_order(entries: &[Entry], has_more: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::list(object.key("names"), entries, |out, entry| write_entry(out, entry, "name"));
    if let Some(last) = entries.last().filter(|_| has_more) {
        object.text("last", last.key());
    }
    object.close();
    out
}

pub(super) fn groups(groups: &[(Arc<str>, u32)], next: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::list(object.key("groups"), groups, |out, (group, count)| {
        let mut object = ObjectWriter::open(out);
        object.text("group", group).number("count", (*count).into());
        object.close();
    });
    object.number("cursor", next.into());
    object.close();
    out
}

fn write_member(out: &mut Vec<u8>, entry: &Entry) {
    let mut object = ObjectWriter::open(out);
    object.text("client", &client_text(entry.owner())).text("node", entry.node()).raw("meta", meta(entry));
    object.close();
}

/// Writes one member of a group.
pub(super) fn member(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    write_member(&mut out, entry);
    out
}

/// Writes members of a group. `count` is exact; `members` may be a sample of them.
pub(super) fn members(members: &[Entry], count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::list(object.key("members"), members, write_member);
    encode::number(object.key("count"), count);
    object.flag("sample", (members.len() as u64) < count);
    object.close();
    out
}

/// Writes a page of the members of a group that has `count` members.
pub(super) fn member_page(members: &[Entry], count: u64, next: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::list(object.key("members"), members, write_member);
    encode::number(object.key("count"), count);
    object.number("cursor", next.into());
    object.close();
    out
}

pub(super) fn counts(replica: &Replica) -> Vec<u8> {
    let view = replica.view();
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::number(object.key("names"), view.names());
    encode::number(object.key("groups"), view.groups());
    encode::number(object.key("members"), view.members());
    let own = (replica.node(), replica.local_entries());
    encode::list(object.key("nodes"), std::iter::once(own).chain(replica.nodes()), |out, (node, entries)| {
        let mut object = ObjectWriter::open(out);
        object.text("node", node);
        encode::number(object.key("entries"), entries);
        object.close();
    });
    object.close();
    out
}

/// Writes a message of a client or a backend to another client. `from` is empty if a backend sends it.
pub(super) fn message(requester: &Requester, to: &str, data: &Bytes) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + 120);
    let mut object = ObjectWriter::open(&mut out);
    let mut from = ObjectWriter::open(object.key("from"));
    if !requester.is_backend {
        from.text("user", &requester.user).text("client", &client_text(requester.owner));
    }
    from.close();
    object.text("to", to).raw("data", Some(data));
    object.close();
    out
}

/// Writes a message of a backend to a connection, which needs no name or group for it. `to`: the connection's user.
pub fn message_of_backend(to: &str, data: &Bytes) -> Vec<u8> {
    message(&Requester { owner: OwnerId([0; 16]), user: Box::default(), is_backend: true }, to, data)
}

/// Writes a message as a push that many clients share.
pub fn push(message: &[u8]) -> EncodedPush {
    EncodedPush::encode(message.len(), |out| {
        let mut object = ObjectWriter::open(out);
        let mut body = ObjectWriter::open(object.key("message"));
        body.raw("data", Some(message));
        body.close();
        object.close();
    })
}

/// Writes a message that is a call with this number. The number is its first field.
///
/// The JSON is written by hand, as in the two functions below: the message is JSON already, and the field is inserted
/// without reading it.
pub fn numbered(call: u64, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 30);
    out.extend_from_slice(format!("{{\"call\":{call},").as_bytes());
    out.extend_from_slice(message.get(1..).unwrap_or(b"}"));
    out
}

/// Writes a message as the store keeps it for a name, with its time in Unix milliseconds.
pub(super) fn stored_message(requester: &Requester, to: &str, data: &Bytes, now_ms: u64) -> Vec<u8> {
    let mut stored = message(requester, to, data);
    stored.pop();
    stored.extend_from_slice(format!(",\"time\":{now_ms}}}").as_bytes());
    stored
}

/// Writes an inbox message as its client gets it, with its id.
pub(super) fn inbox_message(id: u64, message: &[u8]) -> Vec<u8> {
    let mut out = format!("{{\"id\":\"{id}\",").into_bytes();
    out.extend_from_slice(message.get(1..).unwrap_or(b"}"));
    out
}

/// Writes the message to a client that lost a name.
pub(super) fn lost(scope: &str, lost: &Entry, winner: &Entry, reason: Reason) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    let mut inner = ObjectWriter::open(object.key("lost"));
    inner.text("scope", scope).text("name", lost.key()).text("reason", reason.as_str());
    inner.text("client", &client_text(winner.owner())).text("node", winner.node());
    inner.close();
    object.close();
    out
}

pub(super) fn sent(count: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    let mut object = ObjectWriter::open(&mut out);
    encode::number(object.key("sent"), count as u64);
    object.close();
    out
}

/// Writes the reply to a call of one client.
pub(super) fn reply(reply: CallReply) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    match reply {
        Ok(data) => object.raw("data", Some(&data)),
        Err(CallError::Client(error)) => object.raw("error", Some(&error)),
        Err(CallError::Server(error)) => return Err(error),
    };
    object.close();
    Ok(out)
}

/// Writes the replies to a call of a group, and the members that did not reply.
pub(super) fn replies(replies: &[(OwnerId, CallReply)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    let is_reply = |reply: &CallReply| matches!(reply, Ok(_) | Err(CallError::Client(_)));
    encode::list(object.key("replies"), replies.iter().filter(|(_, reply)| is_reply(reply)), |out, (client, reply)| {
        let mut object = ObjectWriter::open(out);
        object.text("client", &client_text(*client));
        match reply {
            Ok(data) => object.raw("data", Some(data)),
            Err(CallError::Client(error)) => object.raw("error", Some(error)),
            Err(CallError::Server(_)) => &mut object,
        };
        object.close();
    });
    encode::list(object.key("silent"), replies.iter().filter(|(_, reply)| !is_reply(reply)), |out, (client, reply)| {
        let mut object = ObjectWriter::open(out);
        object.text("client", &client_text(*client));
        if let Err(error) = reply {
            error_json(object.key("error"), error);
        }
        object.close();
    });
    object.close();
    out
}

/// Writes a change of a scope, for its watchers.
pub(super) fn event(event: &RegistryEvent) -> Vec<u8> {
    let (change, key) = match event.change {
        EntryChange::Registered => ("registered", "name"),
        EntryChange::Updated => ("updated", "name"),
        EntryChange::Unregistered => ("unregistered", "name"),
        EntryChange::Joined => ("joined", "group"),
        EntryChange::MemberUpdated => ("member_updated", "group"),
        EntryChange::Left => ("left", "group"),
    };
    let entry = &event.entry;
    let mut out = Vec::with_capacity(200);
    let mut object = ObjectWriter::open(&mut out);
    object
        .text("change", change)
        .text(key, entry.key())
        .text("client", &client_text(entry.owner()))
        .text("node", entry.node());
    object.raw("meta", meta(entry)).text("reason", event.reason.as_str());
    object.close();
    out
}

/// Writes the JSON of an error that is part of a reply.
pub(super) fn error_json(out: &mut Vec<u8>, error: &CallError) {
    match error {
        CallError::Server(error) => encode::error(out, error),
        CallError::Client(json) => out.extend_from_slice(json),
    }
}
