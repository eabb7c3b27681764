//! Rows and queries of the statistics, and their results.

use std::sync::Arc;

use bytes::Bytes;
use touchline_config::StatsSettings;
use touchline_protocol::stream::ChannelName;

use super::curve::Curve;
use crate::refusal::StoreRefusal;
use crate::settings::DatabaseUrl;
use crate::sketch::Sketch;

/// How to open the stats database.
#[derive(Clone)]
pub struct StatsOptions {
    /// The `store.stats` part of the configuration.
    pub stats: StatsSettings,
    /// Address of the database, from `stats`.
    pub url: DatabaseUrl,
    /// As in [`crate::PrimaryOptions::tls_ca`].
    pub tls_ca: String,
    /// Whether to bring the schema up to date at the start (`store.migrate`).
    pub migrates: bool,
}

/// A row of the statistics.
#[derive(Debug)]
pub enum Row {
    /// A connection has ended.
    Connection {
        /// When the connection began, Unix milliseconds.
        opened_ms: u64,
        /// When the connection ended, Unix milliseconds.
        closed_ms: u64,
        /// The transport of the connection.
        transport: &'static str,
        /// The kind of the client program.
        agent: &'static str,
        /// Why the connection ended: a WebSocket close code; 1006 = it broke off.
        code: u16,
    },
    /// An event that a client reports.
    Event {
        /// When it happened, Unix milliseconds.
        time_ms: u64,
        /// The name of the event.
        name: Box<str>,
        /// The id of the user; empty = anonymous.
        user: Box<str>,
        /// Properties of the event, a JSON object.
        props: Bytes,
    },
    /// Subscribers of a channel in a minute, as one part of the cluster counts them: the parts are added up. If one
    /// part sends several rows for a minute, the first one counts.
    Audience {
        /// Minutes since 1970.
        minute: u64,
        /// The channel.
        channel: ChannelName,
        /// The unique name of the part.
        part: Arc<str>,
        /// Number of subscribers at the end of the minute.
        current: u64,
        /// The most subscribers at a time within the minute.
        peak: u64,
        /// The different users.
        users: Sketch,
    },
    /// The traffic of a namespace in a minute.
    Traffic {
        /// Minutes since 1970.
        minute: u64,
        /// The namespace; empty = channels without one.
        namespace: Box<str>,
        /// As in an audience.
        part: Arc<str>,
        /// Number of publications accepted.
        publications: u64,
        /// Number of publications delivered to connections.
        deliveries: u64,
    },
}

/// A range of time in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first second.
    pub from_s: u64,
    /// The first second after the range.
    pub to_s: u64,
}

impl Range {
    /// The minutes that begin within the range: the first, and the one after the last.
    pub(super) fn minutes(self) -> (i64, i64) {
        (self.from_s.div_ceil(60) as i64, self.to_s.div_ceil(60) as i64)
    }
}

/// A query of the statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatsQuery {
    /// The audience of a channel.
    Audience {
        /// The channel.
        channel: String,
        /// The time that the curve covers.
        range: Range,
        /// Seconds of a point, a multiple of 60.
        step_s: u64,
    },
    /// The items with the highest counts.
    Top {
        /// The kind of the items.
        rank_by: RankBy,
        /// The time that is counted.
        range: Range,
        /// Number of items, at most.
        limit: usize,
    },
    /// Events by time.
    Events {
        /// The name of the event; empty = events of any name.
        name: String,
        /// The property by whose values events are counted separately; empty = together.
        by: String,
        /// The time that is counted.
        range: Range,
        /// Seconds of a point.
        step_s: u64,
        /// Number of rows in the result, at most.
        limit: usize,
    },
}

/// The kind of the items of a ranking, and the two figures of each item; the first one decides the rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankBy {
    /// Channels: their greatest audience, and the sum of their audiences at the end of each minute.
    Channels,
    /// Namespaces: deliveries and publications.
    Namespaces,
    /// Events: how many, and of how many users.
    Events,
    /// Transports: connections, and how long they lasted on average (milliseconds).
    Transports,
    /// Kinds of programs: the same.
    Agents,
    /// Reasons why connections ended: the same.
    Codes,
}

/// An item of a ranking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedItem {
    /// The item's name.
    pub name: String,
    /// The two figures that [`RankBy`] describes.
    pub figures: [u64; 2],
}

/// Events of one kind within one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCount {
    /// When the step begins, Unix seconds.
    pub time_s: u64,
    /// The name of the event.
    pub name: String,
    /// The value of the query's property, as JSON; empty = the events do not have the property.
    pub value: String,
    /// Number of events.
    pub count: u64,
}

/// The result of a query, of the query's kind.
#[derive(Debug, Clone, PartialEq)]
pub enum StatsResult {
    /// Result of [`StatsQuery::Audience`].
    Audience(Curve),
    /// Result of [`StatsQuery::Top`], the highest first.
    Top(Vec<RankedItem>),
    /// Result of [`StatsQuery::Events`]: by time, event and value.
    Events(Vec<EventCount>),
}

/// Takes the result of a query.
pub type OnStatsResult = Box<dyn FnOnce(Result<StatsResult, StoreRefusal>) + Send + Sync>;
