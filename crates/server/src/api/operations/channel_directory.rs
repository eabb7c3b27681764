//! `channel_set`, `channel_get`, `channel_remove`, `channels_search`, `channels_similar`: descriptions of channels, a
//! search in them, and similar channels.

use serde::Deserialize;
use tokio::sync::oneshot;
use touchline_protocol::Error;
use touchline_protocol::encode::{self, ObjectWriter};
use touchline_store::{ChannelDescription, Search, SearchResult, Store, StoreRefusal};

use super::{Json, done, nullable, plain};
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
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct SetRequest {
    channel: String,
    #[serde(deserialize_with = "nullable")]
    title: String,
    #[serde(deserialize_with = "nullable")]
    description: String,
    #[serde(rename = "type", deserialize_with = "nullable")]
    kind: String,
    #[serde(deserialize_with = "nullable")]
    tags: Vec<String>,
}

/// Replaces the description of a channel. Errors: 102, 107, 108 without a directory, 111, 4010.
pub(super) async fn set(node: &Node, request: SetRequest) -> Result<Json, Error> {
    let store = directory(node)?;
    let SetRequest { channel, title, description, kind, tags } = request;
    node.session.namespaces.resolve(&channel)?;
    let fits = title.len() <= TEXT_MAX && kind.len() <= TEXT_MAX && description.len() <= DESCRIPTION_MAX;
    if !fits || tags.len() > TAGS_MAX || tags.iter().any(|tag| tag.len() > TEXT_MAX) {
        return Err(Error::BAD_REQUEST);
    }
    let description = ChannelDescription { channel, title, description, kind, tags };
    plain([&description.title, &description.kind].into_iter().chain(&description.tags))?;
    // A description may have line breaks.
    plain(description.description.split(['\n', '\r', '\t']))?;
    written(|done| store.describe(description, done)).await
}

/// A request about one channel.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct OfChannel {
    channel: String,
    limit: usize,
}

/// Removes the description of a channel. Errors: 107, 108 without a directory, 111, 4010.
pub(super) async fn remove(node: &Node, request: OfChannel) -> Result<Json, Error> {
    let store = directory(node)?;
    plain([&request.channel])?;
    written(|done| store.forget(request.channel, done)).await
}

/// The description of a channel. Errors: 107, 108 without a directory, 111, 4010, 4012.
pub(super) async fn get(node: &Node, request: OfChannel) -> Result<Json, Error> {
    plain([&request.channel])?;
    let found = found(node, Search::Channel(request.channel)).await?;
    let mut out = Vec::new();
    found.first().ok_or(Error::CHANNEL_NOT_DESCRIBED).map(|found| write(&mut out, found, false))?;
    Ok(out)
}

/// The query of a search, and the page of its results.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct SearchRequest {
    #[serde(deserialize_with = "nullable")]
    query: String,
    #[serde(rename = "type", deserialize_with = "nullable")]
    kind: String,
    #[serde(deserialize_with = "nullable")]
    tag: String,
    limit: usize,
    offset: usize,
}

/// Channels that have all words of a query, the best first; without a query all, by name. Errors: 107, 108 without a
/// directory, 111, 4010.
pub(super) async fn search(node: &Node, request: SearchRequest) -> Result<Json, Error> {
    let SearchRequest { query, kind, tag, limit, offset } = request;
    if query.len() > TEXT_MAX || offset > OFFSET_MAX {
        return Err(Error::BAD_REQUEST);
    }
    plain(query.split(['\n', '\r', '\t']).chain([&*kind, &*tag]))?;
    list(node, Search::Search { words: query, kind, tag, limit: page(limit), offset }).await
}

/// The channels that have most in common with one, the most similar first. Errors: 107, 108 without a directory, 111,
/// 4010, 4012.
pub(super) async fn similar(node: &Node, request: OfChannel) -> Result<Json, Error> {
    plain([&request.channel])?;
    list(node, Search::Similar { channel: request.channel, limit: page(request.limit) }).await
}

fn directory(node: &Node) -> Result<&Store, Error> {
    node.store().filter(|_| node.settings.store.directory).ok_or(Error::NOT_AVAILABLE)
}

fn page(limit: usize) -> usize {
    if limit == 0 { PAGE } else { limit.min(PAGE_MAX) }
}

async fn written(write: impl FnOnce(touchline_store::OnDone)) -> Result<Json, Error> {
    let (reply, outcome) = oneshot::channel();
    write(Box::new(move |outcome| {
        let _ = reply.send(outcome);
    }));
    outcome.await.unwrap_or(Err(StoreRefusal::Failed)).map(|()| done()).map_err(refused)
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

async fn list(node: &Node, find: Search) -> Result<Json, Error> {
    let found = found(node, find).await?;
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::list(object.key("channels"), &found, |out, found| write(out, found, true));
    object.close();
    Ok(out)
}

fn write(out: &mut Vec<u8>, found: &SearchResult, is_ranked: bool) {
    let SearchResult { description: ChannelDescription { channel, title, description, kind, tags }, score } = found;
    let mut object = ObjectWriter::open(out);
    object.text("channel", channel).text("title", title).text("description", description).text("type", kind);
    encode::list(object.key("tags"), tags, |out, tag| encode::text(out, tag));
    if is_ranked {
        object.key("score").extend_from_slice(format!("{score:.6}").as_bytes());
    }
    object.close();
}
