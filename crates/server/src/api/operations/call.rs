//! Decoded operations. All operations of a batch are decoded before the first is run, so that a malformed one stops the
//! batch before it has done anything.

use serde::Deserialize;
use serde::de::Error as _;
use touchline_engine::directory::RegistryMethod;
use touchline_protocol::Error;

use super::channel_directory::{OfChannel, SearchRequest, SetRequest};
use super::channels::{ChannelsRequest, OneChannelRequest};
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
    request: CallRequest<'a>,
}

/// The parameters, by operation.
enum CallRequest<'a> {
    Publish(PublishRequest<'a>),
    Broadcast(BroadcastRequest<'a>),
    // Boxed, because it is large: the others would be moved with as many bytes.
    Subscribe(Box<SubscribeRequest<'a>>),
    Unsubscribe(UnsubscribeRequest),
    Disconnect(DisconnectRequest),
    Refresh(RefreshRequest<'a>),
    Presence(OneChannelRequest),
    PresenceStats(OneChannelRequest),
    History(HistoryRequest),
    HistoryRemove(OneChannelRequest),
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
    Registry(RegistryMethod),
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
            "publish" => CallRequest::Publish(object(params)?),
            "broadcast" => CallRequest::Broadcast(object(params)?),
            "subscribe" => CallRequest::Subscribe(Box::new(object(params)?)),
            "unsubscribe" => CallRequest::Unsubscribe(object(params)?),
            "disconnect" => CallRequest::Disconnect(object(params)?),
            "refresh" => CallRequest::Refresh(object(params)?),
            "presence" => CallRequest::Presence(object(params)?),
            "presence_stats" => CallRequest::PresenceStats(object(params)?),
            "history" => CallRequest::History(object(params)?),
            "history_remove" => CallRequest::HistoryRemove(object(params)?),
            "channel_set" => CallRequest::ChannelSet(object(params)?),
            "channel_get" => CallRequest::ChannelGet(object(params)?),
            "channel_remove" => CallRequest::ChannelRemove(object(params)?),
            "channels_search" => CallRequest::ChannelsSearch(object(params)?),
            "channels_similar" => CallRequest::ChannelsSimilar(object(params)?),
            "stats_audience" => CallRequest::StatsAudience(object(params)?),
            "stats_top" => CallRequest::StatsTop(object(params)?),
            "stats_events" => CallRequest::StatsEvents(object(params)?),
            "channels" => CallRequest::Channels(object(params)?),
            "info" => object::<serde::de::IgnoredAny>(params).map(|_| CallRequest::Info)?,
            method => match RegistryMethod::from_name(method).filter(|method| method.is_operation()) {
                Some(method) => object::<serde::de::IgnoredAny>(params).map(|_| CallRequest::Registry(method))?,
                None => CallRequest::Unknown,
            },
        };
        Ok(Call { method, params, request })
    }

    /// Whether no operation has this name. `rpc` has one: applications define its methods, and this server has none.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.request, CallRequest::Unknown) && self.method != "rpc"
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
            CallRequest::Publish(request) => publish::publish(node, request).await,
            CallRequest::Broadcast(request) => publish::broadcast(node, request).await,
            CallRequest::Subscribe(request) => connections::subscribe(node, *request).await,
            CallRequest::Unsubscribe(request) => connections::unsubscribe(node, request).await,
            CallRequest::Disconnect(request) => connections::disconnect(node, request).await,
            CallRequest::Refresh(request) => connections::refresh(node, request).await,
            CallRequest::Presence(request) => presence::presence(node, request).await,
            CallRequest::PresenceStats(request) => presence::presence_stats(node, request).await,
            CallRequest::History(request) => history::history(node, request).await,
            CallRequest::HistoryRemove(request) => history::history_remove(node, request).await,
            CallRequest::ChannelSet(request) => channel_directory::set(node, request).await,
            CallRequest::ChannelGet(request) => channel_directory::get(node, request).await,
            CallRequest::ChannelRemove(request) => channel_directory::remove(node, request).await,
            CallRequest::ChannelsSearch(request) => channel_directory::search(node, request).await,
            CallRequest::ChannelsSimilar(request) => channel_directory::similar(node, request).await,
            CallRequest::StatsAudience(request) => stats::audience(node, request).await,
            CallRequest::StatsTop(request) => stats::top(node, request).await,
            CallRequest::StatsEvents(request) => stats::events(node, request).await,
            CallRequest::Channels(request) => channels::channels(node, request).await,
            CallRequest::Info => info::info(node).await,
            CallRequest::Registry(method) => registry::run(node, method, self.params).await,
            CallRequest::Unknown => Err(Error::METHOD_NOT_FOUND),
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
