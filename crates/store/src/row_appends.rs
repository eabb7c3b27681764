//! Publications that are stored in the transaction that deletes their rows of an outbox.

use crate::outbox::types::RowClaim;
use crate::publication::Append;
use crate::refusal::StoreRefusal;

/// Takes the result of [`crate::Store::append_rows`].
pub type OnRowsAppended = Box<dyn FnOnce(Result<(), RowsRefusal>) + Send>;

/// Publications, each with the row that it comes from. They are of one partition, in its order.
pub struct RowAppends {
    /// Proves that the rows belong to this node.
    pub claim: RowClaim,
    /// Ids of the rows, and their publications.
    pub rows: Vec<(i64, Append)>,
    /// Called once all are on disk, or none is.
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
    /// The database cannot store what these rows hold, and never will: their ids.
    #[error("the database cannot store the values of some rows")]
    Invalid(Vec<i64>),
    /// It may succeed later.
    #[error(transparent)]
    Store(#[from] StoreRefusal),
}
