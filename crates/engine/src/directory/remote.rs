//! What the directories of two nodes say to each other: messages and calls for a client that lives there. JSON, one object a message.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::Error;
use touchline_protocol::encode::Object;
use touchline_registry::OwnerId;

use super::calls::{CallError, Caller, Reply};
use super::{Act, Directory, client_from_text, client_text, error_json};

#[derive(Deserialize)]
struct Message<'a> {
    /// For a client of the receiver.
    #[serde(default)]
    client: &'a str,
    /// What it is to be given.
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    /// The sender's number of a call.
    #[serde(default)]
    call: u64,
    #[serde(default)]
    timeout_ms: u64,
    /// The answer to the receiver's call.
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    /// The called client's error.
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// The server's error, by its number.
    #[serde(default)]
    code: u32,
}

pub(super) fn send(client: OwnerId, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 80);
    let mut object = Object::open(&mut out);
    object.text("client", &client_text(client)).raw("message", Some(message));
    object.close();
    out
}

pub(super) fn call(client: OwnerId, call: u64, timeout_ms: u64, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 120);
    let mut object = Object::open(&mut out);
    object.text("client", &client_text(client)).number("call", call).number("timeout_ms", timeout_ms).raw("message", Some(message));
    object.close();
    out
}

pub(super) fn answer(call: u64, reply: &Reply) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::open(&mut out);
    object.number("call", call);
    match reply {
        Ok(data) => drop(object.raw("data", Some(data))),
        Err(CallError::Ours(error)) => drop(object.number("code", error.code.into())),
        Err(error) => error_json(object.key("error"), error),
    }
    object.close();
    out
}

impl<A> Directory<A> {
    /// A message of another node's directory. What can't be read is left alone.
    pub fn receive_from_node(&mut self, from: &str, message: &[u8], now_ms: u64) {
        let Ok(message) = serde_json::from_slice::<Message<'_>>(message) else { return };
        let take = |json: &RawValue| Bytes::copy_from_slice(json.get().as_bytes());
        if message.client.is_empty() {
            let reply = match (message.data, message.error) {
                (Some(data), _) => Ok(take(data)),
                (None, Some(error)) => Err(CallError::Theirs(take(error))),
                (None, None) => {
                    Err(CallError::Ours(Error::ALL.iter().find(|e| e.code == message.code).copied().unwrap_or(Error::INTERNAL)))
                }
            };
            if self.calls.is_awaited_of_node(message.call, from) {
                let done = self.calls.finish(message.call, reply);
                self.finish_all(done);
            }
            return;
        }
        let (Some(client), Some(json)) = (client_from_text(message.client), message.message) else { return };
        let mut given = json.get().as_bytes().to_vec();
        if message.call > 0 {
            let until_ms = now_ms.saturating_add(message.timeout_ms);
            let call = self.calls.open(Caller::Node(from.into(), message.call), client, None, until_ms);
            // The message is an object that was written by a node: the number goes in front.
            given.splice(1..1, format!("\"call\":{call},").into_bytes());
        }
        self.acts.push(Act::Push(client, given));
    }
}
