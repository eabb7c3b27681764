//! Counts the subscribers that would get a publication. It counts some of them in each turn, so deliveries do not wait.

use touchline_engine::hub::DeliveryForm;
use touchline_protocol::Error;
use touchline_protocol::message::Encoding;
use touchline_protocol::publication::Delta;

use super::excluded::ExcludedSlots;
use super::state::Shard;
use super::stepwise::AudienceCount;
use crate::runtime::audience::AudienceQuestion;

/// How many subscribers the shard counts in one turn.
const COUNTED_IN_TURN: usize = 1_024;
/// How many questions may wait at a shard.
const AUDIENCE_QUESTIONS_MAX: usize = 64;

impl Shard {
    /// Takes a question, which later turns answer.
    pub(super) fn begin_audience(&mut self, question: AudienceQuestion) {
        if self.stepwise.audience_counts.0.len() >= AUDIENCE_QUESTIONS_MAX {
            let _ = question.reply.send(Err(Error::TOO_MANY_REQUESTS));
            return;
        }
        let tags = question.publication.tags();
        let (cursor, so_far, lengths) = Default::default();
        self.stepwise.audience_counts.0.push_back(AudienceCount { question, tags, cursor, so_far, lengths });
    }

    /// Counts some subscribers for the oldest question, and answers it if there are no more.
    pub(super) fn continue_audience(&mut self) {
        let Some(mut count) = self.stepwise.audience_counts.0.pop_front() else { return };
        if count.question.reply.is_closed() {
            return;
        }
        let mut has_more = false;
        if self.isolated(|shard| has_more = shard.count_some(&mut count)) && has_more {
            self.stepwise.audience_counts.0.push_front(count);
        } else {
            let _ = count.question.reply.send(Ok(count.so_far));
        }
    }

    /// Counts some subscribers. Returns whether there are more.
    fn count_some(&self, count: &mut AudienceCount) -> bool {
        let AudienceCount { question, tags, cursor, so_far, lengths } = count;
        let Shard { hub, connections, users, node, id, .. } = self;
        let Some(channel) = hub.find(&question.channel) else { return false };
        let publication = &question.publication;
        let excluded = publication
            .exclusion
            .as_deref()
            .map(|exclusion| ExcludedSlots::of(exclusion, (*id, node.shards.len()), users, connections));
        hub.visit_audience(channel, cursor, COUNTED_IN_TURN, tags, |slot, form| {
            let Some(wire) = connections.get(slot).map(|connection| connection.wire) else { return };
            let Some(form) = form else {
                so_far.filtered += 1;
                return;
            };
            if excluded.as_ref().is_some_and(|excluded| excluded.contains(slot)) {
                so_far.excluded += 1;
                return;
            }
            let known = lengths.iter().find(|(key, _)| *key == (wire, form)).map(|(_, length)| *length);
            let length = known.unwrap_or_else(|| {
                let delta = if form == DeliveryForm::Plain { Delta::None } else { Delta::Whole };
                let length = publication.framed(wire, delta).len() as u64;
                lengths.push(((wire, form), length));
                length
            });
            so_far.clients += 1;
            so_far.bytes += length;
            match wire.encoding {
                Encoding::Protobuf => so_far.protobuf_bytes += length,
                Encoding::Json | Encoding::Push => so_far.json_bytes += length,
            }
        })
    }
}
