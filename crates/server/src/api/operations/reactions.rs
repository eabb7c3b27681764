//! The operations `reaction_open`, `reactions_add`, `reactions_get` and `reactions_close`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_engine::ChannelOptions;
use touchline_engine::reactions::{OPTION_LENGTH_MAX, OPTIONS_MAX, ReactionFault, ReactionState, check_options};
use touchline_protocol::Error;

use crate::api::description::OperationScope;
use crate::api::json::EmptyReply;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{OneChannelRequest, channel_options, nullable, nullable_fields};
use crate::auth::NamedChannels;
use crate::runtime::generation::Generation;
use crate::runtime::reaction_mailbox::{ReactionMessage, ReactionOperation, ReactionReply};

/// The most reactions that one request may add.
const ADD_MAX: u64 = 1_000_000;
/// The latest time that every JSON reader keeps exactly: 2^53 − 1.
const CLOSES_AT_MAX: u64 = (1 << 53) - 1;
/// The fastest rate that a request may set, in reactions per second.
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

/// Sends a request to the thread that keeps the totals, and waits for the answer.
async fn ask<T>(
    node: RequestNode<'_>,
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

/// Returns the options of a channel that may have reactions.
///
/// # Errors
/// 107 and 102 as [`channel_options`] returns them. 108 where publications are bytes or may be dropped.
fn options_of<'g>(generation: &'g Generation, channel: &str) -> Result<&'g ChannelOptions, OperationError> {
    let options = channel_options(generation, "channel", channel)?;
    if !options.can_have_reactions() {
        return Err(Error::NOT_AVAILABLE.into());
    }
    Ok(options)
}

/// A request to open the reactions of a channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel", "options"]), transform = nullable_fields)]
pub(crate) struct ReactionOpenRequest {
    /// The channel of the reactions.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    channel: String,
    /// The options that clients can choose from, each once.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = OPTIONS_MAX), inner(length(min = 1, max = OPTION_LENGTH_MAX)))]
    options: Vec<String>,
    /// The time when the reactions close by themselves, in Unix milliseconds; 0 = never.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(max = CLOSES_AT_MAX))]
    closes_at: u64,
    /// Reactions per second that one connection may send; 0 = the rate of the namespace.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(max = RATE_MAX))]
    rate: u32,
}

/// The state of reactions that are open.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ReactionOpenReply {
    /// The time when the reactions were opened, in Unix milliseconds.
    opened: u64,
}

/// The operation `reaction_open`.
pub(crate) struct ReactionOpenOperation;

impl Operation for ReactionOpenOperation {
    const NAME: &'static str = "reaction_open";
    const SUMMARY: &'static str = "Opens the reactions of a channel, with all totals at zero; if the same reactions \
                                   are open already, it changes nothing";
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

    async fn run(node: RequestNode<'_>, request: ReactionOpenRequest) -> Result<ReactionOpenReply, OperationError> {
        let generation = node.generation();
        let options = options_of(generation, &request.channel)?;
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

/// A request to add reactions.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["channel", "option"]), transform = nullable_fields)]
pub(crate) struct ReactionsAddRequest {
    /// The channel of the reactions.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    channel: String,
    /// The option to which the reactions are added.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = OPTION_LENGTH_MAX))]
    option: String,
    /// The number of reactions to add; absent = 1.
    #[schemars(range(min = 1, max = ADD_MAX))]
    n: Option<u64>,
}

/// The operation `reactions_add`.
pub(crate) struct ReactionsAddOperation;

impl Operation for ReactionsAddOperation {
    const NAME: &'static str = "reactions_add";
    const SUMMARY: &'static str = "Adds reactions that do not come from connections, without a rate limit";
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

    async fn run(node: RequestNode<'_>, request: ReactionsAddRequest) -> Result<EmptyReply, OperationError> {
        options_of(node.generation(), &request.channel)?;
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
    /// The total of each option.
    reactions: BTreeMap<String, u64>,
    /// The sum of all totals.
    seq: u64,
    /// The time when the reactions were opened, in Unix milliseconds; absent = they are open by the
    /// option `reactions` of the namespace.
    #[serde(skip_serializing_if = "is_zero")]
    opened: u64,
    /// `true`: the reactions are closed.
    closed: bool,
    /// The time when the reactions close by themselves, in Unix milliseconds; absent = never.
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

/// The operation `reactions_get`.
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

    async fn run(node: RequestNode<'_>, request: OneChannelRequest) -> Result<ReactionsReply, OperationError> {
        options_of(node.generation(), &request.channel)?;
        Ok(ask(node, &request.channel, ReactionOperation::Get).await?.into())
    }
}

/// The operation `reactions_close`.
pub(crate) struct ReactionsCloseOperation;

impl Operation for ReactionsCloseOperation {
    const NAME: &'static str = "reactions_close";
    const SUMMARY: &'static str = "Closes the reactions of a channel, and answers after all reachable nodes have \
                                   counted the reactions that they accepted and the final totals are published";
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

    async fn run(node: RequestNode<'_>, request: OneChannelRequest) -> Result<ReactionsReply, OperationError> {
        options_of(node.generation(), &request.channel)?;
        Ok(ask(node, &request.channel, ReactionOperation::Close).await?.into())
    }
}
