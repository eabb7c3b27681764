//! The operations `presence` and `presence_stats`.

use touchline_engine::Response;
use touchline_engine::directory::{DirectoryRequest, Requester};
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use crate::api::description::OperationScope;
use crate::api::json::WrittenJson;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{OneChannelRequest, channel_options};
use crate::api::shapes::{PresenceShape, PresenceStatsShape};
use crate::auth::NamedChannels;

/// The operation `presence`. If the channel has more clients than `client.presence_max_clients`, the reply is a sample.
/// The reply marks the sample and gives the exact number.
pub(crate) struct PresenceOperation;

impl Operation for PresenceOperation {
    const NAME: &'static str = "presence";
    const SUMMARY: &'static str = "Lists the clients in a channel";
    const RESULT: &'static str = "`presence`: client id → `{user, client, conn_info, chan_info}`; a sample with \
                                  `sample` and `num_clients` if there are more clients than \
                                  `client.presence_max_clients`";
    const EXAMPLE: &'static str = r#"{"channel": "room:a"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{
        "presence": {
            "5b23579a-9066-444b-bfc3-000100000000": {"user": "42", "client": "5b23579a-9066-444b-bfc3-000100000000"}
        }
    }"#;
    const ERRORS: &'static [Error] = PRESENCE_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(4);

    type Request<'a> = OneChannelRequest;
    type Reply = WrittenJson<PresenceShape>;

    fn channels<'r>(request: &'r OneChannelRequest) -> NamedChannels<'r> {
        request.named()
    }

    async fn run(node: RequestNode<'_>, request: OneChannelRequest) -> Result<Self::Reply, OperationError> {
        let OneChannelRequest { channel } = request;
        let limit = node.generation().settings.client.presence_max_clients;
        ask(node, &channel, DirectoryRequest::Presence { channel: channel.as_str().into(), limit }).await
    }
}

/// The operation `presence_stats`.
pub(crate) struct PresenceStatsOperation;

impl Operation for PresenceStatsOperation {
    const NAME: &'static str = "presence_stats";
    const SUMMARY: &'static str = "Counts the clients and users in a channel";
    const RESULT: &'static str = "`num_clients`, `num_users`";
    const EXAMPLE: &'static str = r#"{"channel": "room:a"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"num_clients": 2, "num_users": 1}"#;
    const ERRORS: &'static [Error] = PRESENCE_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(5);

    type Request<'a> = OneChannelRequest;
    type Reply = WrittenJson<PresenceStatsShape>;

    fn channels<'r>(request: &'r OneChannelRequest) -> NamedChannels<'r> {
        request.named()
    }

    async fn run(node: RequestNode<'_>, request: OneChannelRequest) -> Result<Self::Reply, OperationError> {
        let OneChannelRequest { channel } = request;
        ask(node, &channel, DirectoryRequest::PresenceStats { channel: channel.as_str().into() }).await
    }
}

const PRESENCE_ERRORS: &[Error] = &[Error::UNKNOWN_CHANNEL, Error::NOT_AVAILABLE];

async fn ask<S>(
    node: RequestNode<'_>,
    channel: &str,
    request: DirectoryRequest,
) -> Result<WrittenJson<S>, OperationError> {
    if !channel_options(node.generation(), "channel", channel)?.presence {
        return Err(Error::NOT_AVAILABLE.into());
    }
    let requester = Requester { owner: OwnerId([0; 16]), user: Box::default(), is_backend: true };
    match node.request_directory(requester, request).await {
        Response::Directory(reply) => Ok(WrittenJson::of(reply.json())),
        Response::Refused(error) => Err(error.into()),
        _ => Err(Error::INTERNAL.into()),
    }
}
