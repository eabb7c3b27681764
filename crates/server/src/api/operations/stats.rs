//! The operations `stats_audience`, `stats_top` and `stats_events`: statistics of the past. Times are Unix seconds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use touchline_protocol::Error;
use touchline_store::StoreRefusal;
use touchline_store::stats::{Curve, EventCount, Range, RankBy, RankedItem, StatsQuery, StatsResult};

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{nullable, nullable_fields, plain};
use crate::auth::NamedChannels;
use crate::backend::store::refused;

/// The length of the range if the request gives none, in seconds.
const DEFAULT_RANGE_S: u64 = 3_600;
/// The longest range, in seconds: one year.
const RANGE_MAX: u64 = 366 * 86_400;
/// The default step, and the unit of an audience's steps, in seconds.
const STEP_S: u64 = 60;
/// The longest step, in seconds: as long as the longest range.
const STEP_MAX: u64 = 366 * 86_400;
/// The most points in one answer.
const POINTS_MAX: u64 = 10_000;
// The default range and step result in an allowed number of points.
const _: () = assert!(DEFAULT_RANGE_S <= RANGE_MAX && DEFAULT_RANGE_S / STEP_S <= POINTS_MAX);
/// The number of lines of a ranking: the default, and the maximum.
const TOP_DEFAULT: usize = 10;
const TOP_MAX: usize = 1_000;
// The default number of lines is allowed.
const _: () = assert!(TOP_DEFAULT <= TOP_MAX);

/// The errors of the three operations: 108 without statistics, 111 with too many queries, 4010.
const STATS_ERRORS: &[Error] = &[Error::NOT_AVAILABLE, Error::TOO_MANY_REQUESTS, Error::STORE_UNAVAILABLE];

/// Returns the range of a request in Unix seconds; 0 stands for the default. The end is exclusive, and the default
/// range includes the current second.
///
/// # Errors
/// 107 when the range is empty or too long.
fn range_of(node: RequestNode<'_>, from: u64, to: u64) -> Result<Range, OperationError> {
    let to_s = if to == 0 { node.clock.now_ms() / 1_000 + 1 } else { to };
    let from_s = if from == 0 { to_s.saturating_sub(DEFAULT_RANGE_S) } else { from };
    let is_sane = from_s < to_s && to_s < u64::from(u32::MAX) * 2 && to_s - from_s <= RANGE_MAX;
    is_sane.then_some(Range { from_s, to_s }).ok_or(OperationError::bad("from"))
}

/// Returns the step of a request in seconds; 0 stands for the default. `unit`: the step must be a multiple of it.
///
/// # Errors
/// 107 when the step is not a multiple, is longer than [`STEP_MAX`], or makes too many points.
fn step_of(step: u64, range: Range, unit: u64) -> Result<u64, OperationError> {
    let step = if step == 0 { STEP_S } else { step };
    let fits = step <= STEP_MAX && step % unit == 0 && (range.to_s - range.from_s) / step <= POINTS_MAX;
    fits.then_some(step).ok_or(OperationError::bad("step"))
}

/// A request for the audience of a channel.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct AudienceRequest {
    /// The channel whose audience is read.
    #[serde(deserialize_with = "nullable")]
    channel: String,
    /// The beginning of the range, in Unix seconds; 0 = one hour before its end.
    #[serde(deserialize_with = "nullable")]
    from: u64,
    /// The end of the range, in Unix seconds, exclusive; 0 = now. The range is at most 366 days long.
    #[serde(deserialize_with = "nullable")]
    to: u64,
    /// The length of a step in seconds, a multiple of 60; 0 = 60.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(max = STEP_MAX))]
    step: u64,
}

/// The audience of a channel by time.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AudienceReply {
    /// The audience of each step.
    points: Vec<AudiencePoint>,
    /// The greatest number of connections at one time in the range.
    peak: u64,
    /// The approximate number of users; a user with several connections counts once.
    users: u64,
}

/// The audience in one step.
#[derive(Serialize, JsonSchema)]
struct AudiencePoint {
    /// The beginning of the step, in Unix seconds.
    time: u64,
    /// The connections at the end of the step.
    current: u64,
    /// The greatest number of connections at one time.
    peak: u64,
    /// The approximate number of users; a user with several connections counts once.
    users: u64,
}

/// The operation `stats_audience`.
pub(crate) struct StatsAudienceOperation;

impl Operation for StatsAudienceOperation {
    const NAME: &'static str = "stats_audience";
    const SUMMARY: &'static str = "Returns the audience of a channel by time, in steps of minutes";
    const RESULT: &'static str = "`points`: `time`, `current`, `peak`, `users`; `peak`, `users`";
    const EXAMPLE: &'static str = r#"{"channel": "match:42", "from": 1764010800, "to": 1764018000}"#;
    const REPLY_EXAMPLE: &'static str =
        r#"{"points": [{"time": 1764010800, "current": 2, "peak": 3, "users": 2}], "peak": 3, "users": 2}"#;
    const ERRORS: &'static [Error] = STATS_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = AudienceRequest;
    type Reply = AudienceReply;

    fn channels<'r>(request: &'r AudienceRequest) -> NamedChannels<'r> {
        NamedChannels::One(&request.channel)
    }

    async fn run(node: RequestNode<'_>, request: AudienceRequest) -> Result<AudienceReply, OperationError> {
        plain("channel", [&request.channel])?;
        let range = range_of(node, request.from, request.to)?;
        let step_s = step_of(request.step, range, STEP_S)?;
        let query = StatsQuery::Audience { channel: request.channel, range, step_s };
        let StatsResult::Audience(Curve { points, peak, users }) = query_stats(node, query).await? else {
            return Err(Error::INTERNAL.into());
        };
        let points = points.into_iter().map(|point| AudiencePoint {
            time: point.time_s,
            current: point.current,
            peak: point.peak,
            users: point.users,
        });
        Ok(AudienceReply { points: points.collect(), peak, users })
    }
}

/// A request for a ranking.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct TopRequest {
    /// What is ranked; empty = channels.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("enum" = ["", "channels", "namespaces", "events", "transports", "agents", "codes"]))]
    of: String,
    /// The beginning of the range, in Unix seconds; 0 = one hour before its end.
    #[serde(deserialize_with = "nullable")]
    from: u64,
    /// The end of the range, in Unix seconds, exclusive; 0 = now. The range is at most 366 days long.
    #[serde(deserialize_with = "nullable")]
    to: u64,
    /// The greatest number of lines in the ranking, up to 1,000; 0 = 10.
    #[serde(deserialize_with = "nullable")]
    limit: usize,
}

/// A ranking by one figure.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TopReply {
    /// The lines, the highest figure first.
    top: Vec<TopLine>,
}

/// One line of a ranking; its fields depend on what is ranked.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum TopLine {
    /// A channel: its greatest audience, and the sum of its audiences at the end of each minute.
    Channel { channel: String, peak: u64, minutes: u64 },
    /// A namespace: its deliveries and publications.
    Namespace { namespace: String, deliveries: u64, publications: u64 },
    /// An event: how many there were, and of how many users.
    Event { event: String, count: u64, users: u64 },
    /// A transport: its connections, and how long they lasted on average, in milliseconds.
    Transport { transport: String, connections: u64, average_ms: u64 },
    /// A kind of program: its connections, and how long they lasted on average, in milliseconds.
    Agent { agent: String, connections: u64, average_ms: u64 },
    /// A reason for the end of connections: their number, and how long they lasted on average, in milliseconds.
    Code { code: String, connections: u64, average_ms: u64 },
}

impl TopLine {
    fn of(rank_by: RankBy, RankedItem { name, figures: [first, second] }: RankedItem) -> Self {
        match rank_by {
            RankBy::Channels => TopLine::Channel { channel: name, peak: first, minutes: second },
            RankBy::Namespaces => TopLine::Namespace { namespace: name, deliveries: first, publications: second },
            RankBy::Events => TopLine::Event { event: name, count: first, users: second },
            RankBy::Transports => TopLine::Transport { transport: name, connections: first, average_ms: second },
            RankBy::Agents => TopLine::Agent { agent: name, connections: first, average_ms: second },
            RankBy::Codes => TopLine::Code { code: name, connections: first, average_ms: second },
        }
    }
}

/// The operation `stats_top`.
pub(crate) struct StatsTopOperation;

impl Operation for StatsTopOperation {
    const NAME: &'static str = "stats_top";
    const SUMMARY: &'static str =
        "Ranks what `of` names: `channels`, `namespaces`, `events`, `transports`, `agents` or `codes`; highest first";
    const RESULT: &'static str = "`top`, each with the name and two figures";
    const EXAMPLE: &'static str = r#"{"of": "channels", "limit": 10}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"top": [{"channel": "match:42", "peak": 3, "minutes": 120}]}"#;
    const ERRORS: &'static [Error] = STATS_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = TopRequest;
    type Reply = TopReply;

    async fn run(node: RequestNode<'_>, request: TopRequest) -> Result<TopReply, OperationError> {
        let range = range_of(node, request.from, request.to)?;
        let rank_by = match &*request.of {
            "" | "channels" => RankBy::Channels,
            "namespaces" => RankBy::Namespaces,
            "events" => RankBy::Events,
            "transports" => RankBy::Transports,
            "agents" => RankBy::Agents,
            "codes" => RankBy::Codes,
            _ => return Err(OperationError::bad("of")),
        };
        let limit = if request.limit == 0 { TOP_DEFAULT } else { request.limit.min(TOP_MAX) };
        let StatsResult::Top(ranked) = query_stats(node, StatsQuery::Top { rank_by, range, limit }).await? else {
            return Err(Error::INTERNAL.into());
        };
        Ok(TopReply { top: ranked.into_iter().map(|item| TopLine::of(rank_by, item)).collect() })
    }
}

/// A request for the events that clients have reported.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct EventsRequest {
    /// The name of the events; empty = all events.
    #[serde(deserialize_with = "nullable")]
    event: String,
    /// The property by which the events are counted; empty = none.
    #[serde(deserialize_with = "nullable")]
    by: String,
    /// The beginning of the range, in Unix seconds; 0 = one hour before its end.
    #[serde(deserialize_with = "nullable")]
    from: u64,
    /// The end of the range, in Unix seconds, exclusive; 0 = now. The range is at most 366 days long.
    #[serde(deserialize_with = "nullable")]
    to: u64,
    /// The length of a step in seconds; 0 = 60.
    #[serde(deserialize_with = "nullable")]
    #[schemars(range(max = STEP_MAX))]
    step: u64,
}

/// The number of events by time.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EventsReply {
    /// The counts, one for each step, event and value.
    points: Vec<EventPoint>,
}

/// The number of events of one kind in one step.
#[derive(Serialize, JsonSchema)]
struct EventPoint {
    /// The beginning of the step, in Unix seconds.
    time: u64,
    /// The name of the events; absent = it is empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    event: String,
    /// The value of the property. Absent = the request names no property; `null` = these events do not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Option<Box<RawValue>>>,
    /// The number of events.
    count: u64,
}

/// The operation `stats_events`.
pub(crate) struct StatsEventsOperation;

impl Operation for StatsEventsOperation {
    const NAME: &'static str = "stats_events";
    const SUMMARY: &'static str = "Counts the events that clients reported, by time and by a property";
    const RESULT: &'static str = "`points`: `time`, `event`, `value`, `count`";
    const EXAMPLE: &'static str = r#"{"event": "goal_seen", "by": "team"}"#;
    const REPLY_EXAMPLE: &'static str =
        r#"{"points": [{"time": 1764010800, "event": "goal_seen", "value": "home", "count": 7}]}"#;
    const ERRORS: &'static [Error] = STATS_ERRORS;
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = EventsRequest;
    type Reply = EventsReply;

    async fn run(node: RequestNode<'_>, request: EventsRequest) -> Result<EventsReply, OperationError> {
        let range = range_of(node, request.from, request.to)?;
        let step_s = step_of(request.step, range, 1)?;
        plain("event", [&request.event])?;
        plain("by", [&request.by])?;
        let has_property = !request.by.is_empty();
        let (name, by) = (request.event, request.by);
        let query = StatsQuery::Events { name, by, range, step_s, limit: POINTS_MAX as usize };
        let StatsResult::Events(counted) = query_stats(node, query).await? else {
            return Err(Error::INTERNAL.into());
        };
        let points = counted.into_iter().map(|EventCount { time_s, name, value, count }| EventPoint {
            time: time_s,
            event: name,
            value: has_property.then(|| RawValue::from_string(value).ok()),
            count,
        });
        Ok(EventsReply { points: points.collect() })
    }
}

async fn query_stats(node: RequestNode<'_>, query: StatsQuery) -> Result<StatsResult, Error> {
    let (reply, answer) = oneshot::channel();
    node.stats().ok_or(Error::NOT_AVAILABLE)?.query(
        query,
        Box::new(move |result| {
            let _ = reply.send(result);
        }),
    );
    answer.await.unwrap_or(Err(StoreRefusal::Failed)).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_multiple_of_its_unit_and_no_longer_than_the_longest_range() {
        let range = Range { from_s: 0, to_s: RANGE_MAX };
        let step = |step, unit| step_of(step, range, unit).ok();
        assert_eq!([step(3_600, 1), step(3_601, STEP_S), step(1, 1)], [Some(3_600), None, None]);
        assert_eq!([step(STEP_MAX, 1), step(STEP_MAX, STEP_S)], [Some(STEP_MAX); 2]);
        for longer in [STEP_MAX + 1, STEP_MAX + STEP_S, u64::from(u32::MAX), u64::MAX / 60 * 60, u64::MAX] {
            assert_eq!((step(longer, 1), step(longer, STEP_S)), (None, None), "{longer}");
        }
    }
}
