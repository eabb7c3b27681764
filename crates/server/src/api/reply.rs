//! The reply to a request of the server API.

use hyper::StatusCode;
use touchline_protocol::encode::ObjectWriter;

use super::json::{ErrorJson, WriteJson};
use super::operation::OperationError;

/// How an error is reported to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorMode {
    /// In the body, with status 200.
    Inside,
    /// In the HTTP status as well.
    Transport,
}

/// A reply of the server API.
pub(crate) struct ApiReply {
    pub(super) body: Vec<u8>,
    /// Why the requested operation was refused; None = it succeeded, or the request was a batch.
    pub(crate) refusal: Option<OperationError>,
    /// The first refused commands of a batch, each with its operation, for the log.
    pub(crate) refused: Vec<(String, OperationError)>,
    /// A field of the request that the operation does not have.
    pub(crate) warning: Option<String>,
    /// The status reports the refusal in either mode.
    pub(super) is_told: bool,
}

/// The most commands of one batch that the log may name.
const REFUSED_MAX: usize = 16;

impl ApiReply {
    /// Makes the reply to a batch. The errors of its commands are in the body.
    pub(super) fn of_batch(body: Vec<u8>) -> Self {
        ApiReply { body, refusal: None, refused: Vec::new(), warning: None, is_told: false }
    }

    /// Makes the reply of one operation, which may have been refused. `is_unknown`: the path names no operation.
    pub(super) fn of_operation(body: Vec<u8>, refusal: Option<OperationError>, is_unknown: bool) -> Self {
        ApiReply { body, refusal, refused: Vec::new(), warning: None, is_told: is_unknown }
    }

    /// Makes the reply to a request that is refused as a whole.
    pub(super) fn of_refusal(refusal: OperationError) -> Self {
        let mut body = Vec::new();
        let mut object = ObjectWriter::open(&mut body);
        ErrorJson::from(refusal.clone()).write(object.key("error"));
        object.close();
        ApiReply { body, refusal: Some(refusal), refused: Vec::new(), warning: None, is_told: false }
    }

    /// Makes the reply to a request that never reaches an operation. Its status reports this in either mode.
    pub(crate) fn turned_away(refusal: OperationError) -> Self {
        ApiReply { is_told: true, ..Self::of_refusal(refusal) }
    }

    /// Notes the outcome of a command of a batch.
    pub(super) fn note(&mut self, operation: &str, refusal: Option<OperationError>) {
        if let Some(refusal) = refusal.filter(|_| self.refused.len() < REFUSED_MAX) {
            self.refused.push((operation.to_owned(), refusal));
        }
    }

    /// Returns the body. If the HTTP status reports errors, the body of an error is only the error object.
    pub(crate) fn into_body(self, mode: ErrorMode) -> Vec<u8> {
        match (self.refusal, mode) {
            (Some(refusal), ErrorMode::Transport) => {
                let mut body = Vec::new();
                ErrorJson::from(refusal).write(&mut body);
                body
            }
            _ => self.body,
        }
    }

    /// Returns the HTTP status of the reply.
    pub(crate) fn status(&self, mode: ErrorMode) -> StatusCode {
        let is_told = |refusal: &OperationError| {
            self.is_told || refusal.error.is_overload() || refusal.denied.is_some() || mode == ErrorMode::Transport
        };
        match &self.refusal {
            Some(refusal @ OperationError { error, .. }) if is_told(refusal) => {
                StatusCode::from_u16(error.http_status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
            _ => StatusCode::OK,
        }
    }
}

#[cfg(test)]
mod tests {
    use touchline_protocol::Error;

    use super::*;
    use crate::auth::Denied;

    #[test]
    fn each_error_has_its_status_where_the_caller_asks_for_it_and_an_overload_always() {
        for error in Error::ALL {
            let reply = ApiReply::of_refusal((*error).into());
            assert_eq!(reply.status(ErrorMode::Transport), error.http_status, "{error}");
            let inside = if error.is_overload() { error.http_status } else { 200 };
            assert_eq!(reply.status(ErrorMode::Inside), inside, "{error}");
            let text = format!(r#"{{"code":{},"message":{:?}}}"#, error.code, error.message);
            assert_eq!(reply.body, format!(r#"{{"error":{text}}}"#).into_bytes());
            assert_eq!(reply.into_body(ErrorMode::Transport), text.into_bytes());
        }
    }

    #[test]
    fn what_a_key_may_not_do_is_403_in_either_mode_and_names_the_operation() {
        let reply = |why| ApiReply::of_refusal(OperationError::denied(why, "publish"));
        assert_eq!([ErrorMode::Inside, ErrorMode::Transport].map(|mode| reply(Denied::Channel).status(mode)), [403; 2]);
        let message = "permission denied: the key may not use publish: add it to operations of the key";
        let text = format!(r#"{{"code":103,"message":"{message}"}}"#);
        assert_eq!(reply(Denied::Operation).body, format!(r#"{{"error":{text}}}"#).into_bytes());
        assert_eq!(reply(Denied::Operation).into_body(ErrorMode::Transport), text.as_bytes());
        let of_client = ApiReply::of_refusal(touchline_protocol::Error::PERMISSION_DENIED.into());
        assert_eq!(of_client.status(ErrorMode::Inside), 200, "what an operation itself refuses stays as it was");
    }

    #[test]
    fn a_path_without_an_operation_is_not_found_in_either_mode() {
        let reply = ApiReply::of_operation(Vec::new(), Some(Error::METHOD_NOT_FOUND.into()), true);
        assert_eq!([reply.status(ErrorMode::Inside), reply.status(ErrorMode::Transport)], [StatusCode::NOT_FOUND; 2]);
    }

    #[test]
    fn what_never_reaches_an_operation_says_what_is_wrong_and_where() {
        let reply = || ApiReply::turned_away(OperationError::about(Error::BAD_REQUEST, "channel", "a number"));
        assert_eq!([ErrorMode::Inside, ErrorMode::Transport].map(|mode| reply().status(mode)), [400; 2]);
        let text = r#"{"code":107,"message":"bad request: a number","field":"channel"}"#;
        assert_eq!(reply().into_body(ErrorMode::Transport), text.as_bytes());
        assert_eq!(reply().into_body(ErrorMode::Inside), format!(r#"{{"error":{text}}}"#).as_bytes());
    }
}
