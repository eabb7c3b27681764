//! The rows and queries of the statistics, and their results.

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
    /// The address of the database, from `stats`.
    pub url: DatabaseUrl,
    /// Additional certificate authorities, as in [`crate::PrimaryOptions::tls_ca`].
    pub tls_ca: String,
    /// Whether to migrate the schema at the start (`store.migrate`).
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
        /// The kind of the client's program.
        agent: &'static str,
        /// Why the connection ended: a WebSocket close code. 1006 = the connection broke.
        code: u16,
    },
    /// An event that a client reported.
    Event {
        /// When the event happened, Unix milliseconds.
        time_ms: u64,
        /// The name of the event.
        name: Box<str>,
        /// The id of the user. Empty = anonymous.
        user: Box<str>,
        /// The properties of the event, a JSON object.
        props: Bytes,
    },
    /// The subscribers of a channel in a minute, as one part of the cluster counted them. The parts are added up. If
    /// one part sends several rows for a minute, the first one counts.
    Audience {
        /// The minute, counted since 1970.
        minute: u64,
        /// The name of the channel.
        channel: ChannelName,
        /// The unique name of the part of the cluster that counted.
        part: Arc<str>,
        /// The number of subscribers at the end of the minute.
        current: u64,
        /// The maximum number of simultaneous subscribers within the minute.
        peak: u64,
        /// The different users who were subscribed.
        users: Sketch,
    },
    /// The traffic of a namespace in a minute.
    Traffic {
        /// The minute, counted since 1970.
        minute: u64,
        /// The name of the namespace. Empty = channels without a namespace.
        namespace: Box<str>,
        /// The part of the cluster that counted, as in an audience.
        part: Arc<str>,
        /// The number of accepted publications.
        publications: u64,
        /// The number of publications delivered to connections.
        deliveries: u64,
    },
}

/// A range of time in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first second of the range.
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
        /// The name of the channel.
        channel: String,
        /// The time that the curve covers.
        range: Range,
        /// The length of one point in seconds, a multiple of 60.
        step_s: u64,
    },
    /// The items with the highest counts.
    Top {
        /// The kind of the items.
        rank_by: RankBy,
        /// The time that is counted.
        range: Range,
        /// The maximum number of items.
        limit: usize,
    },
    /// The number of events over time.
    Events {
        /// The name of the event. Empty = events of any name.
        name: String,
        /// The property by whose values events are counted separately. Empty = all events are counted together.
        by: String,
        /// The time that is counted.
        range: Range,
        /// The length of one point in seconds.
        step_s: u64,
        /// The maximum number of rows in the result.
        limit: usize,
    },
}

/// The kind of the items in a ranking, and the two figures of each item. The first figure determines the rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankBy {
    /// Channels: the largest audience, and the sum of the audiences at the end of each minute.
    Channels,
    /// Namespaces: the numbers of deliveries and of publications.
    Namespaces,
    /// Events: the number of events, and the number of their users.
    Events,
    /// Transports: the number of connections, and their average duration (milliseconds).
    Transports,
    /// Kinds of client programs, with the same figures as transports.
    Agents,
    /// Reasons why connections ended, with the same figures as transports.
    Codes,
}

/// An item of a ranking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedItem {
    /// The name of the item.
    pub name: String,
    /// The two figures that [`RankBy`] describes.
    pub figures: [u64; 2],
}

/// The number of events of one kind within one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCount {
    /// When the step begins, Unix seconds.
    pub time_s: u64,
    /// The name of the event.
    pub name: String,
    /// The value of the query's property, as JSON. Empty = the events do not have the property.
    pub value: String,
    /// The number of events.
    pub count: u64,
}

/// The result of a query, in the variant of the query.
#[derive(Debug, Clone, PartialEq)]
pub enum StatsResult {
    /// The result of [`StatsQuery::Audience`].
    Audience(Curve),
    /// The result of [`StatsQuery::Top`], the highest first.
    Top(Vec<RankedItem>),
    /// The result of [`StatsQuery::Events`], ordered by time, event and value.
    Events(Vec<EventCount>),
}

/// A callback for the result of a query.
pub type OnStatsResult = Box<dyn FnOnce(Result<StatsResult, StoreRefusal>) + Send + Sync>;

/// One step in deleting the events of a user. Events cannot be found by user, so a step examines some events in the
/// order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventErasure {
    /// The id of the user, which must not be empty.
    pub user: Box<str>,
    /// Where the step begins. 0 = at the oldest event; otherwise the `next` of the previous step.
    pub from: u64,
}

/// The result of one deletion step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErasedEvents {
    /// The number of deleted events.
    pub count: u64,
    /// Where the next step begins. `None` = this was the last step.
    pub next: Option<u64>,
}

/// A callback for the result of a deletion step.
pub type OnErased = Box<dyn FnOnce(Result<ErasedEvents, StoreRefusal>) + Send>;
