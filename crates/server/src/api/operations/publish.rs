//! `publish` and `broadcast`.

use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_engine::request::Publish;
use touchline_engine::{ChannelRequest, Response};
use touchline_protocol::Error;
use touchline_protocol::encode::ObjectWriter;
use touchline_protocol::publication::{Content, Tags};
use touchline_protocol::stream::StreamPosition;

use super::{Json, nullable, payload, plain, write_result, yield_sometimes};
use crate::node::Node;

/// Channels that one broadcast reaches.
const CHANNELS_MAX: usize = 10_000;

/// Publishes into one channel.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct PublishRequest<'a> {
    #[serde(deserialize_with = "nullable")]
    channel: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(deserialize_with = "nullable")]
    b64data: String,
    #[serde(deserialize_with = "nullable")]
    skip_history: bool,
    #[serde(deserialize_with = "nullable")]
    tags: Tags,
    #[serde(deserialize_with = "nullable")]
    idempotency_key: String,
    #[serde(deserialize_with = "nullable")]
    version: u64,
    #[serde(deserialize_with = "nullable")]
    version_epoch: String,
    /// Seconds; 0 = it does not expire.
    #[serde(deserialize_with = "nullable")]
    expires_in: u64,
}

/// Publishes the same into many channels.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct BroadcastRequest<'a> {
    #[serde(deserialize_with = "nullable")]
    channels: Vec<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(deserialize_with = "nullable")]
    b64data: String,
    #[serde(deserialize_with = "nullable")]
    skip_history: bool,
    #[serde(deserialize_with = "nullable")]
    tags: Tags,
    #[serde(deserialize_with = "nullable")]
    idempotency_key: String,
    #[serde(deserialize_with = "nullable")]
    version: u64,
    #[serde(deserialize_with = "nullable")]
    version_epoch: String,
    /// Seconds; 0 = it does not expire.
    #[serde(deserialize_with = "nullable")]
    expires_in: u64,
}

/// Errors: 102, 107, 111. Result: `offset`, `epoch` in a channel with history.
pub(super) async fn publish(node: &Node, request: PublishRequest<'_>) -> Result<Json, Error> {
    keys(node, &request.idempotency_key, &request.version_epoch)?;
    let data = payload(request.data, &request.b64data)?.ok_or(Error::BAD_REQUEST)?;
    let publish = Publish {
        content: Content { data, tags: request.tags, info: None, expires_ms: expiry(node, request.expires_in) },
        skip_history: request.skip_history,
        idempotency_key: request.idempotency_key.into(),
        version: request.version,
        version_epoch: request.version_epoch.into(),
    };
    publish_one(node, &request.channel, publish).await
}

/// Errors: 107. Result: `responses`, one for each channel, each with `result` or `error`.
pub(super) async fn broadcast(node: &Node, request: BroadcastRequest<'_>) -> Result<Json, Error> {
    if request.channels.is_empty() || request.channels.len() > CHANNELS_MAX {
        return Err(Error::BAD_REQUEST);
    }
    keys(node, &request.idempotency_key, &request.version_epoch)?;
    let data = payload(request.data, &request.b64data)?.ok_or(Error::BAD_REQUEST)?;
    let expires_ms = expiry(node, request.expires_in);
    let mut out = b"{\"responses\":[".to_vec();
    for (index, channel) in request.channels.iter().enumerate() {
        let publish = Publish {
            content: Content { data: data.clone(), tags: request.tags.clone(), info: None, expires_ms },
            skip_history: request.skip_history,
            idempotency_key: request.idempotency_key.as_str().into(),
            version: request.version,
            version_epoch: request.version_epoch.as_str().into(),
        };
        if index > 0 {
            out.push(b',');
        }
        write_result(&mut out, &publish_one(node, channel, publish).await);
        yield_sometimes(index).await;
    }
    out.extend_from_slice(b"]}");
    Ok(out)
}

/// Checks a text that is stored with a publication and later searched for.
///
/// # Errors
/// 107 when it is too long or has control characters.
fn keys(node: &Node, idempotency_key: &str, version_epoch: &str) -> Result<(), Error> {
    let most = node.session.namespaces.settings().idempotency_key_max_length;
    if idempotency_key.len().max(version_epoch.len()) > most {
        return Err(Error::BAD_REQUEST);
    }
    plain([idempotency_key, version_epoch])
}

/// The end of a lifetime of so many seconds from now, Unix milliseconds.
fn expiry(node: &Node, expires_in_s: u64) -> u64 {
    if expires_in_s == 0 { 0 } else { node.clock.now_ms().saturating_add(expires_in_s.saturating_mul(1_000)) }
}

async fn publish_one(node: &Node, channel: &str, publish: Publish) -> Result<Json, Error> {
    node.session.namespaces.resolve(channel)?;
    if node.is_overloaded() {
        return Err(Error::TOO_MANY_REQUESTS);
    }
    match node.request_home(channel, ChannelRequest::Publish(Box::new(publish))).await {
        Response::Published(position) => Ok(published(position)),
        Response::Refused(error) => Err(error),
        _ => Err(Error::INTERNAL),
    }
}

fn published(position: Option<StreamPosition>) -> Json {
    let mut out = Vec::with_capacity(40);
    let mut object = ObjectWriter::open(&mut out);
    if let Some(position) = position {
        object.number("offset", position.offset.0).text("epoch", position.epoch.as_str());
    }
    object.close();
    out
}
