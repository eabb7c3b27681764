//! The subscribers of a channel that have filters, grouped by filter. Each filter is evaluated once, no matter how many
//! subscribers have it.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use touchline_protocol::filter::Filter;
use touchline_registry::{SipState, spare_capacity};

use super::subscriber::ChannelSubscriber;

/// The subscribers of one channel, grouped by filter.
#[derive(Debug)]
pub(super) struct Filtered {
    /// The index of each filter's group. Clients choose the filters, so the hash has a secret key.
    indexes: HashMap<Arc<Filter>, u32, SipState>,
    /// The groups; a group without a filter is free.
    pub(super) groups: Vec<(Option<Arc<Filter>>, Vec<ChannelSubscriber>)>,
    free: BTreeSet<u32>,
    /// The number of subscribers.
    count: usize,
}

impl Filtered {
    pub(super) fn new(hasher: SipState) -> Self {
        Filtered { indexes: HashMap::with_hasher(hasher), groups: Vec::new(), free: BTreeSet::new(), count: 0 }
    }

    /// Counts a new subscriber. Returns the index of its filter's group, which is created if it does not exist. The
    /// filter is hashed once and compared only with filters of the same hash, so the cost does not depend on the number
    /// of filters.
    pub(super) fn enter(&mut self, filter: Arc<Filter>) -> u32 {
        self.count += 1;
        let Filtered { indexes, groups, free, .. } = self;
        *indexes.entry(filter).or_insert_with_key(|filter| {
            // The lowest free group, so that the highest ones become free and can be dropped.
            let group = free.pop_first().unwrap_or_else(|| {
                groups.push((None, Vec::new()));
                (groups.len() - 1) as u32
            });
            groups[group as usize].0 = Some(Arc::clone(filter));
            group
        })
    }

    /// The subscribers in a group; `None` = there is no such group.
    pub(super) fn members(&mut self, group: u32) -> Option<&mut Vec<ChannelSubscriber>> {
        self.groups.get_mut(group as usize).map(|(_, members)| members)
    }

    /// Notes that a subscriber has left a group. Frees the group if it was the last one. Returns whether no filter is
    /// left.
    pub(super) fn leave(&mut self, group: u32) -> bool {
        self.count -= 1;
        if let Some((filter, members)) = self.groups.get_mut(group as usize)
            && members.is_empty()
            && let Some(filter) = filter.take()
        {
            *members = Vec::new();
            self.indexes.remove(&filter);
            self.free.insert(group);
            self.drop_free();
        }
        self.indexes.is_empty()
    }

    /// Drops the free groups at the end, because each publication passes all groups.
    fn drop_free(&mut self) {
        while self.groups.pop_if(|(filter, _)| filter.is_none()).is_some() {
            self.free.remove(&(self.groups.len() as u32));
        }
        if let Some(capacity) = spare_capacity(self.groups.len(), self.groups.capacity()) {
            self.groups.shrink_to(capacity);
        }
        if let Some(capacity) = spare_capacity(self.indexes.len(), self.indexes.capacity()) {
            self.indexes.shrink_to(capacity);
        }
    }

    /// The filters and their subscribers.
    pub(super) fn groups_mut(&mut self) -> impl Iterator<Item = (&Filter, &mut Vec<ChannelSubscriber>)> {
        self.groups.iter_mut().filter_map(|(filter, members)| filter.as_deref().map(|filter| (filter, members)))
    }

    /// All subscribers with filters.
    pub(super) fn all(&self) -> impl Iterator<Item = &ChannelSubscriber> {
        self.groups.iter().flat_map(|(_, members)| members)
    }

    /// The number of subscribers with filters.
    pub(super) fn len(&self) -> usize {
        self.count
    }
}
