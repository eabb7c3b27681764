//! Classifies an SQLite error: it concerns one item, the file, or the batch.

use rusqlite::ErrorCode;

use crate::metrics::StoreMetrics;
use crate::refusal::StoreRefusal;
use crate::rows::DamagedRow;

/// Wraps the reason why a result cannot be read (a row that is not valid, a panic) as an SQLite error.
pub(super) fn unreadable(reason: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, Box::new(reason))
}

/// The refusal of one item that an error stands for. `None` = the error concerns the whole batch.
pub(crate) fn refusal_of(error: &rusqlite::Error) -> Option<StoreRefusal> {
    match error {
        // A number beyond 63 bits, or a text that the interface does not accept.
        rusqlite::Error::ToSqlConversionFailure(_) | rusqlite::Error::NulError(_) => Some(StoreRefusal::Invalid),
        error => match error.sqlite_error_code()? {
            ErrorCode::TooBig | ErrorCode::TypeMismatch => Some(StoreRefusal::Invalid),
            // The rows of this item's channel contradict each other.
            ErrorCode::ConstraintViolation => Some(StoreRefusal::Failed),
            _ => None,
        },
    }
}

/// Marks the database as damaged if an error means that the file differs from what was written to it.
pub(super) fn note_damage(error: &rusqlite::Error, metrics: &StoreMetrics) {
    match error {
        rusqlite::Error::FromSqlConversionFailure(_, _, reason) => {
            if let Some(damaged) = reason.downcast_ref::<DamagedRow>() {
                metrics.mark_damaged(damaged);
            }
        }
        error if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)) => {
            metrics.mark_damaged(error)
        }
        _ => {}
    }
}
