//! `presence` and `presence_stats`.

use touchline_engine::Response;
use touchline_engine::directory::{DirectoryRequest, Requester};
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use crate::api::description::OperationScope;
use crate::api::json::WrittenJson;
use crate::api::operation::{Operation, OperationError};
use crate::api::params::OneChannelRequest;
use crate::auth::NamedChannels;
use crate::node::Node;

/// `presence`. For a channel with more clients than `client.presence_max_clients` the reply is a sample, marked as one,
/// with the exact number.
pub(crate) struct PresenceOperation;

impl Operation for PresenceOperation {
    const NAME: &'static str = "presence";
    const SUMMARY: &'static str = "Lists the clients in a channel";
    const RESULT: &'static str = "`presence`: client id → `{user, client, conn_info, chan_info}`; where there are \
                                  more clients than `client.presence_max_clients` a sample of them, with `sample` and \
                                  `num_clients`";
    const EXAMPLE: &'static str = r#"{"channel": "room:a"}"#;
    const ERRORS: &'static [Error] = PRESENCE_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(4);

    type Request<'a> = OneChannelRequest;
    type Reply = WrittenJson;

    fn channels<'r>(request: &'r OneChannelRequest) -> NamedChannels<'r> {
        request.named()
    }

    async fn run(node: &Node, OneChannelRequest { channel }: OneChannelRequest) -> Result<WrittenJson, OperationError> {
        let limit = node.settings.client.presence_max_clients;
        ask(node, &channel, DirectoryRequest::Presence { channel: channel.as_str().into(), limit }).await
    }
}

/// `presence_stats`.
pub(crate) struct PresenceStatsOperation;

impl Operation for PresenceStatsOperation {
    const NAME: &'static str = "presence_stats";
    const SUMMARY: &'static str = "Counts the clients and users in a channel";
    const RESULT: &'static str = "`num_clients`, `num_users`";
    const EXAMPLE: &'static str = r#"{"channel": "room:a"}"#;
    const ERRORS: &'static [Error] = PRESENCE_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(5);

    type Request<'a> = OneChannelRequest;
    type Reply = WrittenJson;

    fn channels<'r>(request: &'r OneChannelRequest) -> NamedChannels<'r> {
        request.named()
    }

    async fn run(node: &Node, OneChannelRequest { channel }: OneChannelRequest) -> Result<WrittenJson, OperationError> {
        ask(node, &channel, DirectoryRequest::PresenceStats { channel: channel.as_str().into() }).await
    }
}

const PRESENCE_ERRORS: &[Error] = &[Error::UNKNOWN_CHANNEL, Error::NOT_AVAILABLE];

async fn ask(node: &Node, channel: &str, request: DirectoryRequest) -> Result<WrittenJson, OperationError> {
    if !node.session.namespaces.resolve(channel)?.presence {
        return Err(Error::NOT_AVAILABLE.into());
    }
    let requester = Requester { owner: OwnerId([0; 16]), user: Box::default(), is_backend: true };
    match node.request_directory(requester, request).await {
        Response::Directory(reply) => Ok(WrittenJson(reply.json())),
        Response::Refused(error) => Err(error.into()),
        _ => Err(Error::INTERNAL.into()),
    }
}
