//! What an answer costs besides the command that asked for it, in units of commands.

/// Publications, members or entries that one unit stands for.
const ITEMS: usize = 8;
/// Bytes of an answer that one unit stands for.
const BYTES: usize = 4_096;

/// What was done for an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Publications read; members or entries walked or written.
    pub(crate) items: usize,
    /// Copies of a message that were given to clients.
    pub(crate) copies: usize,
    /// Bytes of the answer, as far as they are known before it is written.
    pub(crate) bytes: usize,
}

impl Work {
    /// In units of commands, rounded down: a small answer costs nothing besides its command.
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
