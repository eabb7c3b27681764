//! What the frames of an HTTP/2 connection cost. The library answers `PING` and `SETTINGS` and follows `PRIORITY`,
//! `WINDOW_UPDATE` and `RST_STREAM` by itself, so they are counted before it sees them: each is charged as a command,
//! and a connection above `client.command_rate_limit` is not read until its time has come.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};
use touchline_engine::ShardId;

use super::frames::FrameScanner;
use super::timeouts::StreamsPace;
use crate::node::Node;
use crate::shard::RateLimiter;

/// Counts the frames of one connection.
pub(super) struct Gauge {
    node: Arc<Node>,
    shard: ShardId,
    scanner: FrameScanner,
    allowance: RateLimiter,
    pace: Rc<StreamsPace>,
    /// The connection is not read until then.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Gauge {
    pub(super) fn new(node: Arc<Node>, shard: ShardId, pace: Rc<StreamsPace>) -> Self {
        Gauge { node, shard, scanner: FrameScanner::new(), allowance: RateLimiter::default(), pace, pause: None }
    }

    /// Ready when the connection may be read.
    pub(super) fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            std::task::ready!(pause.as_mut().poll(context));
            self.pause = None;
            self.pace.note_incomplete(self.scanner.is_incomplete());
        }
        Poll::Ready(())
    }

    /// Takes note of bytes that have been read.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        let frames = self.scanner.scan(bytes);
        self.pace.note_incomplete(self.scanner.is_incomplete());
        let now_us = self.node.clock.elapsed_us();
        let rate = self.node.settings.client.command_rate_limit;
        if let Some(until_us) = self.allowance.charge([(frames, rate), (0, 0)], now_us) {
            self.node.shards[usize::from(self.shard)].metrics.throttled.add(1);
            self.pause = Some(Box::pin(sleep(Duration::from_micros(until_us.saturating_sub(now_us)))));
            // What is missing waits in the socket: that is not the client's fault.
            self.pace.note_incomplete(false);
        }
    }
}
