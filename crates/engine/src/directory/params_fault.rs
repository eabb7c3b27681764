//! Why the parameters of a method of the registry are refused, and which of them is at fault.

use touchline_protocol::Error;

use super::request::DirectoryRequest;
use super::scope::Scopes;

/// Why parameters make no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamsFault {
    /// The error.
    pub error: Error,
    /// The parameter at fault; `None` = no single one is.
    pub field: Option<&'static str>,
}

impl ParamsFault {
    /// 107 because of one parameter.
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
    /// The parameter because of which a scope refuses the request with 107: an empty or too long name or group, or what
    /// is too large beside it. `None` = no such request has one.
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
