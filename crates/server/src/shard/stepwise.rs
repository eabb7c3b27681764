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

/// Connections that commands reach in one turn.
const COMMANDED_IN_TURN: usize = 256;

/// Work of the server API that goes on in steps.
#[derive(Default)]
pub(super) struct StepwiseWork {
    /// Commands to connections.
    pub(super) commands: PendingCommands,
    /// Questions who would get a publication.
    pub(super) audience_counts: AudienceCounts,
}

/// The commands of a shard that are under way.
#[derive(Default)]
pub(super) struct PendingCommands {
    pub(super) under_way: VecDeque<CommandUnderWay>,
    /// Whether some of them may go on in the next turn; else they wait for the next tick.
    pub(super) is_due: bool,
    /// Connections that commands may still reach in this turn.
    pub(super) left: usize,
}

impl PendingCommands {
    /// Whether there is work for the next turn.
    pub(super) fn is_due(&self) -> bool {
        self.is_due
    }

    /// A turn begins.
    pub(super) fn begin_turn(&mut self) {
        self.left = COMMANDED_IN_TURN;
    }

    /// A tick has come, which may be the turn of some connections.
    pub(super) fn tick(&mut self) {
        self.is_due |= !self.under_way.is_empty();
    }

    /// Ends the commands that have a rate.
    pub(super) fn end_paced(&mut self) {
        self.under_way.retain(|command| command.pacer.is_none());
    }
}

/// A command that has not reached all its connections.
pub(super) struct CommandUnderWay {
    /// Slots, and the generations that they had when the command came; the next one is the last.
    pub(super) targets: Vec<(u32, u32)>,
    pub(super) action: Arc<ConnectionAction>,
    /// The rate; None = it goes on in each turn.
    pub(super) pacer: Option<Arc<Pacer>>,
    /// Takes the outcome; None = it has been told already.
    pub(super) reply: Option<oneshot::Sender<Result<u64, Error>>>,
    pub(super) reached: u64,
    pub(super) result: Result<(), Error>,
}

/// The questions of a shard, in the order in which they came.
#[derive(Default)]
pub(super) struct AudienceCounts(pub(super) VecDeque<AudienceCount>);

impl AudienceCounts {
    /// Whether there is one.
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
    /// How many bytes the publication has in each form that somebody gets.
    pub(super) lengths: Vec<((Wire, DeliveryForm), u64)>,
}
