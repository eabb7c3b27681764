//! The subscribers of one channel on one shard.

use touchline_protocol::publication::Tags;
use touchline_protocol::stream::ChannelName;

use super::delivery::DeliveryForm;
use super::filtered::Filtered;
use super::subscriber::{ChannelSubscriber, HAS_LAST, WANTS_DELTA};

/// The subscribers of a channel.
#[derive(Debug)]
pub(super) struct LocalSubscribers {
    pub(super) name: ChannelName,
    /// The number of references by [`super::Hub::acquire`] that were not released.
    pub(super) references: u32,
    /// How long a publication may wait for a slow subscriber, microseconds; `None` = it is not dropped.
    pub(super) drop_after_us: Option<u64>,
    /// The subscribers without a filter.
    pub(super) members: Vec<ChannelSubscriber>,
    /// The subscribers with a filter; `None` = there are none.
    pub(super) filtered: Option<Box<Filtered>>,
}

impl LocalSubscribers {
    /// A channel without subscribers, with one reference.
    pub(super) fn new(name: &str) -> Self {
        LocalSubscribers { name: name.into(), references: 1, drop_after_us: None, members: Vec::new(), filtered: None }
    }

    /// The subscribers of a filter's group; `None` = those without a filter.
    pub(super) fn group(&mut self, group: Option<u32>) -> &mut Vec<ChannelSubscriber> {
        let LocalSubscribers { members, filtered, .. } = self;
        group.and_then(|group| filtered.as_mut()?.members(group)).unwrap_or(members)
    }

    /// All subscribers, with and without a filter.
    pub(super) fn all(&self) -> impl Iterator<Item = ChannelSubscriber> {
        self.members.iter().chain(self.filtered.iter().flat_map(|filtered| filtered.all())).copied()
    }

    /// See [`super::Hub::for_each_recipient_but`].
    pub(super) fn for_each_recipient(
        &mut self,
        has_previous: bool,
        tags: impl FnOnce() -> Tags,
        is_left_out: impl Fn(u32) -> bool,
        mut to: impl FnMut(u32, DeliveryForm),
    ) {
        let mut visit = |member: &mut ChannelSubscriber| {
            if is_left_out(member.slot()) {
                member.slot &= !HAS_LAST;
                return;
            }
            let form = match member.slot & (WANTS_DELTA | HAS_LAST) {
                0 | HAS_LAST => DeliveryForm::Plain,
                WANTS_DELTA => DeliveryForm::Whole,
                _ if has_previous => DeliveryForm::Delta,
                _ => DeliveryForm::Whole,
            };
            if form == DeliveryForm::Whole {
                member.slot |= HAS_LAST;
            }
            to(member.slot(), form);
        };
        self.members.iter_mut().for_each(&mut visit);
        let Some(filtered) = &mut self.filtered else { return };
        let tags = tags();
        for (filter, members) in filtered.groups_mut() {
            if filter.fits(&tags) {
                members.iter_mut().for_each(&mut visit);
            }
        }
    }
}
