//! `reaction_open`, `reactions_add`, `reactions_get` and `reactions_close`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_engine::ChannelOptions;
use touchline_engine::reactions::{OPTION_LENGTH_MAX, OPTIONS_MAX, ReactionFault, ReactionState, check_options};
use touchline_protocol::Error;

use crate::api::description::OperationScope;
use crate::api::json::EmptyReply;
use crate::api::operation::{Operation, OperationError};
use crate::api::params::{OneChannelRequest, channel_options, nullable, nullable_fields};
use crate::auth::NamedChannels;
use crate::node::Node;
use crate::runtime::generation::Generation;
use crate::runtime::reaction_mailbox::{ReactionMessage, ReactionOperation, ReactionReply};

/// The most reactions of one request.
const ADD_MAX: u64 = 1_000_000;
/// The latest time that JSON readers keep exactly: 2^53 − 1.
const CLOSES_AT_MAX: u64 = (1 << 53) - 1;
/// The fastest rate that a request may set.
const RATE_MAX: u32 = 1_000_000;

/// The errors of operations that begin or end a round.
const ROUND_ERRORS: &[Error] = &[
    Error::UNKNOWN_CHANNEL,
    Error::NOT_AVAILABLE,
    Error::LIMIT_EXCEEDED,
    Error::TOO_MANY_REQUESTS,
    Error::CHANGED,
    Error::STORE_UNAVAILABLE,
];

/// Sends the thread that keeps the totals a request, and waits for the answer.
async fn ask<T>(
    node: &Node,
    channel: &str,
    operation: impl FnOnce(ReactionReply<T>) -> ReactionOperation,
) -> Result<T, OperationError> {
    let (reply, answer) = oneshot::channel();
    let message = ReactionMessage::Operate(channel.into(), operation(reply));
    if node.reactions.try_send(message).is_err() {
        return Err(Error::TOO_MANY_REQUESTS.into());
    }
    let answer = answer.await.map_err(|_| OperationError::from(Error::INTERNAL))?;
    answer.map_err(|fault| match fault {
        ReactionFault::LimitExceeded => Error::LIMIT_EXCEEDED.into(),
        ReactionFault::NotOpen => Error::NOT_AVAILABLE.into(),
        ReactionFault::Closed => Error::REACTIONS_CLOSED.into(),
        ReactionFault::UnknownOption => OperationError::bad("option"),
        ReactionFault::Replaced => Error::CHANGED.into(),
        ReactionFault::NotKept => Error::STORE_UNAVAILABLE.into(),
        ReactionFault::Busy => Error::TOO_MANY_REQUESTS.into(),
    })
}

/// The options of a channel that may have reactions.
///
/// # Errors
/// 107 and 102 as [`channel_options`], 108 where publications are bytes or may be dropped.
fn options_of<'g>(generation: &'g Generation, channel: &str) -> Result<&'g ChannelOptions, OperationError> {
    let options = channel_options(generation, "channel", channel)?;
    if !options.can_have_reactions() {
        return Err(Error::NOT_AVAILABLE.into());
    }
    Ok(options)
}

/// Opens the reactions of a channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel", "options"]), transform = nullable_fields)]
pub(crate) struct ReactionOpenRequest {
    /// The channel.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    channel: String,
    /// What can be reacted with, each once.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = OPTIONS_MAX), inner(length(min = 1, max = OPTION_LENGTH_MAX)))]
    options: Vec<String>,
    /// When they close by themselves, Unix milliseconds; 0 = never.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(max = CLOSES_AT_MAX))]
    closes_at: u64,
    /// Reactions a second of one connection; 0 = as the namespace says.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(max = RATE_MAX))]
    rate: u32,
}

/// Reactions that are open.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ReactionOpenReply {
    /// When they were opened, Unix milliseconds.
    opened: u64,
}

/// `reaction_open`.
pub(crate) struct ReactionOpenOperation;

impl Operation for ReactionOpenOperation {
    const NAME: &'static str = "reaction_open";
    const SUMMARY: &'static str = "Opens the reactions of a channel, which begin at zero, unless the same are open";
    const RESULT: &'static str = "`opened` (Unix milliseconds)";
    const EXAMPLE: &'static str = r#"{"channel": "news", "options": ["applause", "boo"]}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"opened": 1763813700000}"#;
    const ERRORS: &'static [Error] = ROUND_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    type Request<'a> = ReactionOpenRequest;
    type Reply = ReactionOpenReply;

    fn channels<'r>(request: &'r Self::Request<'_>) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    async fn run(node: &Node, request: ReactionOpenRequest) -> Result<ReactionOpenReply, OperationError> {
        let generation = node.generation();
        let options = options_of(&generation, &request.channel)?;
        if request.options.is_empty() || check_options(request.options.iter().map(String::as_str)).is_some() {
            return Err(OperationError::bad("options"));
        }
        if request.rate > RATE_MAX {
            return Err(OperationError::bad("rate"));
        }
        let is_past = request.closes_at > 0 && request.closes_at <= node.clock.now_ms();
        if is_past || request.closes_at > CLOSES_AT_MAX {
            return Err(OperationError::bad("closes_at"));
        }
        let rate = if request.rate == 0 { options.reactions_rate } else { request.rate };
        let (options, closes_at_ms) = (request.options.into_iter().map(Box::from).collect(), request.closes_at);
        let open = |reply| ReactionOperation::Open { options, rate, closes_at_ms, reply };
        Ok(ReactionOpenReply { opened: ask(node, &request.channel, open).await? })
    }
}

/// Counts reactions.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel", "option"]), transform = nullable_fields)]
pub(crate) struct ReactionsAddRequest {
    /// The channel.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    channel: String,
    /// With what.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = OPTION_LENGTH_MAX))]
    option: String,
    /// How many; absent = 1.
    #[schemars(range(min = 1, max = ADD_MAX))]
    n: Option<u64>,
}

/// `reactions_add`.
pub(crate) struct ReactionsAddOperation;

impl Operation for ReactionsAddOperation {
    const NAME: &'static str = "reactions_add";
    const SUMMARY: &'static str = "Counts reactions that do not come from connections; no rate holds for them";
    const EXAMPLE: &'static str = r#"{"channel": "news", "option": "applause", "n": 3}"#;
    const ERRORS: &'static [Error] = &[
        Error::UNKNOWN_CHANNEL,
        Error::NOT_AVAILABLE,
        Error::LIMIT_EXCEEDED,
        Error::TOO_MANY_REQUESTS,
        Error::STORE_UNAVAILABLE,
        Error::REACTIONS_CLOSED,
    ];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = false;
    type Request<'a> = ReactionsAddRequest;
    type Reply = EmptyReply;

    fn channels<'r>(request: &'r Self::Request<'_>) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    async fn run(node: &Node, request: ReactionsAddRequest) -> Result<EmptyReply, OperationError> {
        options_of(&node.generation(), &request.channel)?;
        let (option, n) = (request.option.into(), request.n.unwrap_or(1));
        if !(1..=ADD_MAX).contains(&n) {
            return Err(OperationError::bad("n"));
        }
        ask(node, &request.channel, |reply| ReactionOperation::Add { option, n, reply }).await?;
        Ok(EmptyReply {})
    }
}

/// The reactions of a channel.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ReactionsReply {
    /// Options and their totals.
    reactions: BTreeMap<String, u64>,
    /// The sum of all totals.
    seq: u64,
    /// When they were opened, Unix milliseconds; absent = by the namespace.
    #[serde(skip_serializing_if = "is_zero")]
    opened: u64,
    /// They are closed.
    closed: bool,
    /// When they close by themselves, Unix milliseconds; absent = never.
    #[serde(skip_serializing_if = "is_zero")]
    closes_at: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl From<ReactionState> for ReactionsReply {
    fn from(state: ReactionState) -> Self {
        ReactionsReply {
            seq: state.seq(),
            reactions: state.totals.into_iter().map(|(option, total)| (option.into(), total)).collect(),
            opened: state.opened_ms,
            closed: state.is_closed,
            closes_at: state.closes_at_ms,
        }
    }
}

/// `reactions_get`.
pub(crate) struct ReactionsGetOperation;

impl Operation for ReactionsGetOperation {
    const NAME: &'static str = "reactions_get";
    const SUMMARY: &'static str = "Reads the reactions of a channel";
    const RESULT: &'static str = "`reactions`: option → total, `seq`, `opened`, `closed`, `closes_at`";
    const EXAMPLE: &'static str = r#"{"channel": "news"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"reactions": {"applause": 41, "boo": 3}, "seq": 44, "closed": false}"#;
    const ERRORS: &'static [Error] =
        &[Error::UNKNOWN_CHANNEL, Error::NOT_AVAILABLE, Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    type Request<'a> = OneChannelRequest;
    type Reply = ReactionsReply;

    fn channels<'r>(request: &'r Self::Request<'_>) -> NamedChannels<'r> {
        request.named()
    }

    async fn run(node: &Node, request: OneChannelRequest) -> Result<ReactionsReply, OperationError> {
        options_of(&node.generation(), &request.channel)?;
        Ok(ask(node, &request.channel, ReactionOperation::Get).await?.into())
    }
}

/// `reactions_close`.
pub(crate) struct ReactionsCloseOperation;

impl Operation for ReactionsCloseOperation {
    const NAME: &'static str = "reactions_close";
    const SUMMARY: &'static str = "Closes the reactions of a channel, and answers when they are published for the last \
                                   time: when all nodes in sight have counted what they accepted";
    const RESULT: &'static str = "as `reactions_get`";
    const EXAMPLE: &'static str = r#"{"channel": "news"}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"reactions": {"applause": 41, "boo": 3}, "seq": 44, "closed": true}"#;
    const ERRORS: &'static [Error] = ROUND_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    type Request<'a> = OneChannelRequest;
    type Reply = ReactionsReply;

    fn channels<'r>(request: &'r Self::Request<'_>) -> NamedChannels<'r> {
        request.named()
    }

    async fn run(node: &Node, request: OneChannelRequest) -> Result<ReactionsReply, OperationError> {
        options_of(&node.generation(), &request.channel)?;
        Ok(ask(node, &request.channel, ReactionOperation::Close).await?.into())
    }
}
