//! Why an operation of the server API was refused.

use touchline_protocol::Error;

use crate::auth::Denied;

/// Why an operation was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OperationError {
    /// What the caller is told.
    pub(crate) error: Error,
    /// The field of the request that is the cause; None = no single one is.
    pub(crate) field: Option<&'static str>,
    /// What the key of the caller lacks, and the operation; None = another reason.
    pub(crate) denied: Option<(Denied, &'static str)>,
}

impl OperationError {
    /// 107 because of one field.
    pub(crate) fn bad(field: &'static str) -> Self {
        OperationError { error: Error::BAD_REQUEST, field: Some(field), denied: None }
    }

    /// 103, because the key of the caller may not do it.
    pub(crate) fn denied(why: Denied, operation: &'static str) -> Self {
        OperationError { error: Error::PERMISSION_DENIED, field: None, denied: Some((why, operation)) }
    }
}

impl From<Error> for OperationError {
    fn from(error: Error) -> Self {
        OperationError { error, field: None, denied: None }
    }
}
