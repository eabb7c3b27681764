//! The totals of one channel: what each contributor has counted in the channel's present round.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::opening::{ReactionOpening, RoundId};
use super::records::{Contributor, ReactionRecord};
use super::state::ReactionState;
use crate::stable_hash::stable_hash;

/// The counts of one contributor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ContributorSlot {
    /// The number of the contributor's change that these counts belong to.
    version: u64,
    /// When the contributor last changed them, Unix milliseconds.
    changed_ms: u64,
    totals: BTreeMap<Box<str>, u64>,
    /// Whether all its clients may react in the round.
    is_begun: bool,
    /// Whether it has counted everything that its clients sent before the round was closed.
    is_complete: bool,
}

/// What a merge has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MergeEffect {
    /// Whether the totals, the options or the round have changed.
    pub(super) is_shown: bool,
    /// Whether the options that clients can react with have changed, or whether they can react.
    pub(super) is_announced: bool,
}

/// The totals of a channel. A join-semilattice: [`ChannelTotals::merge`] may be repeated and done in any order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ChannelTotals {
    /// What the server API opened; `None` = the namespace opened it.
    pub(super) opening: Option<Arc<ReactionOpening>>,
    /// When the round was closed, Unix milliseconds; 0 = it is open. If there are several times, the first one counts.
    pub(super) closed_ms: u64,
    /// Whether the closing publication was published.
    pub(super) is_published: bool,
    slots: BTreeMap<Contributor, ContributorSlot>,
}

impl ChannelTotals {
    pub(super) fn round(&self) -> RoundId {
        self.opening.as_ref().map(|opening| opening.round.clone()).unwrap_or_default()
    }

    /// Begins a round. Earlier counts no longer matter.
    pub(super) fn begin(&mut self, opening: Arc<ReactionOpening>) {
        *self = ChannelTotals { opening: Some(opening), ..ChannelTotals::default() };
    }

    /// Increases the counters of a contributor, which must be this node.
    pub(super) fn add<'o>(&mut self, me: &Contributor, counts: impl IntoIterator<Item = (&'o str, u64)>, now_ms: u64) {
        let slot = self.slots.entry(me.clone()).or_default();
        slot.changed_ms = slot.changed_ms.max(now_ms);
        for (option, n) in counts {
            match slot.totals.get_mut(option) {
                Some(total) => *total = total.saturating_add(n),
                None => drop(slot.totals.insert(option.into(), n)),
            }
        }
    }

    /// Notes that this node has changed something, with the number of its change.
    pub(super) fn note_change(&mut self, me: &Contributor, version: u64, now_ms: u64) {
        let slot = self.slots.entry(me.clone()).or_default();
        slot.version = version;
        slot.changed_ms = slot.changed_ms.max(now_ms);
    }

    /// Closes the round. Returns whether that has changed anything.
    pub(super) fn close(&mut self, at_ms: u64) -> bool {
        let at_ms = at_ms.max(1);
        let is_earlier = self.closed_ms == 0 || at_ms < self.closed_ms;
        if is_earlier {
            self.closed_ms = at_ms;
        }
        is_earlier
    }

    /// Merges a contributor's record.
    pub(super) fn merge(&mut self, of: &Contributor, record: ReactionRecord) -> MergeEffect {
        let mut effect = MergeEffect::default();
        let round = record.opening.as_ref().map(|opening| opening.round.clone()).unwrap_or_default();
        if round < self.round() {
            return effect;
        }
        if round > self.round() {
            *self = ChannelTotals { opening: record.opening.clone().map(Arc::new), ..ChannelTotals::default() };
            effect = MergeEffect { is_shown: true, is_announced: true };
        }
        if record.closed_ms > 0 {
            let was_open = self.closed_ms == 0;
            self.close(record.closed_ms);
            effect.is_announced |= was_open;
        }
        self.is_published |= record.is_published;
        let slot = self.slots.entry(of.clone()).or_default();
        slot.version = slot.version.max(record.version);
        slot.changed_ms = slot.changed_ms.max(record.changed_ms);
        slot.is_begun |= record.is_begun;
        slot.is_complete |= record.is_complete;
        for (option, told) in record.totals {
            let total = slot.totals.entry(option).or_default();
            if told > *total {
                *total = told;
                effect.is_shown = true;
            }
        }
        effect
    }

    /// The record of a contributor; `None` = the contributor has none in this round.
    pub(super) fn record(&self, channel: &str, of: &Contributor) -> Option<ReactionRecord> {
        let slot = self.slots.get(of)?;
        Some(ReactionRecord {
            channel: channel.into(),
            version: slot.version,
            changed_ms: slot.changed_ms,
            opening: self.opening.as_deref().cloned(),
            closed_ms: self.closed_ms,
            is_published: self.is_published,
            is_begun: slot.is_begun,
            is_complete: slot.is_complete,
            totals: slot.totals.clone(),
        })
    }

    /// The contributors with records, each with the number of its last change and a hash of what is known.
    pub(super) fn digests(&self, channel: &str) -> impl Iterator<Item = (&Contributor, u64, u64)> {
        let (round, ends) = (self.round(), (self.closed_ms, self.is_published));
        let told = self.slots.iter().filter(|(_, slot)| slot.version > 0);
        told.map(move |(contributor, slot)| {
            let known = (channel, &round, ends, (slot.is_begun, slot.is_complete), &slot.totals);
            (contributor, slot.version, stable_hash(&known))
        })
    }

    /// Whether all clients of each of these nodes may react in this round.
    pub(super) fn is_known_by<'n>(&self, mut nodes: impl Iterator<Item = &'n str>) -> bool {
        nodes.all(|node| self.slots.iter().any(|(contributor, slot)| contributor.is_of(node) && slot.is_begun))
    }

    /// Notes that all clients of this node may react in this round. Returns whether that is new.
    pub(super) fn note_begun(&mut self, me: &Contributor) -> bool {
        !std::mem::replace(&mut self.slots.entry(me.clone()).or_default().is_begun, true)
    }

    /// Whether each of these nodes has counted everything that came before the round was closed.
    pub(super) fn is_complete_at<'n>(&self, mut nodes: impl Iterator<Item = &'n str>) -> bool {
        nodes.all(|node| self.slots.iter().any(|(contributor, slot)| contributor.is_of(node) && slot.is_complete))
    }

    /// Notes that this node has counted everything that came before the round was closed. Returns whether that is new.
    pub(super) fn complete(&mut self, me: &Contributor) -> bool {
        !std::mem::replace(&mut self.slots.entry(me.clone()).or_default().is_complete, true)
    }

    /// The number of a contributor's last change; `None` = the contributor has no record in this round.
    pub(super) fn version(&self, of: &Contributor) -> Option<u64> {
        self.slots.get(of).map(|slot| slot.version)
    }

    /// The number of contributors with records.
    pub(super) fn contributors(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn has_heard(&self, of: &Contributor) -> bool {
        self.slots.contains_key(of)
    }

    /// The number of options that this contributor would have totals for if these options were added.
    pub(super) fn options_beside<'o>(&self, me: &Contributor, options: impl Iterator<Item = &'o str>) -> usize {
        let totals = self.slots.get(me).map(|slot| &slot.totals);
        let new = options.filter(|option| totals.is_none_or(|totals| !totals.contains_key(*option))).count();
        new + totals.map_or(0, BTreeMap::len)
    }

    /// Until when something happens or has happened in the channel, Unix milliseconds: the last change, or the time at
    /// which it closes.
    pub(super) fn used_until_ms(&self) -> u64 {
        let of_slots = self.slots.values().map(|slot| slot.changed_ms).max().unwrap_or_default();
        let of_opening = self.opening.as_ref().map_or(0, |opening| opening.used_until_ms());
        of_slots.max(of_opening).max(self.closed_ms)
    }

    /// The state of the channel. `standing`: the options of the namespace, which count if nothing was opened.
    pub(super) fn state(&self, standing: &[String]) -> ReactionState {
        let mut totals: Vec<(Box<str>, u64)> = match &self.opening {
            Some(opening) => opening.options.iter().map(|option| (option.clone(), 0)).collect(),
            None => standing.iter().map(|option| (option.as_str().into(), 0)).collect(),
        };
        for (option, n) in self.slots.values().flat_map(|slot| &slot.totals) {
            match totals.iter_mut().find(|(known, _)| known == option) {
                Some((_, total)) => *total = total.saturating_add(*n),
                None => totals.push((option.clone(), *n)),
            }
        }
        ReactionState {
            totals,
            opened_ms: self.round().opened_ms,
            closes_at_ms: self.opening.as_ref().map_or(0, |opening| opening.closes_at_ms),
            is_closed: self.closed_ms > 0,
        }
    }
}
