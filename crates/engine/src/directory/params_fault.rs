//! Why the parameters of a registry method are refused, and which parameter is wrong.

use touchline_protocol::Error;

use super::request::DirectoryRequest;
use super::scope::Scopes;

/// Why parameters are not a valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamsFault {
    /// The error for the requester.
    pub error: Error,
    /// The wrong parameter; `None` = no single parameter is wrong.
    pub field: Option<&'static str>,
}

impl ParamsFault {
    /// Error 107 because of one parameter.
    pub(super) fn bad(field: &'static str) -> Self {
        Self::of(Error::BAD_REQUEST, field)
    }

    /// An error because of one parameter.
    pub(super) fn of(error: Error, field: &'static str) -> Self {
        ParamsFault { error, field: Some(field) }
    }
}

impl From<Error> for ParamsFault {
    fn from(error: Error) -> Self {
        ParamsFault { error, field: None }
    }
}

impl From<ParamsFault> for Error {
    fn from(fault: ParamsFault) -> Self {
        fault.error
    }
}

impl DirectoryRequest {
    /// The parameter because of which a scope refuses the request with 107: an empty or too long name or group, or
    /// metadata or data that is too large. `None` = the request has no such parameter.
    pub fn oversized_field(&self, scopes: &Scopes) -> Option<&'static str> {
        let (scope, field, key, meta) = match self {
            DirectoryRequest::Register { scope, name, meta, .. }
            | DirectoryRequest::UpdateMeta { scope, name, meta, .. } => (scope, "name", name, meta),
            DirectoryRequest::Join { scope, group, meta } => (scope, "group", group, meta),
            DirectoryRequest::Send { .. } | DirectoryRequest::Call { .. } => return Some("data"),
            _ => return None,
        };
        let longest = scopes.options(*scope)?.name_max_length;
        let is_key = key.is_empty() || key.len() > longest || meta.is_empty();
        Some(if is_key { field } else { "meta" })
    }
}
