//! How far a connection is with its request, and how long it may stay there. One timer a connection, which looks again
//! only when a limit may be reached: hyper's own would be set anew for each request.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::Ticks;
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
}

/// The stage of a connection and its limits.
pub(super) struct TimeoutTimer {
    ticks: Ticks,
    limits: [Duration; 3],
    stage: Cell<Stage>,
    since_us: Cell<u64>,
}

impl TimeoutTimer {
    /// A connection of which a part of the first head has been read.
    pub(super) fn new(ticks: Ticks, settings: &HttpServerSettings) -> Self {
        let limits = [settings.idle_timeout, settings.header_timeout, settings.request_timeout];
        TimeoutTimer { ticks, limits, stage: Cell::new(Stage::Head), since_us: Cell::new(ticks.elapsed_us()) }
    }

    pub(super) fn enter(&self, stage: Stage) {
        self.stage.set(stage);
        self.since_us.set(self.ticks.elapsed_us());
    }

    /// Bytes of an answer were taken: the time between two requests begins when the last one was.
    pub(super) fn note_written(&self) {
        if self.stage.get() == Stage::Waiting {
            self.enter(Stage::Waiting);
        }
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
            let spent = Duration::from_micros(self.ticks.elapsed_us() - self.since_us.get());
            match limit.checked_sub(spent) {
                // A later stage may have a shorter limit: look again by then.
                Some(left) if !left.is_zero() => tokio::time::sleep(left.min(self.limits[Stage::Head as usize])).await,
                _ => return,
            }
        }
    }
}

/// Between two looks at the time, at least.
const LOOK_MIN: Duration = Duration::from_millis(1);

/// The time of an HTTP/2 connection. Its requests have times of their own.
pub(super) struct StreamsPace {
    ticks: Ticks,
    idle_timeout: Cell<Duration>,
    header_timeout: Duration,
    /// Since when no request is under way, microseconds; none = one is.
    idle_since_us: Cell<Option<u64>>,
    /// Since when something of the client is incomplete, microseconds; none = nothing is.
    incomplete_since_us: Cell<Option<u64>>,
}

/// Which time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overrun {
    /// `http_server.header_timeout`: the client has begun something and does not finish it.
    Incomplete,
    /// `http_server.idle_timeout`: no request has been under way. Pings and other control frames do not count as
    /// requests.
    Idle,
}

impl StreamsPace {
    /// A connection that has just begun.
    pub(super) fn new(ticks: Ticks, settings: &HttpServerSettings) -> Self {
        let now_us = Cell::new(Some(ticks.elapsed_us()));
        let HttpServerSettings { idle_timeout, header_timeout, .. } = *settings;
        let idle_timeout = Cell::new(idle_timeout);
        StreamsPace { ticks, idle_timeout, header_timeout, idle_since_us: now_us.clone(), incomplete_since_us: now_us }
    }

    /// A session lives on the connection. When none does any more, nobody knows whose it is: it has no more time than
    /// for a head.
    pub(super) fn note_seated(&self) {
        self.idle_timeout.set(self.idle_timeout.get().min(self.header_timeout));
    }

    /// Takes note whether requests are under way.
    pub(super) fn note_busy(&self, is_busy: bool) {
        self.idle_since_us.set((!is_busy).then(|| self.ticks.elapsed_us()));
    }

    /// Takes note whether something of the client is incomplete.
    pub(super) fn note_incomplete(&self, is_incomplete: bool) {
        let since_us = self.incomplete_since_us.get();
        self.incomplete_since_us.set(is_incomplete.then(|| since_us.unwrap_or_else(|| self.ticks.elapsed_us())));
    }

    /// Returns when a time is over.
    pub(super) async fn overrun(&self) -> Overrun {
        loop {
            let now_us = self.ticks.elapsed_us();
            let left = |since_us: Option<u64>, limit: Duration| {
                Some(limit.saturating_sub(Duration::from_micros(now_us.saturating_sub(since_us?))))
            };
            let idle = left(self.idle_since_us.get(), self.idle_timeout.get());
            let incomplete = left(self.incomplete_since_us.get(), self.header_timeout);
            if incomplete.is_some_and(|left| left.is_zero()) {
                return Overrun::Incomplete;
            }
            if idle.is_some_and(|left| left.is_zero()) {
                return Overrun::Idle;
            }
            // What begins meanwhile can't be over before that.
            let next = idle.unwrap_or(self.idle_timeout.get()).min(incomplete.unwrap_or(self.header_timeout));
            tokio::time::sleep(next.max(LOOK_MIN)).await;
        }
    }
}
