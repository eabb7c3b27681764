//! What a session remembers for hooks: open questions to backends, the commands that wait for their answers, and what a
//! backend has said about the connection.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use touchline_protocol::command::SubscribeCommand;
use touchline_protocol::filter::FilterNode;

use super::counts::CommandMethod;
use super::effects::ClientProgram;
use crate::caps::Capabilities;
use crate::duration::millis;
use crate::hook::{EmulatedHeaders, HookRequest};
use crate::settings::ClientSettings;

/// The bytes of commands that may wait for hooks before the next commands have to wait too.
const HELD_SIZE_MAX: usize = 64 * 1_024;
/// The memory that a question takes in addition to its bytes, bytes.
const WAIT_SIZE: usize = 256;
/// The longest time between two attempts of a refresh that fails.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// The state that hooks need in a session.
#[derive(Debug, Default)]
pub(super) struct HookState {
    last_serial: u32,
    waits: Vec<HookWait>,
    /// Commands that have finished waiting for a hook, in order. They are executed once there is room.
    ready: VecDeque<HeldCommand>,
    /// The bytes of the commands that wait for hooks and of those in `ready`.
    held_size: usize,
    /// The number of questions in `waits` that the client has caused.
    asked: usize,
    /// The number of questions in `waits` about subscriptions that have expired.
    refreshes: usize,
    /// Channels that a client of a one-way transport named when it connected. The backend was not asked about them yet.
    wishes: VecDeque<HookWish>,
    /// The `meta` for later hooks, a JSON object.
    pub(super) meta: Option<Bytes>,
    /// The labels of the connection, a JSON object whose values are texts.
    pub(super) labels: Option<Bytes>,
    /// The header fields that the client has claimed.
    pub(super) emulated_headers: Option<EmulatedHeaders>,
    /// What the client may do in channels in addition to what their namespaces allow.
    pub(super) caps: Option<Arc<Capabilities>>,
    /// When the backend is asked about the connection again.
    pub(super) refresh: RetryPlan,
    /// Whether the session executes no more commands.
    pub(super) is_winding_down: bool,
}

/// A command that waits for a hook.
#[derive(Debug)]
pub(super) struct HeldCommand {
    /// The bytes of the whole command.
    pub(super) input: Box<[u8]>,
    /// The number and channel of the command, if it is a subscribe.
    pub(super) subscribe: Option<(u32, Box<str>)>,
}

impl HeldCommand {
    /// The memory that the command takes, bytes.
    fn size(&self) -> usize {
        self.input.len() + self.subscribe.as_ref().map_or(0, |(_, channel)| channel.len())
    }
}

/// A channel that a client of a one-way transport named when it connected.
#[derive(Debug)]
pub(super) struct HookWish {
    pub(super) question: HookRequest,
    pub(super) request: Box<SubscribeCommand<'static>>,
}

/// A question to a backend that has no answer yet.
#[derive(Debug)]
pub(super) struct HookWait {
    serial: u32,
    /// The channel of the question; empty = it concerns no channel.
    pub(super) channel: Box<str>,
    pub(super) action: WaitingAction,
    /// Later commands about the same channel, in order.
    pub(super) behind: VecDeque<HeldCommand>,
    /// Whether the subscription to the channel has expired meanwhile. If so, the next question is about the refresh.
    pub(super) is_refresh_due: bool,
}

/// What the session does when the answer arrives.
#[derive(Debug)]
pub(super) enum WaitingAction {
    Connect {
        command: u32,
        program: Option<ClientProgram>,
        subs: BTreeMap<Cow<'static, str>, SubscribeCommand<'static>>,
    },
    Refresh,
    Subscribe {
        command: u32,
        request: Box<SubscribeCommand<'static>>,
    },
    /// Subscribes to a channel that a client of a one-way transport named when it connected.
    SubscribeAtConnect {
        request: Box<SubscribeCommand<'static>>,
    },
    Publish {
        command: u32,
        data: Bytes,
    },
    Rpc {
        command: u32,
    },
    SubRefresh,
    /// Does nothing: the client no longer wants it. The question counts until the backend has answered.
    Abandoned,
}

impl WaitingAction {
    /// The method of the command that the question is about.
    pub(super) fn method(&self) -> CommandMethod {
        match self {
            WaitingAction::Connect { .. } | WaitingAction::SubscribeAtConnect { .. } => CommandMethod::Connect,
            WaitingAction::Refresh => CommandMethod::Refresh,
            WaitingAction::Subscribe { .. } => CommandMethod::Subscribe,
            WaitingAction::Publish { .. } => CommandMethod::Publish,
            WaitingAction::Rpc { .. } => CommandMethod::Rpc,
            WaitingAction::SubRefresh => CommandMethod::SubRefresh,
            WaitingAction::Abandoned => CommandMethod::None,
        }
    }
}

impl HookWait {
    /// Whether the question is about this channel. A question that concerns no channel never matches.
    fn is_about(&self, channel: &str) -> bool {
        *self.channel == *channel && !channel.is_empty()
    }

    /// The memory that the question takes for the client, bytes.
    fn size(&self) -> usize {
        let action = match &self.action {
            WaitingAction::Publish { data, .. } => data.len(),
            WaitingAction::Connect { subs, .. } => {
                subs.iter().map(|(channel, request)| WAIT_SIZE + channel.len() + request_size(request)).sum()
            }
            WaitingAction::Subscribe { request, .. } | WaitingAction::SubscribeAtConnect { request } => {
                request_size(request)
            }
            WaitingAction::Refresh
            | WaitingAction::Rpc { .. }
            | WaitingAction::SubRefresh
            | WaitingAction::Abandoned => 0,
        };
        WAIT_SIZE + self.channel.len() + action
    }
}

/// The bytes of the texts in a subscribe.
fn request_size(request: &SubscribeCommand<'_>) -> usize {
    let filter = request.tf.as_deref().map_or(0, FilterNode::size);
    request.channel.len() + request.token.len() + request.epoch.len() + request.delta.len() + filter
}

impl WaitingAction {
    /// Whether a command of the client waits for the answer. Such a command counts as under way.
    pub(super) fn is_command(&self) -> bool {
        matches!(self, WaitingAction::Subscribe { .. } | WaitingAction::Publish { .. } | WaitingAction::Rpc { .. })
    }

    /// Whether an authenticated client has caused the question: `client.hook_calls_in_flight_max` counts it.
    fn is_of_client(&self) -> bool {
        self.is_command() || matches!(self, WaitingAction::SubscribeAtConnect { .. } | WaitingAction::Abandoned)
    }
}

/// When a refresh is attempted again.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct RetryPlan {
    /// The time of the next attempt, Unix milliseconds; 0 = no attempt has failed, `u64::MAX` = the answer is awaited.
    pub(super) at_ms: u64,
    tries: u8,
}

impl RetryPlan {
    /// A plan for an attempt at this time, Unix milliseconds.
    pub(super) fn at(at_ms: u64) -> Self {
        RetryPlan { at_ms, tries: 0 }
    }

    /// The plan while the answer is awaited.
    pub(super) fn asked(self) -> Self {
        RetryPlan { at_ms: u64::MAX, ..self }
    }

    /// The plan after a failure: the next attempt is 1, 2, 4 … 60 seconds later.
    pub(super) fn failed(self, now_ms: u64) -> Self {
        let delay_ms = (1_000_u64 << self.tries.min(16)).min(millis(RETRY_DELAY_MAX));
        RetryPlan { at_ms: now_ms.saturating_add(delay_ms), tries: self.tries.saturating_add(1) }
    }
}

impl HookState {
    /// Adds a question. Returns its number.
    pub(super) fn begin(&mut self, channel: &str, action: WaitingAction) -> u32 {
        self.last_serial = self.last_serial.wrapping_add(1);
        self.asked += usize::from(action.is_of_client());
        self.refreshes += usize::from(matches!(action, WaitingAction::SubRefresh));
        let (serial, behind) = (self.last_serial, VecDeque::new());
        self.waits.push(HookWait { serial, channel: channel.into(), action, behind, is_refresh_due: false });
        serial
    }

    /// Removes and returns a question whose answer has arrived. `None` = the answer is no longer needed.
    pub(super) fn take(&mut self, serial: u32) -> Option<HookWait> {
        let index = self.waits.iter().position(|wait| wait.serial == serial)?;
        let wait = self.waits.swap_remove(index);
        self.asked -= usize::from(wait.action.is_of_client());
        self.refreshes -= usize::from(matches!(wait.action, WaitingAction::SubRefresh));
        Some(wait)
    }

    /// Adds a channel that the client of a one-way transport has named. The backend is asked about it in its turn.
    pub(super) fn add_wish(&mut self, wish: HookWish) {
        self.wishes.push_back(wish);
    }

    /// Removes and returns the next named channel that a backend may be asked about now.
    pub(super) fn next_wish(&mut self, client: &ClientSettings) -> Option<HookWish> {
        if self.asked < client.hook_calls_in_flight_max { self.wishes.pop_front() } else { None }
    }

    /// The number of channels, named by the client of a one-way transport, that wait for a question to a backend.
    pub(super) fn wish_count(&self) -> usize {
        let is_wish = |wait: &&HookWait| matches!(wait.action, WaitingAction::SubscribeAtConnect { .. });
        self.wishes.len() + self.waits.iter().filter(is_wish).count()
    }

    /// Notes that the subscription to a channel has expired: the question about it follows the answer to the question
    /// that is under way. Returns false if no question is under way.
    pub(super) fn refresh_after(&mut self, channel: &str) -> bool {
        let wait = self.waits.iter_mut().find(|wait| wait.is_about(channel));
        wait.map(|wait| wait.is_refresh_due = true).is_some()
    }

    /// Whether the limit of simultaneous questions about expired subscriptions is reached.
    pub(super) fn refreshes_enough(&self, client: &ClientSettings) -> bool {
        self.refreshes >= client.hook_calls_in_flight_max
    }

    /// The channels that the client is waiting to be subscribed to.
    pub(super) fn subscribes(&self) -> Vec<Box<str>> {
        let is_it = |wait: &&HookWait| matches!(wait.action, WaitingAction::Subscribe { .. });
        self.waits.iter().filter(is_it).map(|wait| wait.channel.clone()).collect()
    }

    /// Keeps a command until the question about its channel is answered. Returns false if there is no such question.
    pub(super) fn keep_behind(&mut self, channel: &str, make: impl FnOnce() -> HeldCommand) -> bool {
        let Some(wait) = self.waits.iter_mut().find(|wait| wait.is_about(channel)) else { return false };
        let command = make();
        self.held_size += command.size();
        wait.behind.push_back(command);
        true
    }

    /// Removes the subscribes to a channel that wait for questions or are ready. Returns their command numbers.
    pub(super) fn take_subscribes(&mut self, channel: &str) -> Vec<u32> {
        let (mut taken, mut freed) = (Vec::new(), 0);
        let mut keep = |command: &HeldCommand| match &command.subscribe {
            Some((number, of)) if **of == *channel => {
                taken.push(*number);
                freed += command.size();
                false
            }
            _ => true,
        };
        for wait in &mut self.waits {
            wait.behind.retain(&mut keep);
        }
        self.ready.retain(&mut keep);
        self.held_size -= freed;
        taken
    }

    /// Abandons the question whether the client may subscribe to a channel. Returns the number of its command. Later
    /// commands about the channel still wait for the backend's answer: only one question at a time is asked about a
    /// channel.
    pub(super) fn abandon_subscribe(&mut self, channel: &str) -> Option<u32> {
        let is_it = |wait: &&mut HookWait| wait.is_about(channel);
        let wait = self.waits.iter_mut().find(is_it)?;
        let WaitingAction::Subscribe { command, .. } = wait.action else { return None };
        wait.action = WaitingAction::Abandoned;
        Some(command)
    }

    /// Withdraws channels that the client of a one-way transport named when it connected: the channel with this name,
    /// or all if it is empty. Returns how many were withdrawn, and the numbers of the questions among them.
    pub(super) fn take_wishes(&mut self, channel: &str) -> (usize, Vec<u32>) {
        let is_named = |name: &str| channel.is_empty() || *name == *channel;
        let before = self.wishes.len();
        self.wishes.retain(|wish| !is_named(&wish.request.channel));
        let is_it = |wait: &HookWait| {
            matches!(wait.action, WaitingAction::SubscribeAtConnect { .. }) && is_named(&wait.channel)
        };
        let serials: Vec<_> = self.waits.iter().filter(|wait| is_it(wait)).map(|wait| wait.serial).collect();
        self.waits.retain(|wait| !is_it(wait));
        self.asked -= serials.len();
        (before - self.wishes.len() + serials.len(), serials)
    }

    /// Makes the commands that waited for a question ready. They precede those already ready, because they were read
    /// earlier.
    pub(super) fn put_back(&mut self, behind: VecDeque<HeldCommand>) {
        for command in behind.into_iter().rev() {
            self.ready.push_front(command);
        }
    }

    /// The number of waiting commands that no question has been asked about yet.
    pub(super) fn held_commands(&self) -> usize {
        self.ready.len() + self.waits.iter().map(|wait| wait.behind.len()).sum::<usize>()
    }

    /// Whether commands that have finished waiting can be executed.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Removes and returns the next command that has finished waiting.
    pub(super) fn next_ready(&mut self) -> Option<HeldCommand> {
        let command = self.ready.pop_front()?;
        self.held_size -= command.size();
        Some(command)
    }

    /// Whether the next command of the client must wait.
    pub(super) fn is_full(&self, client: &ClientSettings) -> bool {
        self.asks_enough(client) || self.held_size > HELD_SIZE_MAX
    }

    /// Whether the limit of simultaneous questions about commands is reached.
    pub(super) fn asks_enough(&self, client: &ClientSettings) -> bool {
        self.is_winding_down || self.asked >= client.hook_calls_in_flight_max
    }

    /// Whether no question waits for an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.waits.is_empty()
    }

    /// The numbers of all questions.
    pub(super) fn serials(&self) -> impl Iterator<Item = u32> {
        self.waits.iter().map(|wait| wait.serial)
    }

    /// The memory that the client makes the session use, bytes. What the backend has said about the client is not
    /// counted.
    pub(super) fn size(&self) -> usize {
        let emulated = self.emulated_headers.iter().flat_map(|headers| headers.iter());
        let wishes = self
            .wishes
            .iter()
            .map(|wish| WAIT_SIZE + request_size(&wish.request) + wish.question.data().map_or(0, Bytes::len));
        self.held_size
            + wishes.sum::<usize>()
            + self.waits.iter().map(HookWait::size).sum::<usize>()
            + emulated.map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}
