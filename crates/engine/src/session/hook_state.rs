//! What a session remembers for hooks: questions without an answer, the commands behind them, and what the backend has
//! said of the connection.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use touchline_protocol::command::SubscribeCommand;
use touchline_protocol::filter::FilterNode;

use crate::caps::Capabilities;
use crate::duration::millis;
use crate::hook::EmulatedHeaders;
use crate::settings::ClientSettings;

/// Bytes of commands that may wait behind hooks before the next commands wait too.
const HELD_SIZE_MAX: usize = 64 * 1_024;
/// What a question costs besides its bytes. Bytes.
const WAIT_SIZE: usize = 256;
/// The longest time between two tries of a refresh that failed.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// What hooks need of a session.
#[derive(Debug, Default)]
pub(super) struct HookState {
    last_serial: u32,
    waits: Vec<HookWait>,
    /// Commands that have waited behind a hook, each whole, in order: they are executed once there is room.
    ready: VecDeque<Box<[u8]>>,
    /// Bytes of the commands behind hooks and of `ready`.
    held_size: usize,
    /// Waiting commands among `waits`.
    commands: usize,
    /// JSON object for later hooks.
    pub(super) meta: Option<Bytes>,
    /// Labels of the connection, a JSON object of texts.
    pub(super) labels: Option<Bytes>,
    /// Header fields that the client has claimed.
    pub(super) emulated_headers: Option<EmulatedHeaders>,
    /// What the client may do in channels besides what their namespaces allow.
    pub(super) caps: Option<Arc<Capabilities>>,
    /// The refresh of the connection.
    pub(super) refresh: RetryPlan,
    /// No more commands are executed.
    pub(super) is_winding_down: bool,
}

/// A question without an answer.
#[derive(Debug)]
pub(super) struct HookWait {
    serial: u32,
    /// The channel that it is about; empty = it is about none.
    pub(super) channel: Box<str>,
    pub(super) action: WaitingAction,
    /// Later commands about the channel, each whole, in order.
    pub(super) behind: VecDeque<Box<[u8]>>,
}

/// What follows when the answer comes.
#[derive(Debug)]
pub(super) enum WaitingAction {
    Connect {
        command: u32,
        subs: BTreeMap<Cow<'static, str>, SubscribeCommand<'static>>,
    },
    Refresh,
    Subscribe {
        command: u32,
        request: Box<SubscribeCommand<'static>>,
    },
    /// A channel that a client of a one-way transport named when it connected.
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
    /// Nothing: the client does not want it any more. It counts until the backend has answered.
    Abandoned,
}

impl HookWait {
    /// Whether it is about this channel. A question about no channel is about none of any name.
    fn is_about(&self, channel: &str) -> bool {
        *self.channel == *channel && !channel.is_empty()
    }

    /// Bytes that it holds for the client.
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

/// Bytes of the texts of a subscribe.
fn request_size(request: &SubscribeCommand<'_>) -> usize {
    let filter = request.tf.as_deref().map_or(0, FilterNode::size);
    request.channel.len() + request.token.len() + request.epoch.len() + request.delta.len() + filter
}

impl WaitingAction {
    /// Whether a command of the client waits for it, which counts as under way.
    fn is_command(&self) -> bool {
        match self {
            WaitingAction::Subscribe { .. }
            | WaitingAction::Publish { .. }
            | WaitingAction::Rpc { .. }
            | WaitingAction::Abandoned => true,
            WaitingAction::Connect { .. }
            | WaitingAction::Refresh
            | WaitingAction::SubscribeAtConnect { .. }
            | WaitingAction::SubRefresh => false,
        }
    }
}

/// When a refresh is tried again.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct RetryPlan {
    /// Unix milliseconds; 0 = it has not failed, `u64::MAX` = its answer is awaited.
    pub(super) at_ms: u64,
    tries: u8,
}

impl RetryPlan {
    /// A plan for this time, Unix milliseconds.
    pub(super) fn at(at_ms: u64) -> Self {
        RetryPlan { at_ms, tries: 0 }
    }

    /// The plan while the answer is awaited.
    pub(super) fn asked(self) -> Self {
        RetryPlan { at_ms: u64::MAX, ..self }
    }

    /// The plan after a failure: 1, 2, 4 … 60 seconds later.
    pub(super) fn failed(self, now_ms: u64) -> Self {
        let delay_ms = (1_000_u64 << self.tries.min(16)).min(millis(RETRY_DELAY_MAX));
        RetryPlan { at_ms: now_ms.saturating_add(delay_ms), tries: self.tries.saturating_add(1) }
    }
}

impl HookState {
    /// Adds a question. Returns its number.
    pub(super) fn begin(&mut self, channel: &str, action: WaitingAction) -> u32 {
        self.last_serial = self.last_serial.wrapping_add(1);
        self.commands += usize::from(action.is_command());
        let (serial, behind) = (self.last_serial, VecDeque::new());
        self.waits.push(HookWait { serial, channel: channel.into(), action, behind });
        serial
    }

    /// Takes a question whose answer has come. `None` = the answer is not wanted any more.
    pub(super) fn take(&mut self, serial: u32) -> Option<(HookWait, bool)> {
        let index = self.waits.iter().position(|wait| wait.serial == serial)?;
        let wait = self.waits.swap_remove(index);
        let is_command = wait.action.is_command();
        self.commands -= usize::from(is_command);
        Some((wait, is_command))
    }

    /// The question about a channel.
    pub(super) fn find(&self, channel: &str) -> Option<&HookWait> {
        self.waits.iter().find(|wait| wait.is_about(channel))
    }

    /// The channels that the client waits to be subscribed to.
    pub(super) fn subscribes(&self) -> Vec<Box<str>> {
        let is_it = |wait: &&HookWait| matches!(wait.action, WaitingAction::Subscribe { .. });
        self.waits.iter().filter(is_it).map(|wait| wait.channel.clone()).collect()
    }

    /// Keeps a command until the question about its channel has its answer. Returns false if there is no such question.
    pub(super) fn keep_behind(&mut self, channel: &str, command: &[u8]) -> bool {
        let Some(wait) = self.waits.iter_mut().find(|wait| wait.is_about(channel)) else { return false };
        wait.behind.push_back(command.into());
        self.held_size += command.len();
        true
    }

    /// Takes the commands that wait behind questions, or are ready, for which `wanted` gives a number. Returns the
    /// numbers.
    pub(super) fn take_waiting(&mut self, wanted: impl Fn(&[u8]) -> Option<u32>) -> Vec<u32> {
        let (mut taken, mut freed) = (Vec::new(), 0);
        let mut keep = |input: &[u8]| match wanted(input) {
            None => true,
            Some(number) => {
                taken.push(number);
                freed += input.len();
                false
            }
        };
        for wait in &mut self.waits {
            wait.behind.retain(|input| keep(input));
        }
        self.ready.retain(|input| keep(input));
        self.held_size -= freed;
        taken
    }

    /// Gives up the question whether the client may subscribe to a channel. Returns the number of the command that has
    /// asked. Later commands about the channel wait for the backend as before: it is asked one question at a time.
    pub(super) fn abandon_subscribe(&mut self, channel: &str) -> Option<u32> {
        let is_it = |wait: &&mut HookWait| wait.is_about(channel);
        let wait = self.waits.iter_mut().find(is_it)?;
        let WaitingAction::Subscribe { command, .. } = wait.action else { return None };
        wait.action = WaitingAction::Abandoned;
        Some(command)
    }

    /// Takes back what the client of a one-way transport wished when it connected: the channel of this name, empty =
    /// all. Returns the numbers of the questions.
    pub(super) fn take_wishes(&mut self, channel: &str) -> Vec<u32> {
        let is_it = |wait: &HookWait| {
            matches!(wait.action, WaitingAction::SubscribeAtConnect { .. })
                && (channel.is_empty() || *wait.channel == *channel)
        };
        let serials = self.waits.iter().filter(|wait| is_it(wait)).map(|wait| wait.serial).collect();
        self.waits.retain(|wait| !is_it(wait));
        serials
    }

    /// Lets the commands behind a question go on. They came before those that are ready: each was looked at earlier.
    pub(super) fn put_back(&mut self, behind: VecDeque<Box<[u8]>>) {
        for command in behind.into_iter().rev() {
            self.ready.push_front(command);
        }
    }

    /// Commands that wait, and about which nothing has been asked yet.
    pub(super) fn held_commands(&self) -> usize {
        self.ready.len() + self.waits.iter().map(|wait| wait.behind.len()).sum::<usize>()
    }

    /// Whether commands that have waited may go on.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the next command that has waited.
    pub(super) fn next_ready(&mut self) -> Option<Box<[u8]>> {
        let command = self.ready.pop_front()?;
        self.held_size = self.held_size.saturating_sub(command.len());
        Some(command)
    }

    /// Whether the next command of the client must wait.
    pub(super) fn is_full(&self, client: &ClientSettings) -> bool {
        self.asks_enough(client) || self.held_size > HELD_SIZE_MAX
    }

    /// Whether no further question of a command may be asked.
    pub(super) fn asks_enough(&self, client: &ClientSettings) -> bool {
        self.is_winding_down || self.commands >= client.hook_calls_in_flight_max
    }

    /// Whether no question waits.
    pub(super) fn is_idle(&self) -> bool {
        self.waits.is_empty()
    }

    /// The numbers of all questions.
    pub(super) fn serials(&self) -> impl Iterator<Item = u32> {
        self.waits.iter().map(|wait| wait.serial)
    }

    /// Bytes that the client makes it hold. What the backend has said of the client is not counted.
    pub(super) fn size(&self) -> usize {
        let emulated = self.emulated_headers.iter().flat_map(|headers| headers.iter());
        self.held_size
            + self.waits.iter().map(HookWait::size).sum::<usize>()
            + emulated.map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}
