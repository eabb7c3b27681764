//! How far a connection is with its request, and how long it may stay there. One timer a connection, which looks again only when a limit may be
//! reached: hyper's own would be set anew for each request.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::Clock;
use crate::settings::HttpServerSettings;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Between requests: nothing of the next one has come.
    Waiting,
    /// A request has begun, its head is not whole.
    Head,
    /// The head is there: the body is read, the request is served.
    Request,
    /// Requests of HTTP/2 are under way, each with a time of its own.
    Busy,
}

/// The stage of a connection and its limits.
pub(super) struct Pace {
    clock: Clock,
    limits: [Duration; 4],
    stage: Cell<Stage>,
    since_us: Cell<u64>,
}

impl Pace {
    /// A connection of which a part of the first head has been read.
    pub(super) fn new(clock: Clock, settings: &HttpServerSettings) -> Self {
        let limits = [settings.idle_timeout, settings.header_timeout, settings.request_timeout, Duration::MAX];
        Pace { clock, limits, stage: Cell::new(Stage::Head), since_us: Cell::new(clock.elapsed_us()) }
    }

    pub(super) fn enter(&self, stage: Stage) {
        self.stage.set(stage);
        self.since_us.set(self.clock.elapsed_us());
    }

    /// Bytes have come: perhaps the first of a request.
    pub(super) fn hear(&self) {
        if self.stage.get() == Stage::Waiting {
            self.enter(Stage::Head);
        }
    }

    /// Returns when the connection has stayed too long where it is.
    pub(super) async fn overrun(&self) {
        loop {
            let limit = self.limits[self.stage.get() as usize];
            let spent = Duration::from_micros(self.clock.elapsed_us() - self.since_us.get());
            match limit.checked_sub(spent) {
                // A later stage may have a shorter limit: look again by then.
                Some(left) if !left.is_zero() => tokio::time::sleep(left.min(self.limits[Stage::Head as usize])).await,
                _ => return,
            }
        }
    }
}
