//! What a session has decided, for its shard to carry out.

use bytes::Bytes;
use touchline_protocol::Disconnect;
use touchline_protocol::message::Messages;
use touchline_protocol::stream::ChannelName;

use super::counts::{CommandMethod, SessionCount, SubscribeOutcome};
use super::ticket::Ticket;
use crate::directory::{DirectoryRequest, Requester};
use crate::hook::HookCall;
use crate::namespace::NamespaceIndex;
use crate::request::ChannelRequest;

/// The effects of a session that its shard carries out. Reused from call to call.
#[derive(Debug, Default)]
pub struct Effects {
    /// Messages for the client, in its own encoding.
    pub messages: Messages,
    /// A ping for the client.
    pub ping: bool,
    /// Pushes that were held back while the connect was under way. They follow the messages.
    pub released: Vec<Bytes>,
    /// Requests to homes of channels.
    pub requests: Vec<Outbound>,
    /// Requests to the directory. With a ticket they need a reply.
    pub directory_requests: Vec<(Option<Ticket>, Requester, DirectoryRequest)>,
    /// Questions to the backend.
    pub hook_calls: Vec<HookCall>,
    /// Numbers of questions whose answer is not wanted any more.
    pub cancelled_hooks: Vec<u32>,
    /// The client's next command is to be carried out at this time, as of [`super::Context::now_us`], and its input
    /// waits until then; `None` = at once.
    pub hold_until_us: Option<u64>,
    /// A subscription has begun in a channel whose publications may be dropped while they wait for the client.
    pub may_drop: bool,
    /// Subscriptions that have begun or ended, if they are noted ([`super::SessionSettings::notes_subscriptions`]).
    pub subscription_changes: Vec<SubscriptionChange>,
    /// Ends the connection.
    pub disconnect: Option<Disconnect>,
    /// Name and version of the client's program, once the client has sent them; for metrics.
    pub program: Option<(Box<str>, Box<str>)>,
    /// What the session has done; for metrics.
    pub counts: Vec<SessionCount>,
    /// The method of the command that the session deals with.
    pub(super) method: CommandMethod,
    /// The namespace of the channel to which the session subscribes its client.
    pub(super) namespace: NamespaceIndex,
    /// How many of these errors are the client's own doing, and count for its rate of errors.
    pub(super) client_errors: u32,
    /// Causes of the client's refusals; for the log.
    pub refusals: Vec<RefusalReport>,
    /// The client gets the cause, too.
    pub(super) tells_cause: bool,
}

impl Effects {
    /// The numbers of the errors that the client was told.
    pub fn errors(&self) -> impl Iterator<Item = u32> {
        self.counts.iter().filter_map(|count| match count {
            SessionCount::Error { code, .. } => Some(*code),
            _ => None,
        })
    }

    /// Something else begins: what follows is about no command and no channel until one is named.
    pub fn begin(&mut self) {
        (self.method, self.namespace) = (CommandMethod::None, NamespaceIndex::UNKNOWN);
    }

    /// Counts a subscribe that is refused.
    pub(super) fn count_refused_subscribe(&mut self, is_temporary: bool) {
        self.count_subscribe(if is_temporary { SubscribeOutcome::Failed } else { SubscribeOutcome::Refused });
    }

    /// Counts what has become of a subscribe to the channel at hand.
    pub(super) fn count_subscribe(&mut self, outcome: SubscribeOutcome) {
        self.counts.push(SessionCount::Subscribe { namespace: self.namespace, outcome });
    }
}

/// A subscription that has begun or ended.
#[derive(Debug)]
pub struct SubscriptionChange {
    /// The channel.
    pub channel: ChannelName,
    /// Its number among the subscriptions of its session, the same when it begins and when it ends.
    pub number: u32,
    /// How it has ended; `None` = it has begun.
    pub end: Option<SubscriptionEnd>,
}

/// The end of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionEnd {
    /// Why, by the numbers of [`touchline_protocol::Unsubscribe`]; `None` = the connection has ended.
    pub code: Option<u32>,
    /// How long it was there, milliseconds.
    pub duration_ms: u64,
}

/// A request to the home of a channel.
#[derive(Debug)]
pub struct Outbound {
    /// The channel.
    pub channel: ChannelName,
    /// The ticket comes back with the reply; `None` = there is no reply.
    pub ticket: Option<Ticket>,
    /// The request.
    pub request: ChannelRequest,
}

/// A refusal, for the operator's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalReport {
    /// Number of the error or of the disconnect that the client gets; 0 = it gets none.
    pub code: u32,
    /// What is missing or wrong. A fixed text: never anything that was sent.
    pub cause: &'static str,
    /// The channel, at most 64 bytes of its name; empty = it is not about a channel.
    pub channel: Box<str>,
}
