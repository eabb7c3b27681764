//! When a table gives memory back after a mass change.

/// The number of entries for which a table keeps its memory in any case.
const KEPT: usize = 4_096;

/// The capacity to which a table with `len` entries should shrink now. `None` = it keeps its `capacity` of entries.
///
/// A table shrinks when it uses less than an eighth of a large capacity, to twice what it uses. So half of its entries
/// must go before it shrinks again, and the cost of shrinking is constant for each removed entry. Call the function
/// after removals.
///
/// ```
/// use touchline_registry::spare_capacity;
///
/// let mut table: Vec<u32> = Vec::with_capacity(1_000_000);
/// table.push(1);
/// if let Some(capacity) = spare_capacity(table.len(), table.capacity()) {
///     table.shrink_to(capacity);
/// }
/// assert!(table.capacity() < 100);
/// ```
#[inline]
pub fn spare_capacity(len: usize, capacity: usize) -> Option<usize> {
    (capacity > KEPT && len < capacity / 8).then_some(2 * len)
}
