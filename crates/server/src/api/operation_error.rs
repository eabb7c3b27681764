//! The refusals of operations of the server API.

use touchline_protocol::Error;

use crate::auth::Denied;

/// Why an operation was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OperationError {
    /// The error that the caller receives.
    pub(crate) error: Error,
    /// The field of the request that is the cause; None = no single field is.
    pub(crate) field: Option<&'static str>,
    /// What the caller's key does not allow, and the operation; None = another reason.
    pub(crate) denied: Option<(Denied, &'static str)>,
    /// A detail that follows the text of the error; None = the text says everything.
    pub(crate) detail: Option<Box<str>>,
    /// The detail may repeat a value of the request, so the log does not show it.
    pub(crate) repeats_value: bool,
    /// The channel that the refusal is about, for the log; None = it is about none, or about several.
    pub(crate) channel: Option<Box<str>>,
}

impl OperationError {
    /// The error 107 because of one field.
    pub(crate) fn bad(field: &'static str) -> Self {
        OperationError { field: Some(field), ..Error::BAD_REQUEST.into() }
    }

    /// An error because of one field, with what is wrong with it.
    pub(crate) fn about(error: Error, field: &'static str, detail: &str) -> Self {
        OperationError { field: Some(field), detail: Some(detail.into()), ..error.into() }
    }

    /// The error 4017, with what is wrong with the configuration.
    pub(crate) fn of_configuration(detail: String) -> Self {
        OperationError { detail: Some(detail.into()), ..Error::CONFIGURATION_REFUSED.into() }
    }

    /// The error 111, with what is already running.
    pub(crate) fn under_way(detail: String) -> Self {
        OperationError { detail: Some(detail.into()), ..Error::TOO_MANY_REQUESTS.into() }
    }

    /// The error 103, because the caller's key does not allow the operation.
    pub(crate) fn denied(why: Denied, operation: &'static str) -> Self {
        OperationError { denied: Some((why, operation)), ..Error::PERMISSION_DENIED.into() }
    }
}

impl From<Error> for OperationError {
    fn from(error: Error) -> Self {
        OperationError { error, field: None, denied: None, detail: None, repeats_value: false, channel: None }
    }
}
