//! The operations `publish` and `broadcast`.

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use touchline_engine::directory::{client_from_text, client_text};
use touchline_engine::request::Publish;
use touchline_engine::{ChannelOptions, ChannelRequest, Response};
use touchline_protocol::Error;
use touchline_protocol::fact::NAME_LEN_MAX;
use touchline_protocol::notation::decode_base64;
use touchline_protocol::payload::RawPayload;
use touchline_protocol::publication::{Content, Exclusion, Tags};
use touchline_protocol::stream::{Epoch, StreamPosition};

use super::dry_run::Audience;
use crate::api::description::OperationScope;
use crate::api::json::ErrorJson;
use crate::api::operation::{Operation, OperationError, OtherNodes, Placed as _, RequestNode};
use crate::api::params::{any_json, channel_options, nullable, nullable_fields, plain};
use crate::api::remedy::{EXPLAINED, explained_channel};
use crate::api::steps::{STEPS_AT_A_TIME, run_steps};
use crate::auth::NamedChannels;
use crate::traces::{TRACEPARENT, handed_on};

/// The most channels that one broadcast may name.
const CHANNELS_MAX: usize = 10_000;

// A stored publication writes the length of an excluded user into 16 bits, so the longest user has to fit.
const _: () = assert!(NAME_LEN_MAX < u16::MAX as usize / 2);

/// The data of a publication, as the request gives them.
enum GivenData<'a> {
    /// The field `data`, unchanged.
    Plain(RawPayload<'a>),
    /// The field `b64data`, decoded from base64.
    Decoded(Vec<u8>),
}

impl<'a> GivenData<'a> {
    /// Takes `data` if the request has both fields.
    ///
    /// # Errors
    /// 107 when the request has neither field, or `b64data` is not base64.
    fn read(data: Option<RawPayload<'a>>, base64: &str) -> Result<Self, OperationError> {
        match data {
            Some(data) => Ok(GivenData::Plain(data)),
            None if base64.is_empty() => Err(OperationError::bad("data")),
            None => decode_base64(base64).map(GivenData::Decoded).ok_or(OperationError::bad("b64data")),
        }
    }

    /// Returns the payload for a channel with these options.
    ///
    /// # Errors
    /// 107 when the data do not have the format of the namespace.
    fn formatted(&self, options: &ChannelOptions) -> Result<Bytes, OperationError> {
        let (field, data) = match self {
            GivenData::Plain(data) => ("data", *data),
            GivenData::Decoded(bytes) => ("b64data", RawPayload::Bytes(bytes)),
        };
        let payload = options.publication_data_format.payload(data);
        payload.map_err(|error| OperationError { field: Some(field), ..error.into() })
    }
}

/// A request to publish into one channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel"], "anyOf" = [{"required": ["data"]}, {"required": ["b64data"]}]))]
#[schemars(transform = nullable_fields)]
pub(crate) struct PublishRequest<'a> {
    /// The channel to publish into.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    pub(in crate::api) channel: String,
    /// The data of the publication: any JSON.
    #[serde(borrow)]
    #[schemars(schema_with = "any_json")]
    pub(in crate::api) data: Option<RawPayload<'a>>,
    /// `data` as base64: JSON, or any bytes in a namespace whose `publication_data_format` is `binary`.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("contentEncoding" = "base64"))]
    pub(in crate::api) b64data: String,
    /// Deliver the publication, but do not keep it in the history.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) skip_history: bool,
    /// Labels of the publication. Filters of subscribers can compare them.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) tags: Tags,
    /// Several requests with the same key within five minutes publish only once. The key has
    /// `channel.idempotency_key_max_length` bytes at most; empty = no key.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) idempotency_key: String,
    /// The version of the data. The channel drops a publication whose version is not above its newest one; 0 = no
    /// version.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) version: u64,
    /// The name of the series of versions that `version` belongs to. Versions of different series are not compared.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) version_epoch: String,
    /// Seconds until the publication expires: no client gets it later; 0 = it does not expire.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) expires_in: u64,
    /// The client id of a connection that the publication is not delivered to; empty = none. The history still shows
    /// it.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) exclude_client: String,
    /// A user whose connections the publication is not delivered to; empty = none. The history still shows it.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = NAME_LEN_MAX))]
    pub(in crate::api) exclude_user: String,
    /// Publish nothing. The result's `audience` counts the clients that would get the publication.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) dry_run: bool,
}

/// A request to publish the same data into many channels.
///
/// All fields but the first repeat those of [`PublishRequest`]. A shared struct would have to be flattened, and serde
/// then reads every publication into a map first.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channels"], "anyOf" = [{"required": ["data"]}, {"required": ["b64data"]}]))]
#[schemars(transform = nullable_fields)]
pub(crate) struct BroadcastRequest<'a> {
    /// The channels to publish into.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = CHANNELS_MAX))]
    pub(in crate::api) channels: Vec<String>,
    /// The data of the publication: any JSON.
    #[serde(borrow)]
    #[schemars(schema_with = "any_json")]
    pub(in crate::api) data: Option<RawPayload<'a>>,
    /// `data` as base64: JSON, or any bytes in a namespace whose `publication_data_format` is `binary`.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("contentEncoding" = "base64"))]
    pub(in crate::api) b64data: String,
    /// Deliver the publication, but do not keep it in the history.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) skip_history: bool,
    /// Labels of the publication. Filters of subscribers can compare them.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) tags: Tags,
    /// Several requests with the same key within five minutes publish only once. The key has
    /// `channel.idempotency_key_max_length` bytes at most; empty = no key.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) idempotency_key: String,
    /// The version of the data. The channel drops a publication whose version is not above its newest one; 0 = no
    /// version.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) version: u64,
    /// The name of the series of versions that `version` belongs to. Versions of different series are not compared.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) version_epoch: String,
    /// Seconds until the publication expires: no client gets it later; 0 = it does not expire.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) expires_in: u64,
    /// The client id of a connection that the publication is not delivered to; empty = none. The history still shows
    /// it.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) exclude_client: String,
    /// A user whose connections the publication is not delivered to; empty = none. The history still shows it.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(max = NAME_LEN_MAX))]
    pub(in crate::api) exclude_user: String,
    /// Only `publish` has a dry run. `broadcast` refuses `true` with 107, so that a caller that only wants to count
    /// does not publish by mistake.
    #[serde(deserialize_with = "nullable")]
    pub(in crate::api) dry_run: bool,
}

/// The position of the publication; empty in a channel without history.
#[derive(Serialize, Default, JsonSchema)]
pub(crate) struct PublishReply {
    /// The number of the publication in the channel's log; absent in a channel without history.
    #[serde(skip_serializing_if = "is_zero")]
    pub(in crate::api) offset: u64,
    /// The epoch of the log that the offset belongs to; absent in a channel without history.
    #[serde(skip_serializing_if = "is_empty", serialize_with = "text")]
    #[schemars(with = "String")]
    pub(in crate::api) epoch: Epoch,
    /// The clients that would get the publication; only for a request with `dry_run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Audience")]
    pub(in crate::api) audience: Option<Box<Audience>>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_empty(epoch: &Epoch) -> bool {
    epoch.as_str().is_empty()
}

fn text<S: serde::Serializer>(epoch: &Epoch, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(epoch.as_str())
}

impl From<Option<StreamPosition>> for PublishReply {
    fn from(position: Option<StreamPosition>) -> Self {
        position.map_or_else(PublishReply::default, |at| PublishReply {
            offset: at.offset.0,
            epoch: at.epoch,
            audience: None,
        })
    }
}

/// The operation `publish`.
pub(crate) struct PublishOperation;

impl Operation for PublishOperation {
    const NAME: &'static str = "publish";
    const SUMMARY: &'static str = "Publishes into a channel; with an `idempotency_key` it may be repeated";
    const RESULT: &'static str = "`offset`, `epoch` in a channel with history; with `dry_run`: `audience`";
    const EXAMPLE: &'static str = r#"{"channel": "news", "data": {"headline": "Kick-off"}}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"offset": 1, "epoch": "aXk3bQpz"}"#;
    const ERRORS: &'static [Error] = PUBLISH_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = false;
    const NUMBER: Option<usize> = Some(0);

    type Request<'a> = PublishRequest<'a>;
    type Reply = PublishReply;

    fn channels<'r>(request: &'r PublishRequest<'_>) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    fn is_gathered(request: &PublishRequest<'_>) -> bool {
        request.dry_run
    }

    fn merge(reply: &mut PublishReply, others: &OtherNodes<'_>) {
        reply.audience.iter_mut().for_each(|audience| audience.merge(others));
    }

    async fn run<'a>(node: RequestNode<'a>, request: PublishRequest<'a>) -> Result<PublishReply, OperationError> {
        let is_dry_run = request.dry_run;
        let (channel, options, publish) = Self::checked(node, request)?;
        if is_dry_run {
            return Box::pin(dry_run(node, &channel, options, publish)).await;
        }
        publish_one(node, &channel, publish).await
    }
}

impl PublishOperation {
    /// Returns the channel, its options and the publication.
    ///
    /// # Errors
    /// 107 for a field that cannot be used, 102 for an unknown namespace.
    #[inline]
    pub(in crate::api) fn checked<'g>(
        node: RequestNode<'g>,
        request: PublishRequest<'_>,
    ) -> Result<(String, &'g ChannelOptions, Publish), OperationError> {
        check_keys(node, &request.idempotency_key, &request.version_epoch)?;
        let exclusion = exclusion(&request.exclude_client, &request.exclude_user)?;
        let options = channel_options(node.generation(), "channel", &request.channel)?;
        let data = GivenData::read(request.data, &request.b64data)?.formatted(options)?;
        let publish = Publish {
            content: Content {
                data,
                tags: traced(request.tags),
                info: None,
                expires_ms: expiry(node, request.expires_in),
            },
            exclusion,
            skip_history: request.skip_history,
            idempotency_key: request.idempotency_key.into(),
            version: request.version,
            version_epoch: request.version_epoch.into(),
        };
        Ok((request.channel, options, publish))
    }
}

/// Adds the trace context of the current call to the tags of a publication, if the call is traced and the tags do not
/// contain a context.
fn traced(mut tags: Tags) -> Tags {
    if let Some(parent) = handed_on() {
        tags.entry(TRACEPARENT.to_owned()).or_insert(parent);
    }
    tags
}

/// The errors that a publication into one channel may return.
const PUBLISH_ERRORS: &[Error] = &[
    Error::UNKNOWN_CHANNEL,
    Error::LIMIT_EXCEEDED,
    Error::TOO_MANY_REQUESTS,
    Error::CLUSTER_UNREACHABLE,
    Error::STORE_UNAVAILABLE,
];

/// The outcomes of a broadcast, one for each channel, in the order of the request.
#[derive(Serialize, JsonSchema)]
pub(crate) struct BroadcastReply {
    /// One outcome for each channel, in the order of `channels`.
    pub(in crate::api) responses: Vec<ChannelOutcome>,
}

/// The outcome of a broadcast in one channel.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::api) enum ChannelOutcome {
    /// The publication was accepted.
    Result(PublishReply),
    /// The publication was refused.
    Error(ErrorJson),
}

/// The operation `broadcast`.
pub(crate) struct BroadcastOperation;

impl Operation for BroadcastOperation {
    const NAME: &'static str = "broadcast";
    const SUMMARY: &'static str = "Publishes the same data into up to 10,000 channels";
    const RESULT: &'static str = "`responses`, each with `result` or `error`";
    const EXAMPLE: &'static str = r#"{"channels": ["news", "sport"], "data": {"headline": "Kick-off"}}"#;
    const REPLY_EXAMPLE: &'static str = r#"{
        "responses": [
            {"result": {"offset": 1, "epoch": "aXk3bQpz"}},
            {"error": {"code": 102, "message": "unknown channel"}}
        ]
    }"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = false;
    const NUMBER: Option<usize> = Some(1);

    type Request<'a> = BroadcastRequest<'a>;
    type Reply = BroadcastReply;

    fn channels<'r>(request: &'r BroadcastRequest<'_>) -> NamedChannels<'r> {
        NamedChannels::Many(&request.channels)
    }

    async fn run<'a>(node: RequestNode<'a>, request: BroadcastRequest<'a>) -> Result<BroadcastReply, OperationError> {
        if request.channels.is_empty() || request.channels.len() > CHANNELS_MAX {
            return Err(OperationError::bad("channels"));
        }
        if request.dry_run {
            return Err(OperationError::bad("dry_run"));
        }
        check_keys(node, &request.idempotency_key, &request.version_epoch)?;
        let exclusion = exclusion(&request.exclude_client, &request.exclude_user)?;
        let data = GivenData::read(request.data, &request.b64data)?;
        let tags = traced(request.tags);
        let expires_ms = expiry(node, request.expires_in);
        let publish = async |channel: &String| {
            let options = channel_options(node.generation(), "channels", channel)?;
            let publish = Publish {
                content: Content { data: data.formatted(options)?, tags: tags.clone(), info: None, expires_ms },
                exclusion: exclusion.clone(),
                skip_history: request.skip_history,
                idempotency_key: request.idempotency_key.as_str().into(),
                version: request.version,
                version_epoch: request.version_epoch.as_str().into(),
            };
            publish_one(node, channel, publish).await
        };
        let outcomes = run_steps(node, request.channels.iter().map(publish), STEPS_AT_A_TIME).await;
        let mut refused = 0;
        let each = outcomes.into_iter().zip(&request.channels);
        let responses = each.map(|(outcome, channel)| match outcome.result().flatten() {
            Ok(position) => ChannelOutcome::Result(position),
            Err(refusal) => {
                refused += 1;
                let refusal = if refused <= EXPLAINED { explained_channel(node, channel, refusal) } else { refusal };
                node.note_refused(&refusal);
                node.metrics_here().operations.count_error(BroadcastOperation::PLACE, refusal.error.code);
                ChannelOutcome::Error(refusal.into())
            }
        });
        Ok(BroadcastReply { responses: responses.collect() })
    }
}

/// Checks the keys that are stored with a publication and later searched for.
///
/// # Errors
/// 107 when a key is too long or contains control characters.
fn check_keys(node: RequestNode<'_>, idempotency_key: &str, version_epoch: &str) -> Result<(), OperationError> {
    let longest = node.generation().session.namespaces.settings().idempotency_key_max_length;
    for (field, text) in [("idempotency_key", idempotency_key), ("version_epoch", version_epoch)] {
        if text.len() > longest {
            return Err(OperationError::bad(field));
        }
        plain(field, [text])?;
    }
    Ok(())
}

/// Returns the client and the user that a publication is not delivered to.
///
/// # Errors
/// 107 for a client that is not a client id, and for a user that is too long or contains control characters.
fn exclusion(client: &str, user: &str) -> Result<Option<Box<Exclusion>>, OperationError> {
    if client.is_empty() && user.is_empty() {
        return Ok(None);
    }
    // The canonical form of a client id, because excluded clients are compared as text.
    let client = match client {
        "" => String::new(),
        client => client_text(client_from_text(client).ok_or(OperationError::bad("exclude_client"))?),
    };
    plain("exclude_user", [user])?;
    if user.len() > NAME_LEN_MAX {
        return Err(OperationError::bad("exclude_user"));
    }
    Ok(Exclusion::of(&client, user).map(Box::new))
}

/// Counts the clients that would get a publication.
async fn dry_run(
    node: RequestNode<'_>,
    channel: &str,
    options: &ChannelOptions,
    publish: Publish,
) -> Result<PublishReply, OperationError> {
    let is_kept = options.has_history() && !publish.skip_history;
    let audience = Audience::here(node, channel, publish, is_kept).await?;
    Ok(PublishReply { audience: Some(Box::new(audience)), ..PublishReply::default() })
}

/// Returns the end of a lifetime of so many seconds from now, in Unix milliseconds; 0 = it does not end.
fn expiry(node: RequestNode<'_>, expires_in_s: u64) -> u64 {
    if expires_in_s == 0 { 0 } else { node.clock.now_ms().saturating_add(expires_in_s.saturating_mul(1_000)) }
}

/// Publishes into a channel whose namespace exists.
async fn publish_one(node: RequestNode<'_>, channel: &str, publish: Publish) -> Result<PublishReply, OperationError> {
    if node.is_overloaded() {
        return Err(Error::TOO_MANY_REQUESTS.into());
    }
    match node.request_home(channel, ChannelRequest::Publish(Box::new(publish))).await {
        Response::Published(position) => Ok(position.into()),
        Response::Refused(error) => Err(error.into()),
        _ => Err(Error::INTERNAL.into()),
    }
}
