//! `presence` and `presence_stats`.

use touchline_engine::{Request, Response};
use touchline_protocol::{ClientInfo, Error, encode};

use super::Json;
use super::channels::ChannelRequest;
use crate::node::Node;

/// Errors: 102, 107, 108. Result: `presence`, by client id.
pub(super) async fn presence(node: &Node, request: ChannelRequest) -> Result<Json, Error> {
    match node.ask(&request.channel, Request::Presence).await {
        Response::Presence(members) => {
            let mut out = Vec::new();
            encode::presence(&mut out, members.iter().map(|member| -> &ClientInfo { member }));
            Ok(out)
        }
        Response::Refused(error) => Err(error),
        _ => Err(Error::INTERNAL),
    }
}

/// Errors: 102, 107, 108. Result: `num_clients`, `num_users`.
pub(super) async fn presence_stats(node: &Node, request: ChannelRequest) -> Result<Json, Error> {
    match node.ask(&request.channel, Request::PresenceStats).await {
        Response::PresenceStats { clients, users } => {
            let mut out = Vec::new();
            encode::presence_stats(&mut out, clients, users);
            Ok(out)
        }
        Response::Refused(error) => Err(error),
        _ => Err(Error::INTERNAL),
    }
}
