//! The messages between the directories of two nodes: messages and calls for a client of the other node. Each is one
//! JSON object.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::Error;
use touchline_protocol::encode::{self, ObjectWriter};
use touchline_registry::OwnerId;

use super::answer::{self, error_json};
use super::calls::{CallError, CallOrigin, CallReply};
use super::client_id::{client_from_text, client_text};
use super::effect::DirectoryEffect;
use super::optional::given;
use super::size::CLIENT;
use super::state::Directory;

#[derive(Deserialize)]
struct DirectoryMessage<'a> {
    /// The client of the receiver that the message is for; empty = the message is a reply.
    #[serde(default)]
    client: &'a str,
    /// Further clients that the message is for. Their calls have the numbers after `call`.
    #[serde(borrow, default)]
    clients: Vec<&'a str>,
    /// The message for the clients, JSON.
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    /// The sender's number of the call.
    #[serde(default)]
    call: u64,
    #[serde(default)]
    timeout_ms: u64,
    /// The data of the reply to the receiver's call; it may be `null`.
    #[serde(borrow, default, deserialize_with = "given")]
    data: Option<&'a RawValue>,
    /// The called client's own error.
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// The number of the server's error.
    #[serde(default)]
    code: u32,
    /// The sender's numbers of calls whose caller is gone.
    #[serde(default)]
    gone: Vec<u64>,
}

/// A message for clients of one node: at least one and at most [`super::size::CLIENTS_MAX`].
pub(super) fn send(clients: &[OwnerId], message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 80 + clients.len() * CLIENT);
    let mut object = ObjectWriter::open(&mut out);
    write_clients(&mut object, clients);
    object.raw("message", Some(message));
    object.close();
    out
}

/// A call of clients of one node. The first one has the number `call`, the others have the numbers after it.
pub(super) fn call(clients: &[OwnerId], call: u64, timeout_ms: u64, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 120 + clients.len() * CLIENT);
    let mut object = ObjectWriter::open(&mut out);
    write_clients(&mut object, clients);
    object.number("call", call).number("timeout_ms", timeout_ms).raw("message", Some(message));
    object.close();
    out
}

/// Writes the receiving clients. A node of an earlier version reads only the first one.
fn write_clients(object: &mut ObjectWriter<'_>, clients: &[OwnerId]) {
    let Some((first, others)) = clients.split_first() else { return };
    object.text("client", &client_text(*first));
    if !others.is_empty() {
        encode::list(object.key("clients"), others, |out, client| encode::text(out, &client_text(*client)));
    }
}

pub(super) fn reply(call: u64, reply: &CallReply) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    object.number("call", call);
    match reply {
        Ok(data) => drop(object.raw("data", Some(data))),
        Err(CallError::Server(error)) => drop(object.number("code", error.code.into())),
        Err(error) => error_json(object.key("error"), error),
    }
    object.close();
    out
}

/// The numbers of calls whose caller is gone; at most [`super::size::CLIENTS_MAX`].
pub(super) fn gone(calls: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::list(object.key("gone"), calls, |out, call| encode::number(out, *call));
    object.close();
    out
}

impl<A> Directory<A> {
    /// Handles a message of another node's directory. An unreadable message is ignored.
    pub fn receive_from_node(&mut self, from: &str, message: &[u8], now_ms: u64) {
        let Ok(message) = serde_json::from_slice::<DirectoryMessage<'_>>(message) else { return };
        let take = |json: &RawValue| Bytes::copy_from_slice(json.get().as_bytes());
        if !message.gone.is_empty() {
            let from = from.into();
            return message.gone.iter().for_each(|number| self.calls.caller_gone_there(&from, *number));
        }
        if message.client.is_empty() {
            let reply = match (message.data, message.error) {
                (Some(data), _) => Ok(take(data)),
                (None, Some(error)) => Err(CallError::Client(take(error))),
                (None, None) => Err(CallError::Server(
                    Error::ALL.iter().find(|e| e.code == message.code).copied().unwrap_or(Error::INTERNAL),
                )),
            };
            if self.calls.is_awaited_of_node(message.call, from) {
                let done = self.calls.finish(message.call, reply);
                self.finish_all(done);
            }
            return;
        }
        let Some(json) = message.message else { return };
        let clients: Vec<OwnerId> =
            std::iter::once(message.client).chain(message.clients).filter_map(client_from_text).collect();
        if message.call == 0 {
            return self
                .effects
                .push(DirectoryEffect::PushMany(clients, Arc::new(answer::push(json.get().as_bytes()))));
        }
        let json = take(json);
        let (limit, longest_ms) = self.call_limits();
        let until_ms = now_ms.saturating_add(message.timeout_ms.min(longest_ms));
        for (index, client) in (0..).zip(clients) {
            let number = message.call.wrapping_add(index);
            if self.calls.len() >= limit {
                let refused = reply(number, &Err(CallError::Server(Error::TOO_MANY_CALLS)));
                self.effects.push(DirectoryEffect::Node(from.into(), refused));
                continue;
            }
            let call = self.calls.open(CallOrigin::Node(from.into(), number), None, client, None, until_ms);
            self.effects.push(DirectoryEffect::Call(client, call, json.clone()));
        }
    }

    /// How many calls may wait, and how long one may wait in milliseconds, by the limits of the most generous scope.
    fn call_limits(&self) -> (usize, u64) {
        let options = self.scopes.iter().map(|scope| &scope.options);
        options.fold((0, 0), |(limit, longest_ms), options| {
            (limit.max(options.calls_limit), longest_ms.max(options.call_timeout_max.as_millis() as u64))
        })
    }
}
