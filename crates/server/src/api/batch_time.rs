//! The time limit of a batch: all lists of connections in it together take no longer than a single one may.

use std::cell::Cell;
use std::time::Duration;

use touchline_protocol::Error;

use super::operation::Operation as _;
use super::operations::connected::ConnectionsOperation;
use crate::node::Node;

/// How long all `connections` of a batch may take together: one second in which other nodes answer, and the time of one
/// page.
const LISTINGS_TIME_MAX: Duration = Duration::from_millis(1_050);

/// The time that the lists of connections of a batch have taken so far.
#[derive(Default)]
pub(super) struct BatchTime {
    listings: Cell<Duration>,
    /// Lets one list of connections run at a time.
    turn: tokio::sync::Mutex<()>,
}

impl BatchTime {
    /// Waits until an operation may be checked: lists of connections run one after the other.
    pub(super) async fn turn(&self, operation: &str) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if operation == ConnectionsOperation::NAME { Some(self.turn.lock().await) } else { None }
    }

    /// Checks whether an operation may begin.
    ///
    /// # Errors
    /// 111 for a list of connections if the earlier lists have used up the time.
    pub(super) fn admit(&self, operation: &str) -> Result<(), Error> {
        let is_over = operation == ConnectionsOperation::NAME && self.listings.get() >= LISTINGS_TIME_MAX;
        if is_over { Err(Error::TOO_MANY_REQUESTS) } else { Ok(()) }
    }

    /// Runs an operation, and adds the time of a list of connections.
    pub(super) async fn measure<T>(&self, node: &Node, operation: &str, run: impl Future<Output = T>) -> T {
        if operation != ConnectionsOperation::NAME {
            return run.await;
        }
        let began_us = node.clock.elapsed_us();
        let outcome = run.await;
        let took = Duration::from_micros(node.clock.elapsed_us().saturating_sub(began_us));
        self.listings.set(self.listings.get() + took);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_connections_share_the_time_of_one_and_others_go_on() {
        let time = BatchTime::default();
        assert!(time.admit("connections").is_ok());
        time.listings.set(LISTINGS_TIME_MAX - Duration::from_micros(1));
        assert!(time.admit("connections").is_ok());
        time.listings.set(LISTINGS_TIME_MAX);
        assert_eq!(time.admit("connections"), Err(Error::TOO_MANY_REQUESTS));
        assert!(time.admit("publish").is_ok());
    }
}
