//! Pings, pongs and everything else that is due at a certain time.

use std::time::Duration;

use touchline_protocol::Disconnect;

use super::context::Context;
use super::heartbeat::{Heartbeat, next_ping_ms};
use super::state::{Phase, Session};
use super::transport::TransportMode;
use crate::duration::millis;
use crate::settings::ClientSettings;

impl Session {
    /// When [`Session::tick`] has to be called next, Unix milliseconds.
    pub fn deadline_ms(&self, client: &ClientSettings) -> u64 {
        let heartbeat = match self.heartbeat {
            Heartbeat::Due(at, _) | Heartbeat::Awaited(at, _) => at,
        };
        heartbeat.min(self.next_expiry_ms(client))
    }

    /// Does everything that is due: sends pings, and ends what has expired.
    pub fn tick(&mut self, context: &mut Context<'_>) {
        self.expire(context);
        if context.effects.disconnect.is_some() {
            return;
        }
        let now_ms = context.now_ms;
        match (&self.phase, self.heartbeat) {
            (_, Heartbeat::Due(at, _) | Heartbeat::Awaited(at, _)) if at > now_ms => {}
            (Phase::AwaitingConnect, _) => context.disconnect(Disconnect::STALE),
            (Phase::Connecting(_), _) if !self.has_wishes() => context.disconnect(Disconnect::STALE),
            // The client has done its part, and the answers of the backend have deadlines of their own.
            (Phase::Authenticating | Phase::Connecting(_), _) => {
                self.heartbeat = Heartbeat::due(now_ms.saturating_add(millis(context.node.client.stale_close_delay)));
            }
            (Phase::Refused | Phase::Closed, _) => context.disconnect(Disconnect::CONNECTION_CLOSED),
            (Phase::Connected, _) if self.is_idle(context) => context.disconnect(Disconnect::IDLE),
            (Phase::Connected, Heartbeat::Awaited(..)) => context.disconnect(Disconnect::NO_PONG),
            (Phase::Connected, Heartbeat::Due(..)) => {
                let next_ms = now_ms.saturating_add(millis(context.ping_interval));
                let pong_ms = now_ms.saturating_add(millis(context.node.client.pong_timeout));
                let heartbeat = if self.transport.answers_pings() {
                    Heartbeat::awaited(pong_ms, next_ms)
                } else {
                    Heartbeat::due(next_ms)
                };
                self.heartbeat = heartbeat;
                context.effects.ping = true;
            }
        }
    }

    /// Whether a client that sends lines has been silent for too long.
    fn is_idle(&self, context: &Context<'_>) -> bool {
        let limit_s = context.node.line_idle.as_secs();
        self.transport == TransportMode::Lines
            && limit_s > 0
            && u64::from(self.last_input_s).saturating_add(limit_s) < context.now_s()
    }

    /// Postpones the deadline of a pong: the client is alive, and its pong is queued after other data. Returns whether
    /// the next ping is due meanwhile.
    pub fn wait_longer(&mut self, now_ms: u64, pong_timeout: Duration, ping_interval: Duration) -> bool {
        let Heartbeat::Awaited(at, later) = self.heartbeat else { return false };
        let next = next_ping_ms(at, later);
        if at > now_ms || !self.is_connected() {
            return false;
        }
        let is_ping_due = next <= now_ms;
        self.pings_ahead = self.pings_ahead.saturating_add(is_ping_due.into());
        let next = if is_ping_due { now_ms.saturating_add(millis(ping_interval)) } else { next };
        self.heartbeat = Heartbeat::awaited(now_ms.saturating_add(millis(pong_timeout)), next);
        is_ping_due
    }

    pub(super) fn pong(&mut self, context: &mut Context<'_>) {
        match self.heartbeat {
            Heartbeat::Awaited(at, later) => {
                let interval_ms = millis(context.ping_interval);
                self.heartbeat = Heartbeat::answered(next_ping_ms(at, later), interval_ms, context.now_ms);
            }
            Heartbeat::Due(..) if self.transport == TransportMode::Lines => {}
            Heartbeat::Due(..) if self.pings_ahead > 0 => self.pings_ahead -= 1,
            Heartbeat::Due(..) => context.disconnect(Disconnect::BAD_REQUEST),
        }
    }

    /// Sends a ping now, unless a pong is awaited. The node was suspended and checks which clients are still alive.
    pub fn probe(&mut self, context: &mut Context<'_>) {
        if let (Phase::Connected, Heartbeat::Due(..)) = (&self.phase, self.heartbeat) {
            self.heartbeat = Heartbeat::due(context.now_ms);
            self.tick(context);
        }
    }

    /// Whether a pong is awaited.
    pub fn awaits_pong(&self) -> bool {
        matches!(self.heartbeat, Heartbeat::Awaited(..))
    }
}
