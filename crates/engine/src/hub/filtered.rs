//! The listeners of a channel that have filters, together by filter: each filter is asked once, however many have it.

use std::collections::HashMap;
use std::sync::Arc;

use touchline_protocol::filter::Filter;

use super::Member;

/// Groups of listeners of one channel, by filter.
#[derive(Debug, Default)]
pub(super) struct Filtered {
    /// The place of each filter. Clients choose the filters, so the hash has a secret key.
    places: HashMap<Arc<Filter>, u32>,
    /// A place whose filter nobody has any more is free.
    pub(super) groups: Vec<(Option<Arc<Filter>>, Vec<Member>)>,
    free: Vec<u32>,
}

impl Filtered {
    /// The place of a filter, made if need be. The filter is hashed once, and compared with those of the same hash
    /// only: what it costs does not depend on how many filters there are.
    pub(super) fn place_of(&mut self, filter: Arc<Filter>) -> u32 {
        let Filtered { places, groups, free } = self;
        *places.entry(filter).or_insert_with_key(|filter| {
            let place = free.pop().unwrap_or_else(|| {
                groups.push((None, Vec::new()));
                (groups.len() - 1) as u32
            });
            groups[place as usize].0 = Some(Arc::clone(filter));
            place
        })
    }

    /// The listeners in a place.
    pub(super) fn members(&mut self, place: u32) -> Option<&mut Vec<Member>> {
        self.groups.get_mut(place as usize).map(|(_, members)| members)
    }

    /// Lets go of a place's filter if nobody has it any more. Whether no filter is left.
    pub(super) fn settle(&mut self, place: u32) -> bool {
        if let Some((filter, members)) = self.groups.get_mut(place as usize)
            && members.is_empty()
            && let Some(filter) = filter.take()
        {
            *members = Vec::new();
            self.places.remove(&filter);
            self.free.push(place);
        }
        self.places.is_empty()
    }

    /// Filters and those who have them.
    pub(super) fn groups_mut(&mut self) -> impl Iterator<Item = (&Filter, &mut Vec<Member>)> {
        self.groups.iter_mut().filter_map(|(filter, members)| filter.as_deref().map(|filter| (filter, members)))
    }

    /// All who have filters.
    pub(super) fn all(&self) -> impl Iterator<Item = &Member> {
        self.groups.iter().flat_map(|(_, members)| members)
    }

    /// How many have filters.
    pub(super) fn len(&self) -> usize {
        self.groups.iter().map(|(_, members)| members.len()).sum()
    }
}
