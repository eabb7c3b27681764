//! The protocol state of one client: commands, replies and ticks go in; messages, requests and a disconnect come out.
//!
//! A session only decides. Its shard passes a [`Context`] to it and carries out its [`Effects`].
//!
//! The types are in `context.rs`, `effects.rs`, `ticket.rs`, `state.rs` and `subscription.rs`. `commands.rs` receives
//! the client's messages and the responses of homes and of the directory.

mod bans;
mod channel_commands;
mod commands;
mod connect;
mod context;
mod counted;
mod counts;
mod described;
mod effects;
mod explain;
mod explain_facts;
mod flow;
mod heartbeat;
mod hook_refresh;
mod hook_refusal;
mod hook_state;
mod hooks;
mod limit_state;
mod limits;
mod lines;
mod permission;
mod pings;
mod reactions;
mod refresh;
mod refusal;
mod registry;
mod review;
mod rules;
mod server;
mod state;
mod subscribe;
mod subscription;
mod subscriptions;
mod ticket;
mod transport;
mod weight;

use bytes::Bytes;
use touchline_protocol::message::Push;

pub use context::{Context, HookNeeds, SessionSettings, SessionSigner};
pub use counted::UserCounter;
pub use counts::{CommandMethod, SessionCount, SubscribeOutcome};
pub use effects::{ClientProgram, Effects, Outbound, RefusalReport, SubscriptionChange, SubscriptionEnd};
pub use explain::{ExplainedAction, ExplainedStep, StepVerdict};
pub use explain_facts::StepFact;
pub use rules::{ChannelAction, DecisionRule};
pub use server::ServerSubscription;
pub use state::Session;
pub use ticket::{ReplyKind, Ticket};
pub use transport::TransportMode;
pub use weight::{Room, Weight};

use crate::directory::DirectoryRequest;
use state::Phase;

/// The memory that a queued push takes in addition to its bytes: its entry, and the allocation of its frame. Bytes.
pub const ENTRY_SIZE: usize = 64;

impl Session {
    /// Sends a message only to this client. `data` is JSON.
    pub fn message(&mut self, data: &[u8], context: &mut Context<'_>) {
        context.effects.messages.push("", &Push::Message(data));
    }

    /// Holds a push back while the connect is under way, up to `limit` bytes. If there are more bytes, the connect ends
    /// with
    /// 3008. Returns the push if it can be sent at once.
    pub fn hold(&mut self, frame: Bytes, limit: usize) -> Option<Bytes> {
        let Phase::Connecting(connecting) = &mut self.phase else { return Some(frame) };
        connecting.held_bytes += frame.len() + ENTRY_SIZE;
        connecting.is_overrun |= connecting.held_bytes > limit;
        if connecting.is_overrun {
            connecting.held = Vec::new();
        } else {
            connecting.held.push(frame);
        }
        None
    }

    /// Releases everything that the session uses: its subscriptions, on this shard and at the channels' homes.
    pub fn close(&mut self, context: &mut Context<'_>) {
        self.drop_deferred(context);
        self.cancel_hooks(context);
        self.give_back_unused(context);
        self.phase = Phase::Closed;
        self.rare = None;
        for subscription in self.subscriptions.take() {
            self.release(subscription, None, context);
        }
        if std::mem::take(&mut self.has_entries) {
            context.effects.directory_requests.push((None, self.who(), DirectoryRequest::Close));
        }
    }
}
