//! The subscriptions of a session.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use super::subscription::Subscription;
use crate::hub::LocalChannel;

/// A session with more subscriptions has an index of them. Below half of it, the index is dropped.
const FEW: usize = 64;

/// The subscriptions of a session, as a list in no particular order. Each has its own channel and its own serial.
#[derive(Debug)]
pub(super) enum Subscriptions {
    /// A short list, which is searched.
    Few(Vec<Subscription>),
    Many(Box<IndexedSubscriptions>),
}

/// A long list.
#[derive(Debug, Default)]
pub(super) struct IndexedSubscriptions {
    list: Vec<Subscription>,
    by_channel: BTreeMap<LocalChannel, u32>,
    by_serial: BTreeMap<u32, u32>,
}

// A session takes no more memory than with the list alone.
const _: () = assert!(size_of::<Subscriptions>() == size_of::<Vec<Subscription>>());

impl Default for Subscriptions {
    fn default() -> Self {
        Subscriptions::Few(Vec::new())
    }
}

impl Subscriptions {
    /// The index of the subscription to a channel.
    pub(super) fn find(&self, channel: LocalChannel) -> Option<usize> {
        match self {
            Subscriptions::Few(list) => list.iter().position(|subscription| subscription.channel == channel),
            Subscriptions::Many(many) => many.by_channel.get(&channel).map(|index| *index as usize),
        }
    }

    /// The index of the subscription with a serial.
    pub(super) fn find_serial(&self, serial: u32) -> Option<usize> {
        match self {
            Subscriptions::Few(list) => list.iter().position(|subscription| subscription.serial == serial),
            Subscriptions::Many(many) => many.by_serial.get(&serial).map(|index| *index as usize),
        }
    }

    /// Adds a subscription at the end.
    pub(super) fn push(&mut self, subscription: Subscription) {
        match self {
            Subscriptions::Few(list) => {
                if list.capacity() == 0 {
                    // Most clients have one subscription.
                    list.reserve_exact(1);
                }
                list.push(subscription);
                if list.len() > FEW {
                    let mut many = Box::<IndexedSubscriptions>::default();
                    std::mem::take(list).into_iter().for_each(|subscription| many.push(subscription));
                    *self = Subscriptions::Many(many);
                }
            }
            Subscriptions::Many(many) => many.push(subscription),
        }
    }

    /// Removes a subscription. The last one takes its index.
    pub(super) fn swap_remove(&mut self, index: usize) -> Subscription {
        match self {
            Subscriptions::Few(list) => list.swap_remove(index),
            Subscriptions::Many(many) => {
                let removed = many.swap_remove(index);
                if many.list.len() < FEW / 2 {
                    let mut list = std::mem::take(&mut many.list);
                    list.shrink_to_fit();
                    *self = Subscriptions::Few(list);
                }
                removed
            }
        }
    }

    /// Removes and returns all subscriptions.
    pub(super) fn take(&mut self) -> Vec<Subscription> {
        match std::mem::take(self) {
            Subscriptions::Few(list) => list,
            Subscriptions::Many(many) => many.list,
        }
    }
}

impl IndexedSubscriptions {
    fn push(&mut self, subscription: Subscription) {
        let index = self.list.len() as u32;
        self.by_channel.insert(subscription.channel, index);
        self.by_serial.insert(subscription.serial, index);
        self.list.push(subscription);
    }

    fn swap_remove(&mut self, index: usize) -> Subscription {
        let removed = self.list.swap_remove(index);
        self.by_channel.remove(&removed.channel);
        self.by_serial.remove(&removed.serial);
        if let Some(moved) = self.list.get(index) {
            self.by_channel.insert(moved.channel, index as u32);
            self.by_serial.insert(moved.serial, index as u32);
        }
        removed
    }
}

impl Deref for Subscriptions {
    type Target = [Subscription];

    fn deref(&self) -> &[Subscription] {
        match self {
            Subscriptions::Few(list) => list,
            Subscriptions::Many(many) => &many.list,
        }
    }
}

impl DerefMut for Subscriptions {
    fn deref_mut(&mut self) -> &mut [Subscription] {
        match self {
            Subscriptions::Few(list) => list,
            Subscriptions::Many(many) => &mut many.list,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use touchline_registry::HashSeed;

    use super::*;
    use crate::caps::Capability;
    use crate::hub::Hub;

    fn subscription(channel: LocalChannel, serial: u32) -> Subscription {
        Subscription {
            channel,
            membership: None,
            serial,
            expire_at_s: 0,
            is_server_side: false,
            is_positioned: false,
            is_recoverable: false,
            wants_membership_events: false,
            is_delta: false,
            entry: None,
            rejects_unrecovered: false,
            is_refreshed_by_hook: false,
            is_by_options: false,
            by_grant: Capability::default(),
            recover_offset: None,
            extra: None,
        }
    }

    proptest! {
        /// A list with an index finds what a search of the list finds.
        #[test]
        fn a_subscription_is_found_however_many_there_are(
            steps in prop::collection::vec((0..60_usize, any::<bool>(), any::<prop::sample::Index>()), 1..20),
        ) {
            let mut hub = Hub::new(HashSeed::repeatable(7));
            let (mut subscriptions, mut serial) = (Subscriptions::default(), 0);
            for (some, is_push, place) in steps {
                for _ in 0..some {
                    if is_push {
                        serial += 1;
                        let channel = hub.acquire(&serial.to_string());
                        subscriptions.push(subscription(channel, serial));
                    } else if !subscriptions.is_empty() {
                        let index = place.index(subscriptions.len());
                        let serial = subscriptions[index].serial;
                        let last = subscriptions.last().map_or(0, |last| last.serial);
                        let removed = subscriptions.swap_remove(index);
                        prop_assert_eq!(removed.serial, serial);
                        prop_assert!(subscriptions.get(index).is_none_or(|moved| moved.serial == last));
                        prop_assert_eq!(subscriptions.find(removed.channel), None);
                        prop_assert_eq!(subscriptions.find_serial(serial), None);
                        hub.release(removed.channel);
                    }
                    let is_indexed = matches!(subscriptions, Subscriptions::Many(_));
                    prop_assert!(is_indexed || subscriptions.len() <= FEW, "a long list has an index");
                    prop_assert!(!is_indexed || subscriptions.len() >= FEW / 2, "a short list has none");
                }
                for (index, subscription) in subscriptions.iter().enumerate() {
                    prop_assert_eq!(subscriptions.find(subscription.channel), Some(index));
                    prop_assert_eq!(subscriptions.find_serial(subscription.serial), Some(index));
                }
            }
            let count = subscriptions.len();
            prop_assert_eq!((subscriptions.take().len(), subscriptions.len()), (count, 0));
        }
    }
}
