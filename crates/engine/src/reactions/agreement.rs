//! How the books of nodes reach the same knowledge: what a book sends, asks for and answers, and how it detects losses.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use touchline_registry::spare_capacity;

use super::book::{BookOutput, ReactionBook};
use super::doubt::Doubt;
use super::link::{Knowledge, LinkBody, LinkMessage, deltas};
use super::records::Contributor;
use super::totals::ChannelTotals;

/// The greatest number of comparisons that are skipped before a book asks again, if the last answer changed nothing.
const PATIENCE_MAX: u32 = 12;
/// The greatest number of doubts that are remembered.
const DOUBTS_MAX: usize = 65_536;

impl ReactionBook {
    /// Sends the other nodes what this node has changed since the last tick.
    pub(super) fn tell_changes(&mut self) {
        if self.changed.is_empty() {
            return;
        }
        let since = self.head;
        let changed = self.changed.len();
        let mut records = Vec::with_capacity(changed);
        for channel in self.changed.drain(..) {
            let Some(totals) = self.channels.get_mut(&channel) else { continue };
            if totals.has_heard(&self.me) {
                self.head += 1;
                totals.note_change(&self.me, self.head, 0);
                records.extend(totals.record(&channel, &self.me));
            }
        }
        if let Some(capacity) = spare_capacity(changed, self.changed.capacity()) {
            self.changed.shrink_to(capacity);
        }
        for body in deltas(&self.me, since, self.head, records) {
            let message = LinkMessage { from: (&*self.node).into(), body };
            self.outputs.push(BookOutput::Send(None, message.write()));
        }
    }

    /// Sends a node everything that a contributor has changed after `since`.
    pub(super) fn answer(&mut self, to: &Arc<str>, of: &Contributor, since: u64) {
        let seen = if *of == self.me { self.head } else { self.seen.get(of).copied().unwrap_or_default() };
        // `seen` does not cover what the database has restored, because no message brought it.
        let upto = self.channels.values().filter_map(|totals| totals.version(of)).max().unwrap_or_default().max(seen);
        if upto <= since {
            return;
        }
        let is_behind = |totals: &ChannelTotals| totals.version(of).is_some_and(|version| version > since);
        let changed = self.channels.iter().filter(|(_, totals)| is_behind(totals));
        let records = changed.filter_map(|(channel, totals)| totals.record(channel, of)).collect();
        for body in deltas(of, since, upto, records) {
            let message = LinkMessage { from: (&*self.node).into(), body };
            self.outputs.push(BookOutput::Send(Some(Arc::clone(to)), message.write()));
        }
    }

    pub(super) fn ask(&mut self, whom: &Arc<str>, of: impl IntoIterator<Item = (Contributor, u64)>) {
        let new = of.into_iter().filter(|(contributor, _)| self.asked.insert(contributor.clone()));
        let asked: BTreeMap<Contributor, u64> = new.collect();
        if !asked.is_empty() {
            let message = LinkMessage { from: (&*self.node).into(), body: LinkBody::Ask(asked) };
            self.outputs.push(BookOutput::Send(Some(Arc::clone(whom)), message.write()));
        }
    }

    pub(super) fn compare(&mut self, is_new: bool) {
        self.outputs.push(BookOutput::Send(None, self.known_message(is_new)));
    }

    pub(super) fn known_message(&self, is_new: bool) -> Bytes {
        let known = self.knowledge();
        LinkMessage { from: (&*self.node).into(), body: LinkBody::Known { known, is_new } }.write()
    }

    /// What this node knows of each contributor.
    pub(super) fn knowledge(&self) -> BTreeMap<Contributor, Knowledge> {
        let of_seen = |(contributor, version): (&Contributor, &u64)| {
            (contributor.clone(), Knowledge { version: *version, digest: 0 })
        };
        let mut known: BTreeMap<Contributor, Knowledge> = self.seen.iter().map(of_seen).collect();
        if self.head > 0 {
            known.insert(self.me.clone(), Knowledge { version: self.head, digest: 0 });
        }
        for (channel, totals) in &self.channels {
            for (contributor, version, digest) in totals.digests(channel) {
                // `seen` does not cover those that the database has restored, because no message brought them.
                let known = known.entry(contributor.clone()).or_default();
                known.version = known.version.max(version);
                known.digest ^= digest;
            }
        }
        known
    }

    /// Asks another node for what it knows differently. What it says about itself is conclusive, because its earlier
    /// messages have already arrived. What it says about other contributors may still be on its way. So this node asks
    /// only if it knew the same at the previous comparison. If an answer has changed nothing, this node asks more and
    /// more rarely.
    pub(super) fn compare_with(&mut self, from: &Arc<str>, theirs: BTreeMap<Contributor, Knowledge>) {
        let own = self.knowledge();
        if self.doubted.len() > DOUBTS_MAX {
            // Most of them concern nodes that are gone.
            self.doubted.clear();
        }
        let mut wanted = Vec::new();
        for (contributor, knowledge) in theirs {
            let known = own.get(&contributor).copied();
            let key = (Arc::clone(from), contributor.clone());
            if contributor == self.me || known.is_some_and(|known| known.digest == knowledge.digest) {
                self.doubted.remove(&key);
                continue;
            }
            let digest = known.map_or(0, |known| known.digest);
            let is_certain = known.is_none() || contributor.is_of(from);
            match self.doubted.get_mut(&key).filter(|doubt| doubt.digest == digest) {
                Some(doubt) if doubt.left_out > 0 => doubt.left_out -= 1,
                Some(doubt) => {
                    doubt.patience = (2 * doubt.patience).clamp(1, PATIENCE_MAX);
                    doubt.left_out = doubt.patience;
                    wanted.push((contributor, 0));
                }
                None => {
                    self.doubted.insert(key, Doubt { digest, left_out: 0, patience: 0 });
                    if is_certain {
                        wanted.push((contributor, 0));
                    }
                }
            }
        }
        self.ask(from, wanted);
    }
}
