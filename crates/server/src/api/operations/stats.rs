//! `stats_audience`, `stats_top`, `stats_events`: statistics of the past. Times are Unix seconds.

use serde::Deserialize;
use tokio::sync::oneshot;
use touchline_protocol::Error;
use touchline_protocol::encode::{self, ObjectWriter};
use touchline_store::StoreRefusal;
use touchline_store::stats::{Curve, EventCount, Range, RankBy, RankedItem, StatsQuery, StatsResult};

use super::{Json, nullable, plain};
use crate::backend::store::refused;
use crate::node::Node;

/// The range when the request gives none, seconds.
const DEFAULT_RANGE_S: u64 = 3_600;
/// The longest range, seconds: a year.
const RANGE_MAX: u64 = 366 * 86_400;
/// The default step, and the unit of an audience's steps, seconds.
const STEP_S: u64 = 60;
/// Points of one answer, at most.
const POINTS_MAX: u64 = 10_000;
// The range and the step by default make an answer that is allowed.
const _: () = assert!(DEFAULT_RANGE_S <= RANGE_MAX && DEFAULT_RANGE_S / STEP_S <= POINTS_MAX);
/// Lines of a ranking: the default, and the maximum.
const TOP_DEFAULT: usize = 10;
const TOP_MAX: usize = 1_000;
// A ranking by default is one that is allowed.
const _: () = assert!(TOP_DEFAULT <= TOP_MAX);

/// The parameters of the three operations; each uses some of them. Absent = empty or 0, which stands for the default.
#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
pub(super) struct StatsRequest {
    #[serde(deserialize_with = "nullable")]
    channel: String,
    #[serde(deserialize_with = "nullable")]
    event: String,
    #[serde(deserialize_with = "nullable")]
    by: String,
    #[serde(deserialize_with = "nullable")]
    of: String,
    from: u64,
    to: u64,
    step: u64,
    limit: usize,
}

impl StatsRequest {
    fn range(&self, node: &Node) -> Result<Range, Error> {
        // The end is exclusive, and the current second is part of the range.
        let to_s = if self.to == 0 { node.clock.now_ms() / 1_000 + 1 } else { self.to };
        let from_s = if self.from == 0 { to_s.saturating_sub(DEFAULT_RANGE_S) } else { self.from };
        let is_sane = from_s < to_s && to_s < u64::from(u32::MAX) * 2 && to_s - from_s <= RANGE_MAX;
        is_sane.then_some(Range { from_s, to_s }).ok_or(Error::BAD_REQUEST)
    }

    fn step(&self, range: Range, unit: u64) -> Result<u64, Error> {
        let step = if self.step == 0 { STEP_S } else { self.step };
        let fits = step % unit == 0 && (range.to_s - range.from_s) / step <= POINTS_MAX;
        fits.then_some(step).ok_or(Error::BAD_REQUEST)
    }
}

/// The audience of a channel. Errors: 107, 108 without statistics, 111, 4010.
pub(super) async fn audience(node: &Node, request: StatsRequest) -> Result<Json, Error> {
    plain([&request.channel])?;
    let range = request.range(node)?;
    let step_s = request.step(range, STEP_S)?;
    let StatsResult::Audience(Curve { points, peak, users }) =
        query_stats(node, StatsQuery::Audience { channel: request.channel, range, step_s }).await?
    else {
        return Err(Error::INTERNAL);
    };
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::list(object.key("points"), points, |out, point| {
        let mut object = ObjectWriter::open(out);
        numbers(
            &mut object,
            [("time", point.time_s), ("current", point.current), ("peak", point.peak), ("users", point.users)],
        );
        object.close();
    });
    numbers(&mut object, [("peak", peak), ("users", users)]);
    object.close();
    Ok(out)
}

/// The ranking of channels, namespaces, events, transports, agents or codes. Errors: 107, 108 without statistics, 111,
/// 4010.
pub(super) async fn top(node: &Node, request: StatsRequest) -> Result<Json, Error> {
    let range = request.range(node)?;
    let (rank_by, name, figures) = match &*request.of {
        "" | "channels" => (RankBy::Channels, "channel", ["peak", "minutes"]),
        "namespaces" => (RankBy::Namespaces, "namespace", ["deliveries", "publications"]),
        "events" => (RankBy::Events, "event", ["count", "users"]),
        "transports" => (RankBy::Transports, "transport", ["connections", "average_ms"]),
        "agents" => (RankBy::Agents, "agent", ["connections", "average_ms"]),
        "codes" => (RankBy::Codes, "code", ["connections", "average_ms"]),
        _ => return Err(Error::BAD_REQUEST),
    };
    let limit = if request.limit == 0 { TOP_DEFAULT } else { request.limit.min(TOP_MAX) };
    let StatsResult::Top(ranked) = query_stats(node, StatsQuery::Top { rank_by, range, limit }).await? else {
        return Err(Error::INTERNAL);
    };
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::list(object.key("top"), ranked, |out, ranked: RankedItem| {
        let mut object = ObjectWriter::open(out);
        encode::text(object.key(name), &ranked.name);
        numbers(&mut object, [(figures[0], ranked.figures[0]), (figures[1], ranked.figures[1])]);
        object.close();
    });
    object.close();
    Ok(out)
}

/// The events that clients have reported, by time. Errors: 107, 108 without statistics, 111, 4010.
pub(super) async fn events(node: &Node, request: StatsRequest) -> Result<Json, Error> {
    let range = request.range(node)?;
    let step_s = request.step(range, 1)?;
    plain([&request.event, &request.by])?;
    let has_property = !request.by.is_empty();
    let query = StatsQuery::Events { name: request.event, by: request.by, range, step_s, limit: POINTS_MAX as usize };
    let StatsResult::Events(counted) = query_stats(node, query).await? else { return Err(Error::INTERNAL) };
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::list(object.key("points"), counted, |out, EventCount { time_s, name, value, count }| {
        let mut object = ObjectWriter::open(out);
        numbers(&mut object, [("time", time_s)]);
        object.text("event", &name);
        if has_property {
            object.raw("value", Some(if value.is_empty() { b"null" } else { value.as_bytes() }));
        }
        numbers(&mut object, [("count", count)]);
        object.close();
    });
    object.close();
    Ok(out)
}

/// Writes numbers, zeros included.
fn numbers<const N: usize>(object: &mut ObjectWriter<'_>, numbers: [(&str, u64); N]) {
    for (name, number) in numbers {
        encode::number(object.key(name), number);
    }
}

async fn query_stats(node: &Node, query: StatsQuery) -> Result<StatsResult, Error> {
    let (reply, answer) = oneshot::channel();
    node.stats().ok_or(Error::NOT_AVAILABLE)?.query(
        query,
        Box::new(move |result| {
            let _ = reply.send(result);
        }),
    );
    answer.await.unwrap_or(Err(StoreRefusal::Failed)).map_err(refused)
}
