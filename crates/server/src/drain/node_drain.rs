//! The state of a node's drain that all its threads share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use tokio::sync::watch;
use touchline_cluster::ClusterRoom;
use touchline_lock::{Lock, LockGuard};

use super::connect_cost::ConnectCost;
use super::plan::DrainForecast;

/// All clients, in the unit in which a part of them is counted: 2³².
const WHOLE: f64 = 4_294_967_296.0;
/// The time between two checks whether clients connect, in microseconds.
const LOOK_INTERVAL_US: u64 = 1_000_000;

/// The drain of a node: whether it has begun, how far it is, and what is known beforehand.
pub(crate) struct NodeDrain {
    begun: watch::Sender<bool>,
    /// The part of its clients that each shard must have asked to leave, as a part of [`WHOLE`].
    part: AtomicU64,
    /// The forecast of the drain under way; None = no drain is under way.
    forecast: Lock<Option<DrainForecast>>,
    /// The room of the other nodes, and the room of those that were last in sight.
    room: Lock<(ClusterRoom, ClusterRoom)>,
    cost: Lock<ConnectCost>,
    /// The time of the next check whether clients connect, in microseconds of the node's clock.
    look_us: AtomicU64,
    /// The last rate that the node has reported to the others, in clients a second; 0 = it has reported none.
    reported_rate: AtomicU32,
}

impl NodeDrain {
    /// Makes a drain that has not begun. `processors`: the number that the process may use.
    pub(crate) fn new(processors: usize) -> Self {
        NodeDrain {
            begun: watch::Sender::new(false),
            part: AtomicU64::new(0),
            forecast: Lock::default(),
            room: Lock::default(),
            cost: Lock::new(ConnectCost::new(processors)),
            look_us: AtomicU64::new(0),
            reported_rate: AtomicU32::new(0),
        }
    }

    /// Whether the node has begun to stop.
    pub(crate) fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Notes that the node begins to stop.
    pub(crate) fn begin(&self) {
        self.begun.send_replace(true);
    }

    /// Waits until the node has begun to stop.
    pub(crate) async fn begun(&self) {
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    /// Returns how many of `clients` a shard must have asked to leave by now.
    pub(crate) fn due(&self, clients: usize) -> usize {
        (clients as f64 * (self.part.load(Relaxed) as f64 / WHOLE)).ceil() as usize
    }

    /// Sets the progress of the drain: `part` of the clients, 0 to 1, and the forecast.
    pub(crate) fn set_progress(&self, part: f64, forecast: DrainForecast) {
        self.part.store((part * WHOLE) as u64, Relaxed);
        *self.forecast.lock() = Some(forecast);
    }

    /// Returns the forecast of the drain under way; None = no drain is under way.
    pub(crate) fn forecast(&self) -> Option<DrainForecast> {
        *self.forecast.lock()
    }

    /// Returns the room of the other nodes, and the room of those that were last in sight.
    pub(crate) fn room(&self) -> (ClusterRoom, ClusterRoom) {
        *self.room.lock()
    }

    /// Sets the room of the other nodes.
    pub(crate) fn set_room(&self, room: ClusterRoom) {
        let mut known = self.room.lock();
        *known = (room, if room.is_none() { known.1 } else { room });
    }

    /// Returns the cost of clients on this node.
    pub(crate) fn cost(&self) -> LockGuard<'_, ConnectCost> {
        self.cost.lock()
    }

    /// Whether a check for connecting clients is due, once a second. Only one thread asks.
    pub(crate) fn is_look_due(&self, now_us: u64) -> bool {
        let is_due = now_us >= self.look_us.load(Relaxed);
        if is_due {
            self.look_us.store(now_us + LOOK_INTERVAL_US, Relaxed);
        }
        is_due
    }

    /// Notes the rate that the node can take. Returns whether the rate differs enough from the last reported one to be
    /// reported.
    pub(crate) fn note_rate(&self, rate: u32) -> bool {
        let reported = self.reported_rate.load(Relaxed);
        let is_far = reported == 0 || rate.abs_diff(reported) > reported / 8;
        if is_far {
            self.reported_rate.store(rate, Relaxed);
        }
        is_far
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_told_their_part_and_small_changes_are_not_said() {
        let drain = NodeDrain::new(2);
        assert_eq!(drain.due(100), 0);
        drain.set_progress(0.25, DrainForecast::default());
        assert_eq!((drain.due(100), drain.due(3), drain.due(0)), (25, 1, 0));
        drain.set_progress(1.0, DrainForecast::default());
        assert_eq!(drain.due(100_000), 100_000);
        assert_eq!([0, 999_999, 1_000_000].map(|now_us| drain.is_look_due(now_us)), [true, false, true]);
        assert_eq!([1_000, 1_100, 1_200, 1_100].map(|rate| drain.note_rate(rate)), [true, false, true, false]);
    }
}
