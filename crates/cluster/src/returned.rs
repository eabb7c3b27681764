//! The order of a node's own publications without history when its link is lost.
//!
//! A node without a link returns its publications to its own subscribers at once. When the link is back, the client
//! sends what it still had, and NATS returns that too. It would come after later publications of the same channel.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use touchline_lock::Lock;
use touchline_protocol::stream::ChannelName;

/// The channels with publications that were returned at once, and the number of the present link.
#[derive(Default)]
pub(crate) struct ReturnedChannels {
    link: AtomicU64,
    channels: Lock<BTreeSet<ChannelName>>,
}

impl ReturnedChannels {
    /// The number of the present link: how often a link has ended.
    pub(crate) fn link(&self) -> u64 {
        self.link.load(Relaxed)
    }

    /// Notes that the link has ended.
    pub(crate) fn end_link(&self) {
        self.link.fetch_add(1, Relaxed);
        self.channels.lock().clear();
    }

    /// Notes that a publication of a followed channel is returned at once.
    pub(crate) fn note(&self, channel: &ChannelName) {
        self.channels.lock().insert(channel.clone());
    }

    /// Whether a publication that was sent over a link comes after later ones.
    pub(crate) fn is_late(&self, channel: &ChannelName, link: u64) -> bool {
        link != self.link() && self.channels.lock().contains(channel)
    }
}
