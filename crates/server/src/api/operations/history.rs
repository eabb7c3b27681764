//! `history` and `history_remove`.

use serde::Deserialize;
use touchline_engine::request::ClientPosition;
use touchline_engine::request::History;
use touchline_engine::{ChannelRequest, Response};
use touchline_protocol::data::object;
use touchline_protocol::stream::Offset;
use touchline_protocol::{Error, encode};

use super::channels::OneChannelRequest;
use super::{Json, done, nullable};
use crate::node::Node;

/// Asks for publications of a channel.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct HistoryRequest {
    #[serde(deserialize_with = "nullable")]
    channel: String,
    #[serde(deserialize_with = "nullable")]
    limit: i64,
    #[serde(deserialize_with = "object")]
    since: Option<HistorySince>,
    #[serde(deserialize_with = "nullable")]
    reverse: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
struct HistorySince {
    offset: u64,
    epoch: String,
}

/// Errors: 102, 107, 108, 112. Result: `publications`, `offset`, `epoch`, always there.
pub(super) async fn history(node: &Node, request: HistoryRequest) -> Result<Json, Error> {
    let history = History {
        limit: usize::try_from(request.limit).ok(),
        since: request.since.map(|since| ClientPosition { offset: Offset(since.offset), epoch: since.epoch.into() }),
        reverse: request.reverse,
        size_max: None,
    };
    match node.request_home(&request.channel, ChannelRequest::History(Box::new(history))).await {
        Response::History { publications, position } => {
            let mut out = Vec::new();
            encode::history(&mut out, publications.iter().map(|p| &**p), position.epoch.as_str(), position.offset.0);
            Ok(out)
        }
        Response::Refused(error) => Err(error),
        _ => Err(Error::INTERNAL),
    }
}

/// Errors: 102, 107, 108. The position stays.
pub(super) async fn history_remove(node: &Node, request: OneChannelRequest) -> Result<Json, Error> {
    match node.request_home(&request.channel, ChannelRequest::HistoryRemove).await {
        Response::Done => Ok(done()),
        Response::Refused(error) => Err(error),
        _ => Err(Error::INTERNAL),
    }
}
