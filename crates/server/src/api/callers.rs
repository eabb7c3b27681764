//! The callers of the server API over HTTP and gRPC, and the refusals of operations that are logged.

use touchline_engine::TokenError;
use touchline_protocol::Error;

use super::operation_error::OperationError;
use crate::auth::ApiCaller;
use crate::net::remote::Remote;
use crate::node::Node;
use crate::runtime::generation::Generation;
use crate::runtime::refusals::RefusalLine;

/// Why a caller is not served.
pub(super) enum CallerRefusal {
    /// The caller sent no key, or a wrong one. The texts: the cause for the log, and the message for the caller.
    Unauthorized(&'static str, &'static str),
    /// The token cannot be verified yet. The text is the cause for the log.
    Unavailable(&'static str),
}

/// Returns the caller that a token names; None = the server API accepts no tokens.
pub(super) fn by_token<'g>(
    generation: &'g Generation,
    shown: &[u8],
    now_s: u64,
) -> Option<Result<&'g ApiCaller, CallerRefusal>> {
    let token = std::str::from_utf8(shown.trim_ascii()).unwrap_or_default();
    let found = generation.access.api.of_token(token, now_s)?;
    let text = "the token that was sent is not valid for http_api.jwks";
    Some(found.map_err(|error| match error {
        TokenError::Expired => CallerRefusal::Unauthorized("server API: exp of the token has passed", text),
        TokenError::Invalid(cause) => CallerRefusal::Unauthorized(cause, text),
        TokenError::Unavailable(cause) => CallerRefusal::Unavailable(cause),
    }))
}

/// Logs why the server API refused an operation, if the caller or the configuration is the cause. `request_id`: empty =
/// the request has no id.
pub(super) fn log_refused_operation(
    node: &Node,
    remote: Remote,
    caller: &ApiCaller,
    request_id: &str,
    operation: &str,
    refusal: &OperationError,
) {
    let cause = match refusal.error {
        Error::UNKNOWN_CHANNEL => "server API: the namespace of the channel is not in channel.namespaces",
        Error::NOT_AVAILABLE if refusal.field.is_some() => {
            "server API: the operation cannot do what the field asks for"
        }
        Error::NOT_AVAILABLE => {
            "server API: the operation needs a feature that is off (for the namespace, or in [store])"
        }
        Error::METHOD_NOT_FOUND => "server API: there is no operation of this name",
        _ if refusal.denied.is_some() => "server API: the key may not use the operation, or not in this channel",
        Error::BAD_REQUEST if refusal.field.is_none() => "server API: the body cannot be read as this request",
        Error::BAD_REQUEST => {
            "server API: a field is missing, empty, too long, out of range or contradicts another one"
        }
        _ => return,
    };
    let (code, address) = (refusal.error.code, Some(remote.address));
    node.log_refusal(&RefusalLine {
        cause,
        code,
        address,
        operation: operation.get(..32).unwrap_or(operation),
        field: refusal.field.unwrap_or_default(),
        channel: refusal.channel.as_deref().unwrap_or_default(),
        // The detail of a bad request may repeat what was sent.
        detail: refusal.detail.as_deref().filter(|_| refusal.error != Error::BAD_REQUEST).unwrap_or_default(),
        key: &caller.name,
        request_id,
        ..RefusalLine::default()
    });
}
