//! The operations `channel_set`, `channel_get`, `channel_remove`, `channels_search` and `channels_similar`:
//! descriptions of channels, a search in them, and similar channels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_protocol::Error;
use touchline_store::{ChannelDescription, Search, SearchResult, Store, StoreRefusal};

use crate::api::description::OperationScope;
use crate::api::json::EmptyReply;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{channel_options, nullable, nullable_fields, plain};
use crate::auth::NamedChannels;
use crate::backend::store::refused;

/// The longest title, kind and tag, in bytes.
const TEXT_MAX: usize = 1_024;
/// The longest description, in bytes.
const DESCRIPTION_MAX: usize = 16 * 1_024;
const TAGS_MAX: usize = 64;
/// The number of channels in one answer: the default, and the maximum.
const PAGE: usize = 10;
const PAGE_MAX: usize = 100;
/// The most channels that a search may skip.
const OFFSET_MAX: usize = 10_000;

/// A request to replace the description of a channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"]), transform = nullable_fields)]
pub(crate) struct SetRequest {
    /// The channel to describe.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    channel: String,
    /// The title of the channel.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = TEXT_MAX))]
    title: String,
    /// What the channel is about; the text may contain line breaks.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = DESCRIPTION_MAX))]
    description: String,
    /// The kind of channel: a word of your own.
    #[serde(rename = "type", deserialize_with = "nullable")]
    #[schemars(length(max = TEXT_MAX))]
    kind: String,
    /// Words by which a search finds the channel.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = TAGS_MAX), inner(length(max = TEXT_MAX)))]
    tags: Vec<String>,
}

/// The operation `channel_set`.
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

    async fn run(node: RequestNode<'_>, request: SetRequest) -> Result<EmptyReply, OperationError> {
        let store = directory(node)?;
        let SetRequest { channel, title, description, kind, tags } = request;
        channel_options(node.generation(), "channel", &channel)?;
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
        // Line breaks and tabs are allowed in a description.
        plain("description", description.split(['\n', '\r', '\t']))?;
        let description = ChannelDescription { channel, title, description, kind, tags };
        written(|done| store.describe(description, done)).await
    }
}

/// The operation `channel_remove`.
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

    async fn run(node: RequestNode<'_>, request: DescriptionRequest) -> Result<EmptyReply, OperationError> {
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
    /// The name of the channel.
    #[serde(skip_serializing_if = "String::is_empty")]
    channel: String,
    /// The title of the channel.
    #[serde(skip_serializing_if = "String::is_empty")]
    title: String,
    /// What the channel is about.
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    /// The kind of channel.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    kind: String,
    /// Words by which a search finds the channel.
    tags: Vec<String>,
    /// How well the channel matches; absent = the operation is not a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
}

impl From<ChannelDescription> for DescribedChannel {
    fn from(description: ChannelDescription) -> Self {
        let ChannelDescription { channel, title, description, kind, tags } = description;
        DescribedChannel { channel, title, description, kind, tags, score: None }
    }
}

/// The operation `channel_get`.
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

    async fn run(node: RequestNode<'_>, request: DescriptionRequest) -> Result<DescribedChannel, OperationError> {
        plain("channel", [&request.channel])?;
        let found = found(node, Search::Channel(request.channel)).await?.into_iter().next();
        Ok(found.ok_or(Error::CHANNEL_NOT_DESCRIBED)?.description.into())
    }
}

/// A request about the description of one channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"]), transform = nullable_fields)]
pub(crate) struct DescriptionRequest {
    /// The channel that the description is about.
    #[serde(deserialize_with = "nullable")]
    channel: String,
}

/// A request to search the descriptions of channels.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct SearchRequest {
    /// Words that a description must contain, all of them; empty = all channels, by name.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = TEXT_MAX))]
    query: String,
    /// Only channels of this kind; empty = any kind.
    #[serde(rename = "type", deserialize_with = "nullable")]
    kind: String,
    /// Only channels with this tag; empty = with or without tags.
    #[serde(deserialize_with = "nullable")]
    tag: String,
    /// The greatest number of channels in the answer, up to 100; 0 = 10.
    #[serde(deserialize_with = "nullable")]
    limit: usize,
    /// The number of channels to skip at the beginning.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(max = OFFSET_MAX))]
    offset: usize,
}

/// The channels that a search found.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FoundReply {
    /// The channels, the best match first.
    channels: Vec<DescribedChannel>,
}

/// The operation `channels_search`.
pub(crate) struct ChannelsSearchOperation;

impl Operation for ChannelsSearchOperation {
    const NAME: &'static str = "channels_search";
    const SUMMARY: &'static str =
        "Finds channels that contain all words of a query, the best match first; without a query, all channels by name";
    const RESULT: &'static str = "`channels`, each as `channel_get` with its `score`";
    const EXAMPLE: &'static str = r#"{"query": "rovers"}"#;
    const REPLY_EXAMPLE: &'static str =
        r#"{"channels": [{"channel": "match:42", "title": "Rovers v United", "tags": ["football"], "score": 1.5}]}"#;
    const ERRORS: &'static [Error] = &[Error::NOT_AVAILABLE, Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = SearchRequest;
    type Reply = FoundReply;

    async fn run(node: RequestNode<'_>, request: SearchRequest) -> Result<FoundReply, OperationError> {
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

/// A request for channels that are similar to one channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"]), transform = nullable_fields)]
pub(crate) struct SimilarRequest {
    /// The channel that the others are compared with.
    #[serde(deserialize_with = "nullable")]
    channel: String,
    /// The greatest number of channels in the answer, up to 100; 0 = 10.
    #[serde(deserialize_with = "nullable")]
    limit: usize,
}

/// The operation `channels_similar`.
pub(crate) struct ChannelsSimilarOperation;

impl Operation for ChannelsSimilarOperation {
    const NAME: &'static str = "channels_similar";
    const SUMMARY: &'static str = "Finds the channels that have most in common with a channel, the most similar first";
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

    async fn run(node: RequestNode<'_>, request: SimilarRequest) -> Result<FoundReply, OperationError> {
        plain("channel", [&request.channel])?;
        list(node, Search::Similar { channel: request.channel, limit: page(request.limit) }).await
    }
}

fn directory(node: RequestNode<'_>) -> Result<&Store, Error> {
    node.node().store().filter(|_| node.generation().settings.store.directory).ok_or(Error::NOT_AVAILABLE)
}

fn page(limit: usize) -> usize {
    if limit == 0 { PAGE } else { limit.min(PAGE_MAX) }
}

/// Waits for a change of the directory. `write` starts the change.
async fn written(write: impl FnOnce(touchline_store::OnDone)) -> Result<EmptyReply, OperationError> {
    let (reply, outcome) = oneshot::channel();
    write(Box::new(move |outcome| {
        let _ = reply.send(outcome);
    }));
    outcome.await.unwrap_or(Err(StoreRefusal::Failed)).map_err(refused)?;
    Ok(EmptyReply {})
}

async fn found(node: RequestNode<'_>, find: Search) -> Result<Vec<SearchResult>, Error> {
    let (reply, found) = oneshot::channel();
    directory(node)?.search(
        find,
        Box::new(move |outcome| {
            let _ = reply.send(outcome);
        }),
    );
    found.await.unwrap_or(Err(StoreRefusal::Failed)).map_err(refused)
}

async fn list(node: RequestNode<'_>, find: Search) -> Result<FoundReply, OperationError> {
    let ranked = found(node, find).await?.into_iter().map(|SearchResult { description, score }| DescribedChannel {
        // Six digits after the decimal point. Further digits would show only the order of the additions.
        score: Some((score * 1e6).round() / 1e6),
        ..description.into()
    });
    Ok(FoundReply { channels: ranked.collect() })
}
