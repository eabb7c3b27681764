//! `presence` and `presence_stats`.

use touchline_engine::Response;
use touchline_engine::directory::{DirectoryRequest, Requester};
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use super::Json;
use super::channels::OneChannelRequest;
use crate::node::Node;

/// Errors: 102, 107, 108. Result: `presence`, by client id. For a channel with more clients than
/// `client.presence_max_clients` it is a sample, marked as one, with the exact number.
pub(super) async fn presence(node: &Node, request: OneChannelRequest) -> Result<Json, Error> {
    let limit = node.settings.client.presence_max_clients;
    run(node, &request.channel, DirectoryRequest::Presence { channel: request.channel.as_str().into(), limit }).await
}

/// Errors: 102, 107, 108. Result: `num_clients`, `num_users`.
pub(super) async fn presence_stats(node: &Node, request: OneChannelRequest) -> Result<Json, Error> {
    run(node, &request.channel, DirectoryRequest::PresenceStats { channel: request.channel.as_str().into() }).await
}

async fn run(node: &Node, channel: &str, request: DirectoryRequest) -> Result<Json, Error> {
    if !node.session.namespaces.resolve(channel)?.presence {
        return Err(Error::NOT_AVAILABLE);
    }
    let requester = Requester { owner: OwnerId([0; 16]), user: Box::default(), is_backend: true };
    match node.request_directory(requester, request).await {
        Response::Directory(reply) => Ok(reply.json().into()),
        Response::Refused(error) => Err(error),
        _ => Err(Error::INTERNAL),
    }
}
