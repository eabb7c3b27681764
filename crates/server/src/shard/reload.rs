//! Switches a shard to another generation of settings between two messages. It reports when the shard's own thread
//! works with the generation. Then it checks again what its connections are permitted.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::state::Shard;
use crate::runtime::generation::{Generation, generation_here, set_generation_here};

/// How many connections a second have their permissions checked again.
const REVIEWS_PER_SECOND: u64 = 1_000;
/// How many connections are checked at once at most, after a pause.
const REVIEWS_AT_ONCE: u64 = 50;

impl Shard {
    /// Switches to a generation. `taken`: notified when the shard's own thread works with it. An older generation than
    /// the shard's own is ignored.
    pub(super) fn take_generation(&mut self, generation: Arc<Generation>, taken: oneshot::Sender<()>) {
        if generation.number > self.generation.number {
            let namespaces = &generation.session.namespaces;
            self.channels.set_namespaces(Arc::clone(namespaces), self.now_ms);
            self.reactions.set_namespaces(Arc::clone(namespaces));
            let (wanted, wants) = (&self.generation.wants, &generation.wants);
            if wants.kinds.has_channel_state() && (wanted.kinds != wants.kinds || wanted.namespaces != wants.namespaces)
            {
                let was_noted = |channel: &str| wanted.has_namespace(namespaces.namespace_of(channel));
                self.channels.note_held(was_noted);
            }
            if generation.wants.kinds.has_user_state() {
                self.users.note_held(&self.connections);
            }
            self.namespaces = self.metrics.sessions.numbered(namespaces);
            self.generation = generation;
            (self.reload.next, self.reload.stepped_us, self.reload.has_left_some) = (Some(0), self.now_us, false);
        }
        self.reload.taken.push(taken);
    }

    /// Makes the shard's own thread work with the shard's generation, so that HTTP requests between two turns use it
    /// too.
    pub(super) fn follow_generation(&mut self) {
        if generation_here() != self.generation.number {
            set_generation_here(&self.generation);
        }
        self.reload.taken.drain(..).for_each(|taken| {
            let _ = taken.send(());
        });
    }

    /// Checks the permissions of some connections again, if a review is under way.
    pub(super) fn continue_review(&mut self) {
        let Some(first) = self.reload.next else { return };
        let due = self.now_us.saturating_sub(self.reload.stepped_us) * REVIEWS_PER_SECOND / 1_000_000;
        if due == 0 {
            return;
        }
        let (mut next, mut reviewed) = (first, 0);
        while next < self.connections.slot_count() && reviewed < due.min(REVIEWS_AT_ONCE) {
            if self.connections.get(next).is_some() {
                self.guarded(next, |shard, slot| {
                    let mut has_left_some = false;
                    shard.with_session(slot, |session, context| has_left_some = session.review(context));
                    shard.reload.has_left_some |= has_left_some;
                });
                reviewed += 1;
            }
            next += 1;
        }
        self.reload.stepped_us = self.now_us;
        let is_over = next >= self.connections.slot_count();
        let is_again = is_over && std::mem::take(&mut self.reload.has_left_some);
        self.reload.next = if is_over { is_again.then_some(0) } else { Some(next) };
    }
}
