//! Publications that are stored in the same transaction that deletes their outbox rows.

use crate::outbox::types::RowClaim;
use crate::publication::Append;
use crate::refusal::StoreRefusal;

/// A callback for the result of [`crate::Store::append_rows`].
pub type OnRowsAppended = Box<dyn FnOnce(Result<(), RowsRefusal>) + Send>;

/// Publications with the rows that they come from. They belong to one partition and are in its order.
pub struct RowAppends {
    /// The proof that the rows belong to this node.
    pub claim: RowClaim,
    /// The ids of the rows, with their publications.
    pub rows: Vec<(i64, Append)>,
    /// Called once all publications are on disk, or none is.
    pub done: OnRowsAppended,
}

/// Why no row was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowsRefusal {
    /// The primary database does not see the claim: the outbox is in another database, or the claim is lost.
    #[error("the outbox is not in the primary database")]
    OtherDatabase,
    /// The user of the primary database may not delete rows of the outbox.
    #[error("the user of the primary database may not delete from the outbox: {0}")]
    NotPermitted(String),
    /// The database can never store the values of these rows. The ids of the rows are given.
    #[error("the database cannot store the values of some rows")]
    Invalid(Vec<i64>),
    /// The store refused the request; it may succeed later.
    #[error(transparent)]
    Store(#[from] StoreRefusal),
}
