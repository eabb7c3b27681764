//! Bans: whether a client may connect, and whether it may stay connected.

use super::context::Context;
use super::state::{Phase, Session};
use crate::bans::{BanReason, BanRefusal, Bans, ShownToken, TokenMark};
use touchline_protocol::Error;

impl Session {
    /// Checks the bans for a client that connects and whose user is now known. `token`: `None` = the client has shown
    /// no token. Returns false if the client is refused: permanently by a ban, or temporarily while the bans are not
    /// known.
    pub(super) fn passes_bans(
        &mut self,
        command: u32,
        token: Option<ShownToken<'_>>,
        context: &mut Context<'_>,
    ) -> bool {
        let bans = &context.node.bans;
        self.token = token.map_or(TokenMark::NONE, |token| bans.mark(token, context.now_s()));
        if let Some(refusal) = bans.holds_back() {
            bans.count_refused(refusal);
            context.because(refusal.cause(), "");
            self.refuse_connect(command, Error::INTERNAL, context);
            return false;
        }
        let Some(reason) = bans.judge(&self.user, self.token, context.now_s()) else { return true };
        bans.count_refused(BanRefusal::Banned(reason));
        context.because(reason.cause(), "");
        context.disconnect(reason.disconnect());
        false
    }

    /// Checks the bans for the token by which a client prolongs its connection. Returns false if the client is refused,
    /// as [`Session::passes_bans`] does.
    pub(super) fn may_prolong(&mut self, command: u32, token: ShownToken<'_>, context: &mut Context<'_>) -> bool {
        if !may_prolong_now(context) {
            context.effects.refuse(command, Error::INTERNAL);
            return false;
        }
        let bans = &context.node.bans;
        let mark = bans.mark(token, context.now_s());
        match bans.judge(&self.user, mark, context.now_s()) {
            None => {
                self.token = mark;
                true
            }
            Some(reason) => {
                end(reason, context);
                false
            }
        }
    }

    /// The ban for the client's user or for the token that it showed last; `None` = there is no such ban.
    pub fn ban(&self, bans: &Bans, now_s: u64) -> Option<BanReason> {
        bans.judge(&self.user, self.token, now_s)
    }

    /// Ends the connection if a ban concerns its client. Returns whether it ended the connection.
    pub fn end_if_banned(&self, context: &mut Context<'_>) -> bool {
        if matches!(self.phase, Phase::Refused | Phase::Closed) {
            return false;
        }
        let Some(reason) = self.ban(&context.node.bans, context.now_s()) else { return false };
        end(reason, context);
        true
    }
}

/// Whether clients or a backend may prolong connections now. They may not while the node accepts no client at all.
pub(super) fn may_prolong_now(context: &mut Context<'_>) -> bool {
    let Some(refusal) = context.node.bans.holds_back() else { return true };
    context.because(refusal.cause(), "");
    false
}

fn end(reason: BanReason, context: &mut Context<'_>) {
    context.node.bans.count_ended(reason);
    context.because(reason.cause(), "");
    context.disconnect(reason.disconnect());
}
