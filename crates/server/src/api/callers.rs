//! The callers of the server API over HTTP and gRPC, and the refusals of operations that are logged.

use touchline_engine::TokenError;
use touchline_protocol::Error;

use super::operation_error::OperationError;
use crate::auth::{ApiCaller, Denied};
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

/// The refusal of an `Authorization` that names neither a key nor a token.
pub(super) const OTHER_SCHEME: CallerRefusal = CallerRefusal::Unauthorized(
    "server API: Authorization has another scheme than apikey, or a token while http_api.jwks is off",
    "the scheme of Authorization is not apikey: send the key as `Authorization: apikey KEY`",
);

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
        Error::METHOD_NOT_FOUND => "server API: the operation, or the method of rpc, does not exist",
        Error::NO_SUCH_SCOPE => "server API: the scope is not in registry.scopes",
        _ if let Some((denied, _)) = refusal.denied => match denied {
            Denied::Operation => "server API: operations of the key lacks the operation",
            Denied::Channel => "server API: channels of the key lacks the channel",
        },
        Error::BAD_REQUEST if refusal.field.is_none() => "server API: the body cannot be read as this request",
        Error::BAD_REQUEST => "server API: a field of the request is missing or wrong",
        _ => return,
    };
    let (code, address) = (refusal.error.code, Some(remote.address));
    node.log_refusal(&RefusalLine {
        cause,
        code,
        address,
        operation: &operation[..operation.floor_char_boundary(32)],
        field: refusal.field.unwrap_or_default(),
        channel: refusal.channel.as_deref().unwrap_or_default(),
        detail: refusal.detail.as_deref().filter(|_| !refusal.repeats_value).unwrap_or_default(),
        key: &caller.name,
        request_id,
        ..RefusalLine::default()
    });
}
