//! The rate limit on HTTP/2 frames. The library itself answers `PING` and `SETTINGS` and follows `PRIORITY`,
//! `WINDOW_UPDATE` and `RST_STREAM`, so frames are counted before the library sees them. Each frame is charged as a
//! command. A connection above `client.command_rate_limit` is not read until the rate allows it. On a port that serves
//! no clients, a connection that has shown a key is not charged, because its calls are those of a backend.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::caller::Origin;
use super::frames::FrameScanner;
use super::timeouts::StreamsTimer;
use crate::runtime::rate_limiter::RateLimiter;

/// Counts the frames of one connection.
pub(super) struct BufferGauge {
    origin: Rc<Origin>,
    scanner: FrameScanner,
    rate_limiter: RateLimiter,
    timer: Rc<StreamsTimer>,
    /// Until this ends, the connection is not read; None = it may be read.
    pause: Option<Pin<Box<Sleep>>>,
}

impl BufferGauge {
    pub(super) fn new(origin: Rc<Origin>, timer: Rc<StreamsTimer>) -> Self {
        BufferGauge { origin, scanner: FrameScanner::new(), rate_limiter: RateLimiter::default(), timer, pause: None }
    }

    /// Becomes ready when the connection may be read.
    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            std::task::ready!(pause.as_mut().poll(context));
            self.pause = None;
            self.timer.note_incomplete(self.scanner.is_incomplete());
        }
        Poll::Ready(())
    }

    /// Charges the frames in bytes that were read.
    pub(super) fn note_read(&mut self, bytes: &[u8]) {
        let frames = self.scanner.scan(bytes);
        self.timer.note_incomplete(self.scanner.is_incomplete());
        let Origin { node, shard, side, pass, .. } = &*self.origin;
        if !side.serves_clients() && pass.is_settled() {
            return;
        }
        let now_us = node.clock.elapsed_us();
        let rate = node.generation().settings.client.command_rate_limit;
        if let Some(until_us) = self.rate_limiter.charge([(frames, rate), (0, 0)], now_us) {
            node.shards[usize::from(*shard)].metrics.throttled.add_shared(1);
            self.pause = Some(Box::pin(sleep(Duration::from_micros(until_us.saturating_sub(now_us)))));
            // The missing bytes wait in the socket because the node does not read; that is not the client's fault.
            self.timer.note_incomplete(false);
        }
    }
}
