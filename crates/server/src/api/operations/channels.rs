//! `channels`.

use std::sync::Arc;

use serde::Deserialize;
use touchline_protocol::Error;
use touchline_protocol::encode::{ObjectWriter, number, text};

use super::{Json, nullable};
use crate::net::glob::Glob;
use crate::node::Node;
use crate::runtime::mailbox::Inspection;

/// A request about one channel.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct OneChannelRequest {
    #[serde(deserialize_with = "nullable")]
    pub(super) channel: String,
}

/// Asks for channels that have subscribers.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct ChannelsRequest {
    /// See [`Glob`]; empty = every channel.
    #[serde(deserialize_with = "nullable")]
    pattern: String,
}

/// Errors: 107 for a malformed or too long pattern. Result: `channels`, each with `num_clients`.
pub(super) async fn channels(node: &Node, request: ChannelsRequest) -> Result<Json, Error> {
    let pattern = match request.pattern.as_str() {
        "" => None,
        pattern => Some(Arc::new(Glob::parse(pattern).ok_or(Error::BAD_REQUEST)?)),
    };
    let inspection = |reply| Inspection::Channels { pattern: pattern.clone(), reply };
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    let list = object.key("channels");
    list.push(b'{');
    for (index, (name, subscribers)) in node.inspect(inspection).await.into_iter().flatten().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        text(list, &name);
        list.extend_from_slice(b":{\"num_clients\":");
        number(list, subscribers);
        list.push(b'}');
    }
    list.push(b'}');
    object.close();
    Ok(out)
}
