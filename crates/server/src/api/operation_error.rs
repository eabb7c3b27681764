//! Why an operation of the server API was refused.

use touchline_protocol::Error;

use crate::auth::Denied;

/// Why an operation was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OperationError {
    /// What the caller is told.
    pub(crate) error: Error,
    /// The field of the request that is the cause; None = no single one is.
    pub(crate) field: Option<&'static str>,
    /// What the key of the caller lacks, and the operation; None = another reason.
    pub(crate) denied: Option<(Denied, &'static str)>,
    /// What is wrong, behind the text of the error; None = the text says it all.
    pub(crate) detail: Option<Box<str>>,
}

impl OperationError {
    /// 107 because of one field.
    pub(crate) fn bad(field: &'static str) -> Self {
        OperationError { error: Error::BAD_REQUEST, field: Some(field), denied: None, detail: None }
    }

    /// An error because of one field, with what is wrong with it.
    pub(crate) fn about(error: Error, field: &'static str, detail: &str) -> Self {
        OperationError { error, field: Some(field), denied: None, detail: Some(detail.into()) }
    }

    /// 4017, with what is wrong with the configuration.
    pub(crate) fn of_configuration(detail: String) -> Self {
        OperationError { detail: Some(detail.into()), ..Error::CONFIGURATION_REFUSED.into() }
    }

    /// 111, with what is under way.
    pub(crate) fn under_way(detail: String) -> Self {
        OperationError { detail: Some(detail.into()), ..Error::TOO_MANY_REQUESTS.into() }
    }

    /// 103, because the key of the caller may not do it.
    pub(crate) fn denied(why: Denied, operation: &'static str) -> Self {
        OperationError { error: Error::PERMISSION_DENIED, field: None, denied: Some((why, operation)), detail: None }
    }
}

impl From<Error> for OperationError {
    fn from(error: Error) -> Self {
        OperationError { error, field: None, denied: None, detail: None }
    }
}
