//! The messages of a node to a roaming client: JSON in the text frames of a WebSocket, one message per line.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::wire::NUMBER_BASE;

/// A message of a node. A message without any of these fields is a ping.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeMessage {
    pub(super) error: Option<IgnoredAny>,
    pub(super) connect: Option<IgnoredAny>,
    pub(super) subscribe: Option<JoinReply>,
    pub(super) push: Option<NodePush>,
}

/// The answer to a subscribe command.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JoinReply {
    pub(super) epoch: Box<str>,
    /// The end of the channel's history.
    pub(super) offset: u64,
    /// The missed publications.
    pub(super) publications: Vec<NumberedPublication>,
}

/// A push message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodePush {
    #[serde(rename = "pub")]
    pub(super) publication: Option<NumberedPublication>,
    pub(super) unsubscribe: Option<IgnoredAny>,
}

/// A publication of the lab.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NumberedPublication {
    data: NumberedData,
    pub(super) offset: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NumberedData {
    n: u64,
    t: u64,
}

impl NodeMessage {
    /// Whether it is the protocol's ping.
    pub(super) fn is_ping(&self) -> bool {
        self.error.is_none() && self.connect.is_none() && self.subscribe.is_none() && self.push.is_none()
    }
}

impl NumberedPublication {
    /// Its number in its channel, from 1 on.
    pub(super) fn number(&self) -> u64 {
        self.data.n.saturating_sub(NUMBER_BASE)
    }

    /// When it was sent first, Unix microseconds.
    pub(super) fn posted_us(&self) -> u64 {
        self.data.t
    }
}

/// The messages of a frame.
///
/// # Errors
/// When one is not JSON.
pub(super) fn messages(payload: &[u8]) -> impl Iterator<Item = Result<NodeMessage>> {
    let lines = payload.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).context("a node's message is not valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publications_pings_and_answers_are_told_apart() {
        let data = crate::wire::data(7, 1_700_000_000_000_001, 64);
        let publication = format!(r#"{{"push":{{"channel":"c","pub":{{"data":{data},"offset":12}}}}}}"#);
        let answer = r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"e","publications":[],"offset":3}}"#;
        let payload = [&publication, "{}", answer, r#"{"id":1,"error":{"code":111}}"#].join("\n");
        let found: Vec<_> = messages(payload.as_bytes()).map(|message| message.expect("it is valid")).collect();
        let pushed = found[0].push.as_ref().and_then(|push| push.publication.as_ref()).expect("a publication");
        assert_eq!((pushed.number(), pushed.posted_us(), pushed.offset), (7, 1_700_000_000_000_001, 12));
        assert_eq!(found.iter().map(NodeMessage::is_ping).collect::<Vec<_>>(), [false, true, false, false]);
        let subscribed = found[2].subscribe.as_ref().expect("an answer");
        assert_eq!((&*subscribed.epoch, subscribed.offset), ("e", 3));
        assert!(found[3].error.is_some());
        assert!(messages(b"{").all(|message| message.is_err()));
    }
}
