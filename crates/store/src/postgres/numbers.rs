//! Numbers as PostgreSQL has them.

/// A number as PostgreSQL's bigint; numbers beyond its range become its maximum.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
