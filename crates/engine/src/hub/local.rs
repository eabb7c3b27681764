//! The subscribers of one channel on one shard.

use touchline_protocol::stream::ChannelName;

use super::filtered::Filtered;
use super::subscriber::ChannelSubscriber;

/// The subscribers of a channel.
#[derive(Debug)]
pub(super) struct LocalSubscribers {
    pub(super) name: ChannelName,
    /// References by [`super::Hub::acquire`] that are not released.
    pub(super) references: u32,
    /// The subscribers without a filter.
    pub(super) members: Vec<ChannelSubscriber>,
    /// The subscribers with a filter; `None` = there are none.
    pub(super) filtered: Option<Box<Filtered>>,
}

impl LocalSubscribers {
    /// The subscribers of a filter's group; `None` = those without a filter.
    pub(super) fn group(&mut self, group: Option<u32>) -> &mut Vec<ChannelSubscriber> {
        let LocalSubscribers { members, filtered, .. } = self;
        group.and_then(|group| filtered.as_mut()?.members(group)).unwrap_or(members)
    }

    /// All subscribers.
    pub(super) fn all(&self) -> impl Iterator<Item = ChannelSubscriber> {
        self.members.iter().chain(self.filtered.iter().flat_map(|filtered| filtered.all())).copied()
    }
}
