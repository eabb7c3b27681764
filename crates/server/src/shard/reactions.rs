//! Reactions on a shard. The shard sends what its clients have counted to the thread that keeps the totals. What that
//! thread shows goes to subscribers.

use bytes::Bytes;
use touchline_engine::hub::DeliveryForm;
use touchline_engine::reactions::OpenReactions;
use touchline_engine::session::Ticket;
use touchline_protocol::Publication;
use touchline_protocol::publication::Delta;
use touchline_protocol::stream::ChannelName;

use super::state::Shard;
use crate::runtime::mailbox::ShownReactions;
use crate::runtime::reaction_mailbox::ReactionMessage;

impl Shard {
    /// Sends what was counted since the last tick. If there is no room, the counts wait and the counting continues.
    pub(super) fn send_reactions(&mut self) {
        if !self.reactions.has_news() && self.unsent_reactions.is_empty() {
            return;
        }
        let metrics = &self.node.reactions.metrics;
        let (accepted, refused) = self.reactions.take_figures();
        metrics.accepted.add_shared(accepted);
        metrics.refused.iter().zip(refused).for_each(|(counter, n)| counter.add_shared(n));
        // The counts that wait include earlier rounds. They are at most as many as one tick has counted.
        loop {
            if self.unsent_reactions.is_empty() {
                self.unsent_reactions = self.reactions.take();
            }
            if self.unsent_reactions.is_empty() {
                return;
            }
            let message = ReactionMessage::Counted(self.id, std::mem::take(&mut self.unsent_reactions));
            if let Err(ReactionMessage::Counted(_, counted)) = self.node.reactions.try_send(message) {
                self.unsent_reactions = counted;
                return;
            }
        }
    }

    /// Sets which reactions are open in a channel; None = those of its namespace.
    pub(super) fn set_open_reactions(&mut self, channel: ChannelName, open: Option<OpenReactions>) {
        self.reactions.set_open(channel, open, &mut self.unsent_reactions);
        self.send_reactions();
    }

    /// Shows changed reactions in the channels whose home is this shard.
    pub(super) fn show_reactions(&mut self, shown: Vec<ShownReactions>) {
        for ShownReactions { channel, news, state } in shown {
            if let Some(news) = news {
                self.channels.show_reactions(&channel, news);
            }
            self.channels.set_reactions(&channel, state);
        }
        self.send_deliveries();
    }

    /// Sends a new subscriber the reactions in its home's reply, after the reply.
    pub(super) fn note_reactions(&mut self, slot: u32, ticket: Ticket, reactions: &Publication) {
        let held_max = self.generation.settings.client.queue_max_size;
        let Some(connection) = self.connections.get_mut(slot) else { return };
        let delta = match connection.session.reaction_form(ticket, reactions) {
            None => return,
            Some(DeliveryForm::Plain) => Delta::None,
            Some(DeliveryForm::Whole | DeliveryForm::Delta) => Delta::Whole,
        };
        let frame = reactions.framed(connection.wire, delta);
        if connection.session.is_holding() {
            connection.session.hold(frame, held_max);
        } else {
            self.note_own(slot, frame);
        }
    }

    /// Counts a reaction that a client of a one-way transport has sent by another request.
    pub(super) fn receive_reaction(&mut self, slot: u32, request: &Bytes) {
        self.with_session(slot, |session, context| session.receive_reaction(request, context));
        self.charge(slot, 1, request.len());
    }
}
