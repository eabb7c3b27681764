//! Numbers in PostgreSQL's types.

/// Converts a number to PostgreSQL's bigint. A number beyond its range becomes its maximum.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
