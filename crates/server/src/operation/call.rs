//! Decoded operations. All operations of a batch are decoded before the first is run, so that a malformed one stops the
//! batch before it has done anything.

use serde::Deserialize;
use serde::de::Error as _;
use touchline_engine::directory::METHODS;
use touchline_protocol::Error;

use super::channel_directory::{OfChannel, SearchRequest, SetRequest};
use super::channels::{ChannelRequest, ChannelsRequest};
use super::connections::{DisconnectRequest, RefreshRequest, SubscribeRequest, UnsubscribeRequest};
use super::history::HistoryRequest;
use super::publish::{BroadcastRequest, PublishRequest};
use super::stats::StatsRequest;
use super::{
    BROADCAST_OVERHEAD, Json, broadcast_message, channel_directory, channels, connections, gather, history, info,
    presence, publish, registry, stats,
};
use crate::node::Node;

/// One operation with its parameters.
pub(super) struct Call<'a> {
    pub(super) method: &'a str,
    params: &'a [u8],
    request: Request<'a>,
}

/// The parameters, by operation.
enum Request<'a> {
    Publish(PublishRequest<'a>),
    Broadcast(BroadcastRequest<'a>),
    // Boxed, because it is large: the others would be moved with as many bytes.
    Subscribe(Box<SubscribeRequest<'a>>),
    Unsubscribe(UnsubscribeRequest),
    Disconnect(DisconnectRequest),
    Refresh(RefreshRequest<'a>),
    Presence(ChannelRequest),
    PresenceStats(ChannelRequest),
    History(HistoryRequest),
    HistoryRemove(ChannelRequest),
    ChannelSet(SetRequest),
    ChannelGet(OfChannel),
    ChannelRemove(OfChannel),
    ChannelsSearch(SearchRequest),
    ChannelsSimilar(OfChannel),
    StatsAudience(StatsRequest),
    StatsTop(StatsRequest),
    StatsEvents(StatsRequest),
    Channels(ChannelsRequest),
    Info,
    /// The directory reads its parameters itself.
    Registry,
    /// No operation has this name.
    Unknown,
}

impl<'a> Call<'a> {
    /// Reads the parameters of an operation. An unknown operation is read too: it is refused when it is run.
    ///
    /// # Errors
    /// When the parameters are not a JSON object, or not of the operation's shape.
    pub(super) fn read(method: &'a str, params: &'a [u8]) -> Result<Self, serde_json::Error> {
        let params = params.trim_ascii();
        let params = if params.is_empty() { b"{}" } else { params };
        let request = match method {
            "publish" => Request::Publish(object(params)?),
            "broadcast" => Request::Broadcast(object(params)?),
            "subscribe" => Request::Subscribe(Box::new(object(params)?)),
            "unsubscribe" => Request::Unsubscribe(object(params)?),
            "disconnect" => Request::Disconnect(object(params)?),
            "refresh" => Request::Refresh(object(params)?),
            "presence" => Request::Presence(object(params)?),
            "presence_stats" => Request::PresenceStats(object(params)?),
            "history" => Request::History(object(params)?),
            "history_remove" => Request::HistoryRemove(object(params)?),
            "channel_set" => Request::ChannelSet(object(params)?),
            "channel_get" => Request::ChannelGet(object(params)?),
            "channel_remove" => Request::ChannelRemove(object(params)?),
            "channels_search" => Request::ChannelsSearch(object(params)?),
            "channels_similar" => Request::ChannelsSimilar(object(params)?),
            "stats_audience" => Request::StatsAudience(object(params)?),
            "stats_top" => Request::StatsTop(object(params)?),
            "stats_events" => Request::StatsEvents(object(params)?),
            "channels" => Request::Channels(object(params)?),
            "info" => object::<serde::de::IgnoredAny>(params).map(|_| Request::Info)?,
            method if METHODS.contains(&method) => {
                object::<serde::de::IgnoredAny>(params).map(|_| Request::Registry)?
            }
            _ => Request::Unknown,
        };
        Ok(Call { method, params, request })
    }

    /// Whether no operation has this name. `rpc` has one: applications define its methods, and this server has none.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.request, Request::Unknown) && self.method != "rpc"
    }

    /// Runs the operation on all nodes that it concerns.
    ///
    /// # Errors
    /// The operation's error.
    pub(super) async fn run(self, node: &Node) -> Result<Json, Error> {
        let (method, params) = (self.method, self.params);
        let is_for_all = matches!(method, "subscribe" | "unsubscribe" | "disconnect" | "refresh");
        // An operation that is too large to be sent to the other nodes is not run here either.
        if (is_for_all || registry::is_for_client(method)) && node.is_too_large(params.len() + BROADCAST_OVERHEAD) {
            return Err(Error::BAD_REQUEST);
        }
        let outcome = self.run_here(node).await;
        let Some(cluster) = &node.cluster else { return outcome };
        match (method, outcome) {
            (_, Ok(result)) if is_for_all => {
                cluster.broadcast(broadcast_message(method, params));
                Ok(result)
            }
            ("channels" | "info", Ok(own)) => {
                gather::merge(method, own, &node.gather(method, params, |_| false).await.0)
            }
            (method, Err(Error::NOT_REGISTERED)) if registry::is_for_client(method) => {
                let (answers, asked) = node.gather(method, params, gather::is_of_client).await;
                gather::first(&answers, asked)
            }
            (_, outcome) => outcome,
        }
    }

    /// Runs the operation on this node alone.
    ///
    /// # Errors
    /// The operation's error.
    pub(super) async fn run_here(self, node: &Node) -> Result<Json, Error> {
        match self.request {
            Request::Publish(request) => publish::publish(node, request).await,
            Request::Broadcast(request) => publish::broadcast(node, request).await,
            Request::Subscribe(request) => connections::subscribe(node, *request).await,
            Request::Unsubscribe(request) => connections::unsubscribe(node, request).await,
            Request::Disconnect(request) => connections::disconnect(node, request).await,
            Request::Refresh(request) => connections::refresh(node, request).await,
            Request::Presence(request) => presence::presence(node, request).await,
            Request::PresenceStats(request) => presence::presence_stats(node, request).await,
            Request::History(request) => history::history(node, request).await,
            Request::HistoryRemove(request) => history::history_remove(node, request).await,
            Request::ChannelSet(request) => channel_directory::set(node, request).await,
            Request::ChannelGet(request) => channel_directory::get(node, request).await,
            Request::ChannelRemove(request) => channel_directory::remove(node, request).await,
            Request::ChannelsSearch(request) => channel_directory::search(node, request).await,
            Request::ChannelsSimilar(request) => channel_directory::similar(node, request).await,
            Request::StatsAudience(request) => stats::audience(node, request).await,
            Request::StatsTop(request) => stats::top(node, request).await,
            Request::StatsEvents(request) => stats::events(node, request).await,
            Request::Channels(request) => channels::channels(node, request).await,
            Request::Info => info::info(node).await,
            Request::Registry => registry::run(node, self.method, self.params).await,
            Request::Unknown => Err(Error::METHOD_NOT_FOUND),
        }
    }
}

/// Reads a JSON object of this shape. Serde alone would also accept a list of the struct's fields in their order.
///
/// # Errors
/// When the JSON is not an object of this shape.
pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, serde_json::Error> {
    match json.trim_ascii_start().first() {
        Some(b'[') => Err(serde_json::Error::custom("expected an object, found a list")),
        _ => serde_json::from_slice(json),
    }
}
