//! A subscriber in the lists of a channel.

/// Flag: the subscriber gets join and leave events.
pub(super) const WANTS_MEMBERSHIP_EVENTS: u32 = 1 << 31;
/// Flag: the subscriber gets deltas.
pub(super) const WANTS_DELTA: u32 = 1 << 30;
/// Flag: the subscriber has the last publication, the base of the next delta.
pub(super) const HAS_LAST: u32 = 1 << 29;
/// The bits that contain the slot.
pub(super) const SLOT_MASK: u32 = HAS_LAST - 1;
// The flags and the slot share one number.
const _: () = assert!(SLOT_MASK & (WANTS_MEMBERSHIP_EVENTS | WANTS_DELTA | HAS_LAST) == 0);

/// A connection in a list of subscribers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChannelSubscriber {
    /// The connection's slot; the highest bits are the `WANTS_` flags and [`HAS_LAST`].
    pub(super) slot: u32,
    /// The index of its [`super::Membership`].
    pub(super) membership: u32,
}

impl ChannelSubscriber {
    /// The slot of the connection, without the flags.
    pub(super) fn slot(self) -> u32 {
        self.slot & SLOT_MASK
    }
}
