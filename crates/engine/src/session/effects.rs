//! What a session has decided. Its shard carries it out.

use bytes::Bytes;
use touchline_protocol::Disconnect;
use touchline_protocol::command::ConnectCommand;
use touchline_protocol::message::Messages;
use touchline_protocol::stream::ChannelName;

use super::counts::{CommandMethod, SessionCount, SubscribeOutcome};
use super::ticket::Ticket;
use crate::directory::{DirectoryRequest, Requester};
use crate::hook::HookCall;
use crate::namespace::NamespaceIndex;
use crate::request::ChannelRequest;

/// The effects of a session that its shard carries out. The value is reused from call to call.
#[derive(Debug, Default)]
pub struct Effects {
    /// The messages for the client, in the client's encoding.
    pub messages: Messages,
    /// Whether to send a ping to the client.
    pub ping: bool,
    /// Pushes that were held back while the connect was under way. They are sent after the messages.
    pub released: Vec<Bytes>,
    /// The requests to homes of channels.
    pub requests: Vec<Outbound>,
    /// The requests to the directory. A request with a ticket needs a response.
    pub directory_requests: Vec<(Option<Ticket>, Requester, DirectoryRequest)>,
    /// The hook calls to make to backends.
    pub hook_calls: Vec<HookCall>,
    /// The numbers of hook calls whose answer is no longer needed.
    pub cancelled_hooks: Vec<u32>,
    /// When the client's next command is executed, as of [`super::Context::now_us`]. Its input waits until then; `None`
    /// = it is executed at once.
    pub hold_until_us: Option<u64>,
    /// Whether a subscription has begun in a channel whose publications may be dropped while they wait for the client.
    pub may_drop: bool,
    /// Subscriptions that have begun or ended, if they are noted ([`super::SessionSettings::notes_subscriptions`]).
    pub subscription_changes: Vec<SubscriptionChange>,
    /// The disconnect that ends the connection; `None` = it stays.
    pub disconnect: Option<Disconnect>,
    /// The program of a client that has just authenticated, for metrics.
    pub program: Option<ClientProgram>,
    /// What the session has done, for metrics.
    pub counts: Vec<SessionCount>,
    /// The method of the command that the session is executing.
    pub(super) method: CommandMethod,
    /// The namespace of the channel that the session is subscribing its client to.
    pub(super) namespace: NamespaceIndex,
    /// How many of these errors the client has caused itself. They count for its rate of errors.
    pub(super) client_errors: u32,
    /// The causes of the client's refusals, for the log.
    pub refusals: Vec<RefusalReport>,
    /// Whether the client also gets the cause of a refusal.
    pub(super) tells_cause: bool,
}

impl Effects {
    /// The numbers of the errors that were sent to the client.
    pub fn errors(&self) -> impl Iterator<Item = u32> {
        self.counts.iter().filter_map(|count| match count {
            SessionCount::Error { code, .. } => Some(*code),
            _ => None,
        })
    }

    /// Starts a new decision: it concerns no command and no channel until one is named.
    pub fn begin(&mut self) {
        (self.method, self.namespace) = (CommandMethod::None, NamespaceIndex::UNKNOWN);
    }

    /// Counts a refused subscribe.
    pub(super) fn count_refused_subscribe(&mut self, is_temporary: bool) {
        self.count_subscribe(if is_temporary { SubscribeOutcome::Failed } else { SubscribeOutcome::Refused });
    }

    /// Counts the outcome of a subscribe to the current channel.
    pub(super) fn count_subscribe(&mut self, outcome: SubscribeOutcome) {
        self.counts.push(SessionCount::Subscribe { namespace: self.namespace, outcome });
    }
}

/// A subscription that has begun or ended.
#[derive(Debug)]
pub struct SubscriptionChange {
    /// The channel of the subscription.
    pub channel: ChannelName,
    /// The number of the subscription within its session. It is the same at the begin and at the end.
    pub number: u32,
    /// How the subscription has ended; `None` = it has begun.
    pub end: Option<SubscriptionEnd>,
}

/// The end of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionEnd {
    /// The code of the reason, as in [`touchline_protocol::Unsubscribe`]; `None` = the connection has ended.
    pub code: Option<u32>,
    /// How long the subscription existed, milliseconds.
    pub duration_ms: u64,
}

/// A request to the home of a channel.
#[derive(Debug)]
pub struct Outbound {
    /// The channel whose home gets the request.
    pub channel: ChannelName,
    /// The ticket that comes back with the response; `None` = there is no response.
    pub ticket: Option<Ticket>,
    /// The request to the home.
    pub request: ChannelRequest,
}

/// The program of a client, as its connect command names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientProgram {
    /// The name of the program; never empty.
    pub name: Box<str>,
    /// The version of the program; empty = the client has not sent it.
    pub version: Box<str>,
}

impl ClientProgram {
    /// The program of a connect command; `None` = the command does not name it.
    pub(super) fn of(request: &ConnectCommand<'_>) -> Option<Self> {
        let program = || ClientProgram { name: (*request.name).into(), version: (*request.version).into() };
        (!request.name.is_empty()).then(program)
    }
}

/// The report of a refusal, for the operator's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusalReport {
    /// The number of the error or of the disconnect that the client gets; 0 = it gets none.
    pub code: u32,
    /// What is missing or wrong. The text is fixed: it never contains anything that was sent.
    pub cause: &'static str,
    /// The channel, at most 64 bytes of its name; empty = the refusal does not concern a channel.
    pub channel: Box<str>,
    /// The method of a refused RPC, and the scope of the registry that it names, at most 64 bytes each; empty = the
    /// refusal does not concern an RPC.
    pub method: Box<str>,
}
