//! The operations `history` and `history_remove`.

use schemars::JsonSchema;
use serde::Deserialize;
use touchline_engine::request::ClientPosition;
use touchline_engine::request::History;
use touchline_engine::{ChannelRequest, Response};
use touchline_protocol::data::object;
use touchline_protocol::stream::Offset;
use touchline_protocol::{Error, encode};

use crate::api::description::OperationScope;
use crate::api::json::{EmptyReply, WrittenJson};
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{OneChannelRequest, nullable, nullable_fields};
use crate::api::shapes::HistoryShape;
use crate::auth::NamedChannels;

/// A request for the publications of a channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"]), transform = nullable_fields)]
pub(crate) struct HistoryRequest {
    /// The channel to read.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    channel: String,
    /// The greatest number of publications in the answer: 0 = none, only the position; below 0 = all.
    #[serde(deserialize_with = "nullable")]
    limit: i64,
    /// Only publications after this position, or before it with `reverse`; absent = any position.
    #[serde(deserialize_with = "object")]
    since: Option<HistorySince>,
    /// `true`: the newest publication comes first. `false`: the oldest.
    #[serde(deserialize_with = "nullable")]
    reverse: bool,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
struct HistorySince {
    /// The offset of the last known publication; 0 = none is known.
    offset: u64,
    /// The epoch of the log that the offset belongs to.
    epoch: String,
}

/// The operation `history`.
pub(crate) struct HistoryOperation;

impl Operation for HistoryOperation {
    const NAME: &'static str = "history";
    const SUMMARY: &'static str =
        "Reads the publications of a channel after `since {offset, epoch}`; `limit` 0 = only the position, -1 = all";
    const RESULT: &'static str = "`publications`, `offset`, `epoch`: all three are always present";
    const EXAMPLE: &'static str = r#"{"channel": "history:a", "limit": 10}"#;
    const REPLY_EXAMPLE: &'static str =
        r#"{"publications": [{"data": 1, "offset": 1}], "epoch": "aXk3bQpz", "offset": 1}"#;
    const ERRORS: &'static [Error] = &[
        Error::UNKNOWN_CHANNEL,
        Error::LIMIT_EXCEEDED,
        Error::NOT_AVAILABLE,
        Error::TOO_MANY_REQUESTS,
        Error::UNRECOVERABLE_POSITION,
        Error::CLUSTER_UNREACHABLE,
        Error::STORE_UNAVAILABLE,
    ];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(6);

    type Request<'a> = HistoryRequest;
    type Reply = WrittenJson<HistoryShape>;

    fn channels<'r>(request: &'r HistoryRequest) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    async fn run(node: RequestNode<'_>, request: HistoryRequest) -> Result<WrittenJson<HistoryShape>, OperationError> {
        let history = History {
            limit: usize::try_from(request.limit).ok(),
            since: request
                .since
                .map(|since| ClientPosition { offset: Offset(since.offset), epoch: since.epoch.into() }),
            reverse: request.reverse,
            size_max: None,
        };
        match node.request_home(&request.channel, ChannelRequest::History(Box::new(history))).await {
            Response::History { publications, position } => {
                let mut out = Vec::new();
                let publications = publications.iter().map(|publication| &**publication);
                encode::history(&mut out, publications, position.epoch.as_str(), position.offset.0);
                Ok(WrittenJson::of(out))
            }
            Response::Refused(error) => Err(error.into()),
            _ => Err(Error::INTERNAL.into()),
        }
    }
}

/// The operation `history_remove`.
pub(crate) struct HistoryRemoveOperation;

impl Operation for HistoryRemoveOperation {
    const NAME: &'static str = "history_remove";
    const SUMMARY: &'static str = "Removes the history of a channel; the position stays";
    const EXAMPLE: &'static str = r#"{"channel": "history:a"}"#;
    const ERRORS: &'static [Error] = &[
        Error::UNKNOWN_CHANNEL,
        Error::LIMIT_EXCEEDED,
        Error::NOT_AVAILABLE,
        Error::TOO_MANY_REQUESTS,
        Error::CLUSTER_UNREACHABLE,
        Error::STORE_UNAVAILABLE,
    ];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(7);

    type Request<'a> = OneChannelRequest;
    type Reply = EmptyReply;

    fn channels<'r>(request: &'r OneChannelRequest) -> NamedChannels<'r> {
        request.named()
    }

    async fn run(node: RequestNode<'_>, request: OneChannelRequest) -> Result<EmptyReply, OperationError> {
        match node.request_home(&request.channel, ChannelRequest::HistoryRemove).await {
            Response::Done => Ok(EmptyReply {}),
            Response::Refused(error) => Err(error.into()),
            _ => Err(Error::INTERNAL.into()),
        }
    }
}
