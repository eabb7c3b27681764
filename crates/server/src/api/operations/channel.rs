//! The operation `channel`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_config::keys::{Key, OPTIONS};
use touchline_config::redact;
use touchline_protocol::Error;
use touchline_protocol::stream::ChannelName;

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::api::params::{channel_options, nullable, nullable_fields};
use crate::auth::NamedChannels;
use crate::runtime::generation::Generation;
use crate::runtime::mailbox::{Inspection, Message};

/// A request for what the nodes know of one channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct ChannelFactsRequest {
    /// The name of the channel.
    #[serde(deserialize_with = "nullable")]
    channel: String,
}

/// What the nodes know of a channel.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct ChannelReply {
    /// The name of the channel.
    channel: String,
    /// The namespace of the channel; empty = without a namespace.
    namespace: String,
    /// The connections of all nodes that subscribe to the channel.
    subscribers: u64,
    /// The nodes that know the channel.
    nodes: Vec<NodeChannel>,
    /// The options that apply to the channel.
    options: Vec<ChannelOption>,
    /// The ids of nodes that did not answer in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<Box<str>>,
}

/// What one node knows of a channel.
#[derive(Serialize, Deserialize, JsonSchema)]
struct NodeChannel {
    /// The name of the node.
    node: String,
    /// The shard that is the home of the channel on this node.
    shard: u64,
    /// The connections of this node that subscribe to the channel.
    subscribers: u64,
    /// The offset of the newest publication in the channel's log; 0 = it has no log.
    offset: u64,
    /// The epoch of the channel's log; empty = it has no log.
    epoch: String,
    /// The publications of the log that the node holds in memory.
    kept: u64,
    /// The state of the channel: `idle`, `loading`, `live`, `failed`, or `none`. `none` = the node does not know the
    /// channel.
    state: String,
}

/// An option with its value.
#[derive(Serialize, Deserialize, JsonSchema)]
struct ChannelOption {
    /// The name of the option.
    key: String,
    /// The value as JSON.
    value: String,
    /// The key and the place that set the value, or `default`.
    origin: String,
}

/// The operation `channel`.
pub(crate) struct ChannelOperation;

impl Operation for ChannelOperation {
    const NAME: &'static str = "channel";
    const SUMMARY: &'static str = "Returns what the nodes know of one channel, and the options that apply to it";
    const RESULT: &'static str = "`channel`, `namespace`, `subscribers`, `nodes`, each with `node`, `shard`, \
                                  `subscribers`, `offset`, `epoch`, `kept`, `state`; `options`, each with `key`, \
                                  `value`, `origin`; `missing_nodes`";
    const EXAMPLE: &'static str = r#"{"channel": "news"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{
        "channel": "news", "namespace": "", "subscribers": 2,
        "nodes": [{
            "node": "node-1", "shard": 0, "subscribers": 2, "offset": 0, "epoch": "", "kept": 0, "state": "idle"
        }],
        "options": [{"key": "history_size", "value": "0", "origin": "default"}]
    }"#;
    const ERRORS: &'static [Error] = &[Error::UNKNOWN_CHANNEL];
    const SCOPE: OperationScope = OperationScope::Gather;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = ChannelFactsRequest;
    type Reply = ChannelReply;

    fn channels<'r>(request: &'r ChannelFactsRequest) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    async fn run(node: RequestNode<'_>, request: ChannelFactsRequest) -> Result<ChannelReply, OperationError> {
        let generation = node.generation();
        channel_options(generation, "channel", &request.channel)?;
        let channel: ChannelName = request.channel.as_str().into();
        let (home, (reply, known)) = (node.home(&channel), oneshot::channel());
        node.send(home, Message::Inspect(Inspection::Channel { channel, reply }));
        let facts = known.await.ok().flatten();
        let position = facts.as_ref().and_then(|facts| facts.position);
        let of_node = NodeChannel {
            node: generation.settings.node.name.clone(),
            shard: home.into(),
            subscribers: facts.as_ref().map_or(0, |facts| facts.subscribers),
            offset: position.map_or(0, |position| position.offset.0),
            epoch: position.map_or(String::new(), |position| position.epoch.as_str().to_owned()),
            kept: facts.as_ref().map_or(0, |facts| facts.kept as u64),
            state: facts.as_ref().map_or("none", |facts| facts.state).to_owned(),
        };
        let namespace = generation.session.namespaces.namespace_of(&request.channel).to_owned();
        Ok(ChannelReply {
            options: options(generation, &namespace),
            channel: request.channel,
            namespace,
            subscribers: of_node.subscribers,
            nodes: vec![of_node],
            missing_nodes: Vec::new(),
        })
    }

    fn merge(reply: &mut ChannelReply, others: &OtherNodes<'_>) {
        for (_, json) in &others.results {
            let Ok(other) = serde_json::from_str::<ChannelReply>(json.get()) else { continue };
            reply.subscribers += other.subscribers;
            reply.nodes.extend(other.nodes);
        }
        reply.missing_nodes = others.missing.clone();
    }
}

/// Returns the options of a namespace: the configured values, or else the defaults.
fn options(generation: &Generation, namespace: &str) -> Vec<ChannelOption> {
    let section = match namespace {
        "" => "channel.without_namespace.".to_owned(),
        namespace => format!("channel.namespaces[{namespace}]."),
    };
    let option = |key: &Key| {
        let path = format!("{section}{}", key.path);
        let written = generation.written.iter().find(|written| written.path == path);
        let (value, origin) = match written {
            Some(written) => (redact(written.shown()).into_owned(), format!("{path}, {}", written.location)),
            None => (key.default.clone(), "default".to_owned()),
        };
        ChannelOption { key: key.path.clone(), value, origin }
    };
    OPTIONS.iter().map(option).collect()
}
