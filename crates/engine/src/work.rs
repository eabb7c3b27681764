//! The cost of a reply besides its command, in units of commands.

/// The number of publications, members or entries that cost one unit.
const ITEMS: usize = 8;
/// The number of bytes of a reply that cost one unit.
const BYTES: usize = 4_096;

/// The work that was done for one reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Publications that were read, or members or entries that were walked or written.
    pub(crate) items: usize,
    /// Copies of a message that were sent to clients.
    pub(crate) copies: usize,
    /// The size of the reply, bytes, as far as it is known before the reply is written.
    pub(crate) bytes: usize,
}

impl Work {
    /// The cost in units of commands, rounded down: a small reply costs nothing in addition to its command.
    pub(crate) fn units(&self) -> u32 {
        let units = (self.items / ITEMS).saturating_add(self.copies).saturating_add(self.bytes / BYTES);
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_of_eight_items_of_each_copy_and_of_four_kilobytes() {
        let units = |items, copies, bytes| Work { items, copies, bytes }.units();
        assert_eq!((units(7, 0, 4_095), units(8, 0, 0), units(0, 3, 0), units(0, 0, 8_192)), (0, 1, 3, 2));
        assert_eq!((units(5_000, 0, 600_000), units(0, usize::MAX, usize::MAX)), (771, u32::MAX));
    }
}
