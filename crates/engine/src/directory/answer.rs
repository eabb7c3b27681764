//! The JSON of answers and messages.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Error;
use touchline_protocol::encode::{self, Object};
use touchline_protocol::publication::EncodedPush;
use touchline_registry::{Entry, EntryChange, OwnerId, Reason, RegistryEvent, Replica};

use super::calls::{CallError, Reply};
use super::{Requester, client_text, error_json};

pub(super) fn empty() -> Vec<u8> {
    b"{}".to_vec()
}

fn meta(entry: &Entry) -> Option<&[u8]> {
    Some(entry.meta()).filter(|meta| !meta.is_empty())
}

fn write_entry(out: &mut Vec<u8>, entry: &Entry, key: &str) {
    let mut object = Object::open(out);
    object.text(key, entry.key()).text("client", &client_text(entry.owner())).text("node", entry.node());
    object.raw("meta", meta(entry)).text("version", &format!("{}.{}", entry.stamp().0, entry.revision()));
    object.close();
}

/// An owned name. `version` is for `update_meta`.
pub(super) fn entry(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    write_entry(&mut out, entry, "name");
    out
}

pub(super) fn names(entries: &[Entry], next: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    encode::list(object.key("names"), entries, |out, entry| write_entry(out, entry, "name"));
    object.number("cursor", next.into());
    object.close();
    out
}

pub(super) fn groups(groups: &[(Arc<str>, u32)], next: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    encode::list(object.key("groups"), groups, |out, (group, count)| {
        let mut object = Object::open(out);
        object.text("group", group).number("count", (*count).into());
        object.close();
    });
    object.number("cursor", next.into());
    object.close();
    out
}

fn write_member(out: &mut Vec<u8>, entry: &Entry) {
    let mut object = Object::open(out);
    object.text("client", &client_text(entry.owner())).text("node", entry.node()).raw("meta", meta(entry));
    object.close();
}

/// One member of a group.
pub(super) fn member(entry: &Entry) -> Vec<u8> {
    let mut out = Vec::with_capacity(160);
    write_member(&mut out, entry);
    out
}

/// `count` is exact; `members` may be a sample of them.
pub(super) fn members(members: &[Entry], count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    encode::list(object.key("members"), members, write_member);
    encode::number(object.key("count"), count);
    object.flag("sample", (members.len() as u64) < count);
    object.close();
    out
}

/// A page of the members of a group, which has `count`.
pub(super) fn member_page(members: &[Entry], count: u64, next: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    encode::list(object.key("members"), members, write_member);
    encode::number(object.key("count"), count);
    object.number("cursor", next.into());
    object.close();
    out
}

pub(super) fn counts(replica: &Replica) -> Vec<u8> {
    let view = replica.view();
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    encode::number(object.key("names"), view.names());
    encode::number(object.key("groups"), view.groups());
    encode::number(object.key("members"), view.members());
    let own = (replica.node(), replica.local_entries());
    encode::list(object.key("nodes"), std::iter::once(own).chain(replica.nodes()), |out, (node, entries)| {
        let mut object = Object::open(out);
        object.text("node", node);
        encode::number(object.key("entries"), entries);
        object.close();
    });
    object.close();
    out
}

/// What a client is sent by another, or by a backend: `from` is empty then.
pub(super) fn message(who: &Requester, to: &str, data: &Bytes) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + 120);
    let mut object = Object::open(&mut out);
    let mut from = Object::open(object.key("from"));
    if !who.is_backend {
        from.text("user", &who.user).text("client", &client_text(who.owner));
    }
    from.close();
    object.text("to", to).raw("data", Some(data));
    object.close();
    out
}

/// A message as a push that many clients share.
pub fn push(message: &[u8]) -> EncodedPush {
    EncodedPush::encode(message.len(), |out| {
        let mut object = Object::open(out);
        let mut body = Object::open(object.key("message"));
        body.raw("data", Some(message));
        body.close();
        object.close();
    })
}

/// A message that is a call of this number: the number stands in front.
pub fn numbered(call: u64, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 30);
    out.extend_from_slice(format!("{{\"call\":{call},").as_bytes());
    out.extend_from_slice(message.get(1..).unwrap_or(b"}"));
    out
}

/// Such a message as it is kept.
pub(super) fn letter_of(who: &Requester, to: &str, data: &Bytes, now_ms: u64) -> Vec<u8> {
    let mut letter = message(who, to, data);
    letter.pop();
    letter.extend_from_slice(format!(",\"time\":{now_ms}}}").as_bytes());
    letter
}

/// A letter as it is given to its client.
pub(super) fn letter(id: u64, letter: &[u8]) -> Vec<u8> {
    let mut out = format!("{{\"id\":\"{id}\",").into_bytes();
    out.extend_from_slice(letter.get(1..).unwrap_or(b"}"));
    out
}

/// The word to somebody who lost a name.
pub(super) fn lost(scope: &str, lost: &Entry, winner: &Entry, reason: Reason) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    let mut inner = Object::open(object.key("lost"));
    inner.text("scope", scope).text("name", lost.key()).text("reason", reason.as_str());
    inner.text("client", &client_text(winner.owner())).text("node", winner.node());
    inner.close();
    object.close();
    out
}

pub(super) fn sent(count: usize) -> Vec<u8> {
    format!("{{\"sent\":{count}}}").into_bytes()
}

/// An answer to a call of one client.
pub(super) fn reply(reply: Reply) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    match reply {
        Ok(data) => object.raw("data", Some(&data)),
        Err(CallError::Theirs(error)) => object.raw("error", Some(&error)),
        Err(CallError::Ours(error)) => return Err(error),
    };
    object.close();
    Ok(out)
}

/// The answers to a call of a group, and who did not answer.
pub(super) fn replies(answers: &[(OwnerId, Reply)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    let is_answer = |reply: &Reply| matches!(reply, Ok(_) | Err(CallError::Theirs(_)));
    encode::list(
        object.key("replies"),
        answers.iter().filter(|(_, reply)| is_answer(reply)),
        |out, (client, reply)| {
            let mut object = Object::open(out);
            object.text("client", &client_text(*client));
            match reply {
                Ok(data) => object.raw("data", Some(data)),
                Err(CallError::Theirs(error)) => object.raw("error", Some(error)),
                Err(CallError::Ours(_)) => &mut object,
            };
            object.close();
        },
    );
    encode::list(
        object.key("silent"),
        answers.iter().filter(|(_, reply)| !is_answer(reply)),
        |out, (client, reply)| {
            let mut object = Object::open(out);
            object.text("client", &client_text(*client));
            if let Err(error) = reply {
                error_json(object.key("error"), error);
            }
            object.close();
        },
    );
    object.close();
    out
}

/// A change, for those who watch a scope.
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
    let mut object = Object::open(&mut out);
    object
        .text("change", change)
        .text(key, entry.key())
        .text("client", &client_text(entry.owner()))
        .text("node", entry.node());
    object.raw("meta", meta(entry)).text("reason", event.reason.as_str());
    object.close();
    out
}
