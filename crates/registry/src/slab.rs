//! Slots by number, in pieces of a fixed size. Growing moves nothing and wastes little. A piece without entries frees
//! its memory, and so does an empty slab.
//!
//! Hand-written: `slab` and `slotmap` keep one vector, which moves and doubles when it grows.

const PIECE: u32 = 1_024;

/// The index that means "no slot" or "no piece".
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum SlabSlot<T> {
    Used(T),
    /// The next free slot of the piece; [`NONE`] = there is no other.
    Free(u32),
}

#[derive(Debug)]
struct Piece<T> {
    /// No capacity = the piece has freed its memory.
    slots: Vec<SlabSlot<T>>,
    used: u32,
    /// The first free slot. [`NONE`] = the slots from `slots.len()` on are free.
    free: u32,
    /// The neighbours in the list of pieces with a free slot.
    next: u32,
    previous: u32,
}

/// Values by number. A number is used again after its value is removed, and never moves to another value before.
///
/// ```
/// let mut slab = touchline_registry::Slab::default();
/// let (ann, bob) = (slab.insert("ann"), slab.insert("bob"));
/// assert_eq!(slab.remove(ann), Some("ann"));
/// assert_eq!((slab.get(ann), slab.get(bob), slab.len()), (None, Some(&"bob"), 1));
/// ```
#[derive(Debug)]
pub struct Slab<T> {
    pieces: Vec<Piece<T>>,
    /// The first piece with a free slot.
    open: u32,
    /// A piece that keeps its memory although it has no entries. So changes at the edge of a piece allocate nothing.
    spare: u32,
    used: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { pieces: Vec::new(), open: NONE, spare: NONE, used: 0 }
    }
}

impl<T> Slab<T> {
    /// Adds a value and returns its number, which is less than [`u32::MAX`].
    pub fn insert(&mut self, value: T) -> u32 {
        if self.open == NONE {
            self.pieces.push(Piece { slots: Vec::new(), used: 0, free: NONE, next: NONE, previous: NONE });
            self.link(self.pieces.len() as u32 - 1);
        }
        let number = self.open;
        let piece = &mut self.pieces[number as usize];
        let place = if piece.free == NONE {
            if piece.slots.capacity() == 0 {
                piece.slots.reserve_exact(PIECE as usize);
            }
            piece.slots.push(SlabSlot::Used(value));
            piece.slots.len() as u32 - 1
        } else {
            let place = piece.free;
            if let SlabSlot::Free(next) = std::mem::replace(&mut piece.slots[place as usize], SlabSlot::Used(value)) {
                piece.free = next;
            }
            place
        };
        piece.used += 1;
        self.used += 1;
        if piece.used == PIECE {
            self.unlink(number);
        }
        number * PIECE + place
    }

    /// Removes and returns a value; `None` = the number has none.
    pub fn remove(&mut self, index: u32) -> Option<T> {
        let number = index / PIECE;
        let piece = self.pieces.get_mut(number as usize)?;
        let slot = piece.slots.get_mut((index % PIECE) as usize)?;
        if matches!(slot, SlabSlot::Free(_)) {
            return None;
        }
        let removed = std::mem::replace(slot, SlabSlot::Free(piece.free));
        piece.free = index % PIECE;
        piece.used -= 1;
        self.used -= 1;
        let left = piece.used;
        if self.used == 0 {
            *self = Slab::default();
        } else {
            if left == PIECE - 1 {
                self.link(number);
            }
            if left == 0 {
                self.vacate(number);
            }
        }
        if let SlabSlot::Used(value) = removed { Some(value) } else { None }
    }

    /// Frees the memory of a piece without entries, unless it becomes the spare one.
    fn vacate(&mut self, number: u32) {
        let has_spare = self.pieces.get(self.spare as usize).is_some_and(|spare| spare.used == 0);
        if !has_spare || self.spare == number {
            self.spare = number;
            return;
        }
        let piece = &mut self.pieces[number as usize];
        (piece.slots, piece.free) = (Vec::new(), NONE);
        while self.pieces.last().is_some_and(|last| last.slots.capacity() == 0) {
            self.unlink(self.pieces.len() as u32 - 1);
            self.pieces.pop();
        }
    }

    /// Adds a piece to those with a free slot, as the first.
    fn link(&mut self, number: u32) {
        let next = std::mem::replace(&mut self.open, number);
        if let Some(neighbour) = self.pieces.get_mut(next as usize) {
            neighbour.previous = number;
        }
        let piece = &mut self.pieces[number as usize];
        (piece.next, piece.previous) = (next, NONE);
    }

    fn unlink(&mut self, number: u32) {
        let Piece { next, previous, .. } = self.pieces[number as usize];
        if let Some(neighbour) = self.pieces.get_mut(next as usize) {
            neighbour.previous = previous;
        }
        match self.pieces.get_mut(previous as usize) {
            Some(neighbour) => neighbour.next = next,
            None => self.open = next,
        }
    }

    /// The value of a number; `None` = the number has none.
    pub fn get(&self, index: u32) -> Option<&T> {
        match self.pieces.get((index / PIECE) as usize)?.slots.get((index % PIECE) as usize)? {
            SlabSlot::Used(value) => Some(value),
            SlabSlot::Free(_) => None,
        }
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.pieces.get_mut((index / PIECE) as usize)?.slots.get_mut((index % PIECE) as usize)? {
            SlabSlot::Used(value) => Some(value),
            SlabSlot::Free(_) => None,
        }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// A number above those of all values.
    pub fn end(&self) -> u32 {
        self.pieces.last().map_or(0, |last| (self.pieces.len() as u32 - 1) * PIECE + last.slots.len() as u32)
    }

    /// The number of slots that have memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.pieces.iter().map(|piece| piece.slots.capacity()).sum()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        self.get(index).expect("indices stand in lists of slots in use")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).expect("indices stand in lists of slots in use")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const LONG: usize = 6 * PIECE as usize;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0..3_000_usize, prop::bool::weighted(0.6)), 1..30)) {
            let (mut slab, mut model) = (Slab::default(), BTreeMap::new());
            let mut next = 0_u32;
            for (some, is_insert) in steps {
                for _ in 0..some {
                    if is_insert {
                        next += 1;
                        let index = slab.insert(next);
                        prop_assert_eq!(model.insert(index, next), None, "the slot was free");
                    } else {
                        // Neighbours go one after the other, so that pieces become empty.
                        let Some((index, value)) = model.pop_last() else { break };
                        prop_assert_eq!(slab.remove(index), Some(value));
                        prop_assert_eq!((slab.remove(index), slab.get(index)), (None, None));
                    }
                }
                prop_assert_eq!(slab.len(), model.len());
                prop_assert!(model.iter().all(|(index, value)| slab.get(*index) == Some(value)));
                prop_assert!(model.last_key_value().is_none_or(|(last, _)| *last < slab.end()));
            }
        }
    }

    #[test]
    fn a_piece_without_entries_frees_its_memory_and_is_used_again() {
        let mut slab = Slab::default();
        let all: Vec<u32> = (0..LONG).map(|number| slab.insert(number)).collect();
        assert_eq!((slab.capacity(), slab.end() as usize), (LONG, LONG));
        // The second piece becomes the spare one. The others free their memory, except the first, which has entries.
        for index in &all[PIECE as usize..] {
            slab.remove(*index);
        }
        assert_eq!((slab.capacity(), slab.end()), (2 * PIECE as usize, 2 * PIECE));
        for number in 0..LONG {
            slab.insert(number);
        }
        assert_eq!((slab.len(), slab.capacity()), (LONG + PIECE as usize, LONG + PIECE as usize));
        let (first, last) = all.split_at(1);
        for index in last {
            slab.remove(*index);
        }
        assert!(slab.remove(first[0]).is_some());
    }

    #[test]
    fn changes_at_the_edge_of_a_piece_keep_its_memory() {
        let mut slab = Slab::default();
        for number in 0..PIECE {
            slab.insert(number);
        }
        for number in 0..10 {
            let index = slab.insert(number);
            let capacity = slab.capacity();
            slab.remove(index);
            assert_eq!((slab.capacity(), capacity), (2 * PIECE as usize, 2 * PIECE as usize));
        }
    }

    #[test]
    fn an_entry_takes_no_more_memory_than_its_value() {
        assert_eq!(size_of::<SlabSlot<crate::member::Member>>(), size_of::<crate::member::Member>());
        assert_eq!(size_of::<SlabSlot<crate::names::NameRegistration>>(), size_of::<crate::names::NameRegistration>());
        assert_eq!(size_of::<SlabSlot<crate::owners::Owner>>(), size_of::<crate::owners::Owner>());
        assert_eq!(size_of::<SlabSlot<crate::groups::Group>>(), size_of::<crate::groups::Group>());
    }

    #[test]
    fn an_empty_slab_has_no_memory() {
        let mut slab = Slab::default();
        let all: Vec<u32> = (0..LONG).map(|number| slab.insert(number)).collect();
        for index in all {
            slab.remove(index);
        }
        assert_eq!((slab.capacity(), slab.end()), (0, 0));
    }
}
