//! `channel_set`, `channel_get`, `channel_remove`, `channels_search`, `channels_similar`: descriptions of channels, a
//! search in them, and similar channels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_protocol::Error;
use touchline_store::{ChannelDescription, Search, SearchResult, Store, StoreRefusal};

use crate::api::description::OperationScope;
use crate::api::json::EmptyReply;
use crate::api::operation::{Operation, OperationError};
use crate::api::params::{channel_options, nullable, nullable_fields, plain};
use crate::auth::NamedChannels;
use crate::backend::store::refused;
use crate::node::Node;

/// Longest title, kind and tag, bytes.
const TEXT_MAX: usize = 1_024;
/// Longest description, bytes.
const DESCRIPTION_MAX: usize = 16 * 1_024;
const TAGS_MAX: usize = 64;
/// Channels in one answer: the default, and the maximum.
const PAGE: usize = 10;
const PAGE_MAX: usize = 100;
/// Channels that a search may skip.
const OFFSET_MAX: usize = 10_000;

/// The new description of a channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"]), transform = nullable_fields)]
pub(crate) struct SetRequest {
    /// The channel.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    channel: String,
    /// The title.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = TEXT_MAX))]
    title: String,
    /// What the channel is about; it may have line breaks.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = DESCRIPTION_MAX))]
    description: String,
    /// What kind of channel it is.
    #[serde(rename = "type", deserialize_with = "nullable")]
    #[schemars(length(max = TEXT_MAX))]
    kind: String,
    /// Words that the channel is found by.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = TAGS_MAX), inner(length(max = TEXT_MAX)))]
    tags: Vec<String>,
}

/// `channel_set`.
pub(crate) struct ChannelSetOperation;

impl Operation for ChannelSetOperation {
    const NAME: &'static str = "channel_set";
    const SUMMARY: &'static str = "Replaces the description of a channel";
    const EXAMPLE: &'static str = r#"{"channel": "match:42", "title": "Rovers v United", "tags": ["football"]}"#;
    const ERRORS: &'static [Error] =
        &[Error::UNKNOWN_CHANNEL, Error::NOT_AVAILABLE, Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = SetRequest;
    type Reply = EmptyReply;

    fn channels<'r>(request: &'r SetRequest) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    async fn run(node: &Node, request: SetRequest) -> Result<EmptyReply, OperationError> {
        let store = directory(node)?;
        let SetRequest { channel, title, description, kind, tags } = request;
        channel_options(&node.generation(), "channel", &channel)?;
        let are_short = tags.len() <= TAGS_MAX && tags.iter().all(|tag| tag.len() <= TEXT_MAX);
        for (field, fits) in [
            ("title", title.len() <= TEXT_MAX),
            ("type", kind.len() <= TEXT_MAX),
            ("description", description.len() <= DESCRIPTION_MAX),
            ("tags", are_short),
        ] {
            fits.then_some(()).ok_or(OperationError::bad(field))?;
        }
        plain("title", [&title])?;
        plain("type", [&kind])?;
        plain("tags", &tags)?;
        // A description may have line breaks.
        plain("description", description.split(['\n', '\r', '\t']))?;
        let description = ChannelDescription { channel, title, description, kind, tags };
        written(|done| store.describe(description, done)).await
    }
}

/// `channel_remove`.
pub(crate) struct ChannelRemoveOperation;

impl Operation for ChannelRemoveOperation {
    const NAME: &'static str = "channel_remove";
    const SUMMARY: &'static str = "Removes the description of a channel; the channel itself stays";
    const EXAMPLE: &'static str = r#"{"channel": "match:42"}"#;
    const ERRORS: &'static [Error] = &[Error::NOT_AVAILABLE, Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = DescriptionRequest;
    type Reply = EmptyReply;

    fn channels<'r>(request: &'r DescriptionRequest) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    async fn run(node: &Node, request: DescriptionRequest) -> Result<EmptyReply, OperationError> {
        let store = directory(node)?;
        plain("channel", [&request.channel])?;
        if request.channel.is_empty() {
            return Err(OperationError::bad("channel"));
        }
        written(|done| store.forget(request.channel, done)).await
    }
}

/// A channel with its description.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DescribedChannel {
    /// The channel.
    #[serde(skip_serializing_if = "String::is_empty")]
    channel: String,
    /// The title.
    #[serde(skip_serializing_if = "String::is_empty")]
    title: String,
    /// What the channel is about.
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    /// What kind of channel it is.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    kind: String,
    /// Words that the channel is found by.
    tags: Vec<String>,
    /// How well it fits; None = it was not searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
}

impl From<ChannelDescription> for DescribedChannel {
    fn from(description: ChannelDescription) -> Self {
        let ChannelDescription { channel, title, description, kind, tags } = description;
        DescribedChannel { channel, title, description, kind, tags, score: None }
    }
}

/// `channel_get`.
pub(crate) struct ChannelGetOperation;

impl Operation for ChannelGetOperation {
    const NAME: &'static str = "channel_get";
    const SUMMARY: &'static str = "Reads the description of a channel";
    const RESULT: &'static str = "`channel`, `title`, `description`, `type`, `tags`";
    const EXAMPLE: &'static str = r#"{"channel": "match:42"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"channel": "match:42", "title": "Rovers v United", "tags": ["football"]}"#;
    const ERRORS: &'static [Error] =
        &[Error::NOT_AVAILABLE, Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE, Error::CHANNEL_NOT_DESCRIBED];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = DescriptionRequest;
    type Reply = DescribedChannel;

    fn channels<'r>(request: &'r DescriptionRequest) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    async fn run(node: &Node, request: DescriptionRequest) -> Result<DescribedChannel, OperationError> {
        plain("channel", [&request.channel])?;
        let found = found(node, Search::Channel(request.channel)).await?.into_iter().next();
        Ok(found.ok_or(Error::CHANNEL_NOT_DESCRIBED)?.description.into())
    }
}

/// Names the channel whose description is read or removed.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"]), transform = nullable_fields)]
pub(crate) struct DescriptionRequest {
    /// The channel.
    #[serde(deserialize_with = "nullable")]
    channel: String,
}

/// The query of a search, and the page of its results.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct SearchRequest {
    /// Words that must all be there; empty = all channels, by name.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = TEXT_MAX))]
    query: String,
    /// Only channels of this kind; empty = of all.
    #[serde(rename = "type", deserialize_with = "nullable")]
    kind: String,
    /// Only channels with this tag; empty = with any.
    #[serde(deserialize_with = "nullable")]
    tag: String,
    /// Channels in the answer, 100 at most; 0 = 10.
    #[serde(deserialize_with = "nullable")]
    limit: usize,
    /// Channels that are left out at the beginning.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(max = OFFSET_MAX))]
    offset: usize,
}

/// Channels that were found, the best first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FoundReply {
    /// The channels, the best first.
    channels: Vec<DescribedChannel>,
}

/// `channels_search`.
pub(crate) struct ChannelsSearchOperation;

impl Operation for ChannelsSearchOperation {
    const NAME: &'static str = "channels_search";
    const SUMMARY: &'static str =
        "Finds channels that have all words of a query, the best first; without a query all, by name";
    const RESULT: &'static str = "`channels`, each as `channel_get` with its `score`";
    const EXAMPLE: &'static str = r#"{"query": "rovers"}"#;
    const REPLY_EXAMPLE: &'static str =
        r#"{"channels": [{"channel": "match:42", "title": "Rovers v United", "tags": ["football"], "score": 1.5}]}"#;
    const ERRORS: &'static [Error] = &[Error::NOT_AVAILABLE, Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = SearchRequest;
    type Reply = FoundReply;

    async fn run(node: &Node, request: SearchRequest) -> Result<FoundReply, OperationError> {
        let SearchRequest { query, kind, tag, limit, offset } = request;
        if query.len() > TEXT_MAX {
            return Err(OperationError::bad("query"));
        }
        if offset > OFFSET_MAX {
            return Err(OperationError::bad("offset"));
        }
        plain("query", query.split(['\n', '\r', '\t']))?;
        plain("type", [&kind])?;
        plain("tag", [&tag])?;
        list(node, Search::Search { words: query, kind, tag, limit: page(limit), offset }).await
    }
}

/// Asks for channels that are like one.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"]), transform = nullable_fields)]
pub(crate) struct SimilarRequest {
    /// The channel that the others are compared with.
    #[serde(deserialize_with = "nullable")]
    channel: String,
    /// Channels in the answer, 100 at most; 0 = 10.
    #[serde(deserialize_with = "nullable")]
    limit: usize,
}

/// `channels_similar`.
pub(crate) struct ChannelsSimilarOperation;

impl Operation for ChannelsSimilarOperation {
    const NAME: &'static str = "channels_similar";
    const SUMMARY: &'static str = "Finds the channels that have most in common with one, the most similar first";
    const RESULT: &'static str = "as `channels_search`";
    const EXAMPLE: &'static str = r#"{"channel": "match:42"}"#;
    const REPLY_EXAMPLE: &'static str =
        r#"{"channels": [{"channel": "match:42", "title": "Rovers v United", "tags": ["football"], "score": 1.5}]}"#;
    const ERRORS: &'static [Error] =
        &[Error::NOT_AVAILABLE, Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE, Error::CHANNEL_NOT_DESCRIBED];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = SimilarRequest;
    type Reply = FoundReply;

    fn channels<'r>(request: &'r SimilarRequest) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    async fn run(node: &Node, request: SimilarRequest) -> Result<FoundReply, OperationError> {
        plain("channel", [&request.channel])?;
        list(node, Search::Similar { channel: request.channel, limit: page(request.limit) }).await
    }
}

fn directory(node: &Node) -> Result<&Store, Error> {
    node.store().filter(|_| node.generation().settings.store.directory).ok_or(Error::NOT_AVAILABLE)
}

fn page(limit: usize) -> usize {
    if limit == 0 { PAGE } else { limit.min(PAGE_MAX) }
}

/// Waits for a change of the directory. `write`: begins it.
async fn written(write: impl FnOnce(touchline_store::OnDone)) -> Result<EmptyReply, OperationError> {
    let (reply, outcome) = oneshot::channel();
    write(Box::new(move |outcome| {
        let _ = reply.send(outcome);
    }));
    outcome.await.unwrap_or(Err(StoreRefusal::Failed)).map_err(refused)?;
    Ok(EmptyReply {})
}

async fn found(node: &Node, find: Search) -> Result<Vec<SearchResult>, Error> {
    let (reply, found) = oneshot::channel();
    directory(node)?.search(
        find,
        Box::new(move |outcome| {
            let _ = reply.send(outcome);
        }),
    );
    found.await.unwrap_or(Err(StoreRefusal::Failed)).map_err(refused)
}

async fn list(node: &Node, find: Search) -> Result<FoundReply, OperationError> {
    let ranked = found(node, find).await?.into_iter().map(|SearchResult { description, score }| DescribedChannel {
        // Six digits behind the point: more would tell of nothing but the order of additions.
        score: Some((score * 1e6).round() / 1e6),
        ..description.into()
    });
    Ok(FoundReply { channels: ranked.collect() })
}
