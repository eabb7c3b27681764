//! Work of the server API that a shard does in steps: commands to connections, and questions about an audience.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;
use touchline_engine::hub::{AudienceCursor, DeliveryForm};
use touchline_protocol::publication::Tags;
use touchline_protocol::{Error, Wire};

use crate::runtime::audience::{AudienceQuestion, NodeAudience};
use crate::runtime::mailbox::ConnectionAction;
use crate::runtime::pacer::Pacer;

/// How many connections commands reach in one turn.
const COMMANDED_IN_TURN: usize = 256;
/// How many bytes the waiting commands without a rate may hold on a shard. Above it, no other one is taken.
const WAITING_SIZE_MAX: usize = 64 * 1_024 * 1_024;
/// How many bytes a command holds in addition to its connections and what they get.
const COMMAND_SIZE: usize = 512;

/// Work of the server API that continues in steps.
#[derive(Default)]
pub(super) struct StepwiseWork {
    /// Commands to connections.
    pub(super) commands: PendingCommands,
    /// Questions about the subscribers that would get a publication.
    pub(super) audience_counts: AudienceCounts,
}

/// The commands of a shard that are under way.
#[derive(Default)]
pub(super) struct PendingCommands {
    under_way: VecDeque<CommandUnderWay>,
    /// How many bytes the commands without a rate hold.
    waiting_size: usize,
    /// Whether some of the commands may continue in the next turn; otherwise they wait for the next tick.
    pub(super) is_due: bool,
    /// How many connections commands may still reach in this turn.
    pub(super) left: usize,
}

impl PendingCommands {
    /// Whether there is work for the next turn.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// Resets the limit of connections at the beginning of a turn.
    pub(super) fn begin_turn(&mut self) {
        self.left = COMMANDED_IN_TURN;
    }

    /// Makes all commands due, because a tick may be the turn of some connections.
    pub(super) fn tick(&mut self) {
        self.is_due |= !self.under_way.is_empty();
    }

    /// The number of commands that are under way.
    pub(super) fn count(&self) -> usize {
        self.under_way.len()
    }

    /// Whether no further command without a rate is taken.
    pub(super) fn is_full(&self) -> bool {
        self.waiting_size >= WAITING_SIZE_MAX
    }

    /// Keeps the rest of a command, behind the others.
    pub(super) fn keep(&mut self, command: CommandUnderWay) {
        self.waiting_size += command.waiting_size();
        self.under_way.push_back(command);
    }

    /// Takes the command whose turn it is; None = there is none.
    pub(super) fn take_next(&mut self) -> Option<CommandUnderWay> {
        let command = self.under_way.pop_front()?;
        self.waiting_size -= command.waiting_size();
        Some(command)
    }

    /// Notes whether some of the commands may continue in the next turn.
    pub(super) fn note_due(&mut self) {
        let has_been_cut = self.left == 0 && !self.under_way.is_empty();
        self.is_due = has_been_cut || self.under_way.iter().any(|command| command.pacer.is_none());
    }

    /// Ends all commands that have a rate.
    pub(super) fn end_paced(&mut self) {
        self.under_way.retain(|command| command.pacer.is_none());
    }
}

/// A command that has not reached all its connections.
pub(super) struct CommandUnderWay {
    /// Slots, and the generations that they had when the command arrived; the next one to serve is the last.
    pub(super) targets: Vec<(u32, u32)>,
    pub(super) action: Arc<ConnectionAction>,
    /// The rate of the command; None = it continues in each turn.
    pub(super) pacer: Option<Arc<Pacer>>,
    /// Receives the outcome; None = the outcome was already sent.
    pub(super) reply: Option<oneshot::Sender<Result<u64, Error>>>,
    /// How many bytes the command held when it arrived.
    pub(super) size: usize,
    pub(super) reached: u64,
    pub(super) result: Result<(), Error>,
}

impl CommandUnderWay {
    /// How many bytes a command for this many connections holds.
    pub(super) fn size_of(targets: usize, action: &ConnectionAction) -> usize {
        COMMAND_SIZE + targets * size_of::<(u32, u32)>() + action.size()
    }

    /// Whether no caller waits for the command any more, and no connection has had it.
    pub(super) fn is_given_up(&self) -> bool {
        self.reached == 0 && self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// How much the command counts towards [`WAITING_SIZE_MAX`]; commands with a rate have their own limit.
    fn waiting_size(&self) -> usize {
        if self.pacer.is_none() { self.size } else { 0 }
    }
}

/// The questions of a shard, in the order in which they arrived.
#[derive(Default)]
pub(super) struct AudienceCounts(pub(super) VecDeque<AudienceCount>);

impl AudienceCounts {
    /// Whether there is a question.
    pub(super) fn is_any(&self) -> bool {
        !self.0.is_empty()
    }
}

/// A question that is being answered.
pub(super) struct AudienceCount {
    pub(super) question: AudienceQuestion,
    pub(super) tags: Tags,
    pub(super) cursor: AudienceCursor,
    pub(super) so_far: NodeAudience,
    /// The size of the publication in bytes, in each form that a subscriber gets.
    pub(super) lengths: Vec<((Wire, DeliveryForm), u64)>,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn command(data: usize, pacer: Option<Arc<Pacer>>) -> (CommandUnderWay, oneshot::Receiver<Result<u64, Error>>) {
        let action = Arc::new(ConnectionAction::Send(vec![b'1'; data].into()));
        let (reply, answer) = oneshot::channel();
        let size = CommandUnderWay::size_of(1, &action);
        let (targets, reply) = (vec![(0, 0)], Some(reply));
        (CommandUnderWay { targets, action, pacer, reply, size, reached: 0, result: Ok(()) }, answer)
    }

    #[test]
    fn commands_that_wait_have_a_limit_and_give_their_room_back() {
        let mut commands = PendingCommands::default();
        let under_way = Arc::new(AtomicUsize::new(0));
        let pacer = Pacer::begin(1, &under_way);
        assert!(pacer.is_some());
        commands.keep(command(WAITING_SIZE_MAX, pacer).0);
        assert!(!commands.is_full(), "a rate has a limit of its own");
        commands.keep(command(WAITING_SIZE_MAX / 2, None).0);
        assert!(!commands.is_full());
        commands.keep(command(WAITING_SIZE_MAX / 2, None).0);
        assert!(commands.is_full());
        commands.end_paced();
        assert_eq!((commands.count(), commands.is_full()), (2, true));
        assert!(commands.take_next().is_some() && !commands.is_full());
        assert!(commands.take_next().is_some() && commands.take_next().is_none());
        assert_eq!(commands.waiting_size, 0);
    }

    #[test]
    fn a_command_that_nobody_waits_for_is_given_up_until_it_has_begun() {
        let (mut command, answer) = command(1, None);
        assert!(!command.is_given_up());
        drop(answer);
        assert!(command.is_given_up());
        command.reached = 1;
        assert!(!command.is_given_up());
        (command.reached, command.reply) = (0, None);
        assert!(!command.is_given_up(), "it has a rate, and is answered already");
    }
}
