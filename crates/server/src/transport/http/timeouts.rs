//! The stage of a connection's current request, and how long it may stay in it. Each connection has one timer, which
//! wakes only when a limit may be reached. Hyper's own timer would be set again for each request.

use std::cell::Cell;
use std::time::Duration;

use touchline_config::HttpServerSettings;

use crate::runtime::clock::NodeClock;

/// The stage of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestStage {
    /// Between requests: no byte of the next one has arrived. The limit is `http_server.idle_timeout`.
    Waiting,
    /// A request has begun, and its head is incomplete. The limit is `http_server.header_timeout`.
    Head,
    /// The head is complete: the body is read and the request is served. The limit is `http_server.request_timeout`.
    Request,
}

/// The stage of a connection and its limits.
pub(super) struct TimeoutTimer {
    clock: NodeClock,
    limits: [Duration; 3],
    stage: Cell<RequestStage>,
    since_us: Cell<u64>,
}

impl TimeoutTimer {
    /// Makes the timer of a connection. A part of the first head has been read already.
    pub(super) fn new(clock: NodeClock, settings: &HttpServerSettings) -> Self {
        let limits = [settings.idle_timeout, settings.header_timeout, settings.request_timeout];
        let since_us = Cell::new(clock.elapsed_us());
        TimeoutTimer { clock, limits, stage: Cell::new(RequestStage::Head), since_us }
    }

    pub(super) fn enter(&self, stage: RequestStage) {
        self.stage.set(stage);
        self.since_us.set(self.clock.elapsed_us());
    }

    /// Notes that the socket has taken bytes of an answer. The time between two requests begins with the last of them.
    pub(super) fn note_written(&self) {
        if self.stage.get() == RequestStage::Waiting {
            self.enter(RequestStage::Waiting);
        }
    }

    /// Notes that bytes have arrived, which may be the first of a request.
    pub(super) fn note_read(&self) {
        if self.stage.get() == RequestStage::Waiting {
            self.enter(RequestStage::Head);
        }
    }

    /// Returns when the connection has stayed in its stage for longer than its limit.
    pub(super) async fn overrun(&self) {
        loop {
            let limit = self.limits[self.stage.get() as usize];
            let spent = Duration::from_micros(self.clock.elapsed_us() - self.since_us.get());
            match limit.checked_sub(spent) {
                // A later stage may have a shorter limit, so it is checked again by then.
                Some(left) if !left.is_zero() => {
                    self.clock.time().sleep(left.min(self.limits[RequestStage::Head as usize])).await
                }
                _ => return,
            }
        }
    }
}

/// The shortest sleep between two checks of the limits.
const CHECK_MIN: Duration = Duration::from_millis(1);

/// The timer of an HTTP/2 connection. Its requests have their own timeouts.
pub(super) struct StreamsTimer {
    clock: NodeClock,
    idle_timeout: Cell<Duration>,
    header_timeout: Duration,
    /// Since when no request is under way, in microseconds of the node's clock; None = a request is under way.
    idle_since_us: Cell<Option<u64>>,
    /// Since when a frame or a header block of the client is incomplete, in microseconds of the node's clock; None =
    /// everything is complete.
    incomplete_since_us: Cell<Option<u64>>,
}

/// The limit that a connection has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overrun {
    /// `http_server.header_timeout`: the client has begun a frame or a header block and does not complete it.
    Incomplete,
    /// `http_server.idle_timeout`: no request has been under way. Pings and other control frames do not count as
    /// requests.
    Idle,
}

impl StreamsTimer {
    /// Makes the timer of a connection that has just begun.
    pub(super) fn new(clock: NodeClock, settings: &HttpServerSettings) -> Self {
        let now_us = Cell::new(Some(clock.elapsed_us()));
        let HttpServerSettings { idle_timeout, header_timeout, .. } = *settings;
        let idle_timeout = Cell::new(idle_timeout);
        StreamsTimer { clock, idle_timeout, header_timeout, idle_since_us: now_us.clone(), incomplete_since_us: now_us }
    }

    /// Notes that the connection carries a session. After its last session has ended, the connection is no longer
    /// authenticated. Then it may be idle for at most `http_server.header_timeout`.
    pub(super) fn note_session(&self) {
        self.idle_timeout.set(self.idle_timeout.get().min(self.header_timeout));
    }

    /// Records whether requests are under way.
    pub(super) fn note_busy(&self, is_busy: bool) {
        self.idle_since_us.set((!is_busy).then(|| self.clock.elapsed_us()));
    }

    /// Records whether a frame or a header block of the client is incomplete.
    pub(super) fn note_incomplete(&self, is_incomplete: bool) {
        let since_us = self.incomplete_since_us.get();
        self.incomplete_since_us.set(is_incomplete.then(|| since_us.unwrap_or_else(|| self.clock.elapsed_us())));
    }

    /// Returns when a limit is exceeded.
    pub(super) async fn overrun(&self) -> Overrun {
        loop {
            let now_us = self.clock.elapsed_us();
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
            // A time that begins meanwhile can't end before that.
            let next = idle.unwrap_or(self.idle_timeout.get()).min(incomplete.unwrap_or(self.header_timeout));
            self.clock.time().sleep(next.max(CHECK_MIN)).await;
        }
    }
}
