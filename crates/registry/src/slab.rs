//! Slots by number, in chunks of a fixed size. Growing moves nothing and wastes little, and an empty slab frees its
//! memory.
//!
//! Hand-written: `slab` and `slotmap` keep one vector, which moves and doubles when it grows.

const PIECE: usize = 1_024;

/// The index that means "no slot".
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    pieces: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    used: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { pieces: Vec::new(), free: Vec::new(), used: 0 }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.used += 1;
        if let Some(index) = self.free.pop() {
            self.pieces[index as usize / PIECE][index as usize % PIECE] = Some(value);
            return index;
        }
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        let number = self.pieces.len() - 1;
        let piece = &mut self.pieces[number];
        piece.push(Some(value));
        (number * PIECE + piece.len() - 1) as u32
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let removed = self.pieces.get_mut(index as usize / PIECE)?.get_mut(index as usize % PIECE)?.take()?;
        self.used -= 1;
        if self.used == 0 {
            *self = Slab::default();
        } else {
            self.free.push(index);
        }
        Some(removed)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.pieces.get(index as usize / PIECE)?.get(index as usize % PIECE)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.pieces.get_mut(index as usize / PIECE)?.get_mut(index as usize % PIECE)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// The highest slot used since the slab was last empty, plus one.
    pub(crate) fn end(&self) -> u32 {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len()) as u32
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
