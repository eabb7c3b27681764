//! The numbers of the protocol: errors of a command, reasons of an unsubscribe, reasons of a disconnect.
//!
//! Source: Centrifugal client protocol v2 and its page of codes. Numbers of our own are 4000–4999.

use std::borrow::Cow;

/// Why a command, or an operation of the server API, was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    /// The number on the wire.
    pub code: u32,
    /// A fixed text; it never contains input.
    pub message: &'static str,
    /// The same request may succeed later; SDKs retry it by themselves.
    pub temporary: bool,
    /// The status of an HTTP answer that carries the error, where the caller of the server API asks for statuses.
    pub http_status: u16,
}

impl Error {
    /// Whether the error says that the server has too much to do. The HTTP status of such an answer is always the
    /// error's own, so that a load balancer sees it too.
    pub fn is_overload(&self) -> bool {
        matches!(*self, Error::TOO_MANY_REQUESTS | Error::TOO_MANY_CALLS)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $message:literal, $temporary:literal, $http_status:literal;)*) => {
        impl Error {
            $($(#[$doc])* pub const $name: Error =
                Error { code: $code, message: $message, temporary: $temporary, http_status: $http_status };)*
            /// Every error there is, in the order of their numbers; documentation and metrics are made from it.
            pub const ALL: &'static [Error] = &[$(Error::$name),*];
        }
    };
}

errors! {
    /// A fault of the server.
    INTERNAL = 100, "internal server error", true, 500;
    /// The caller has not proved who it is.
    UNAUTHORIZED = 101, "unauthorized", false, 401;
    /// The channel's namespace is not configured.
    UNKNOWN_CHANNEL = 102, "unknown channel", false, 404;
    /// The caller may not do this.
    PERMISSION_DENIED = 103, "permission denied", false, 403;
    /// No such method.
    METHOD_NOT_FOUND = 104, "method not found", false, 404;
    /// The connection has this subscription already.
    ALREADY_SUBSCRIBED = 105, "already subscribed", false, 409;
    /// A limit of the configuration is reached.
    LIMIT_EXCEEDED = 106, "limit exceeded", false, 409;
    /// The request is malformed or contradicts itself.
    BAD_REQUEST = 107, "bad request", false, 400;
    /// The feature is not switched on for this channel or server.
    NOT_AVAILABLE = 108, "not available", false, 400;
    /// The token's time is over: get a new one.
    TOKEN_EXPIRED = 109, "token expired", false, 401;
    /// The connection's or subscription's time is over.
    EXPIRED = 110, "expired", false, 401;
    /// Overload, or a rate limit: try later.
    TOO_MANY_REQUESTS = 111, "too many requests", true, 503;
    /// The asked position is of another epoch, or no longer in the history.
    UNRECOVERABLE_POSITION = 112, "unrecoverable position", false, 416;
    /// Somebody else has the name.
    NAME_TAKEN = 4001, "name taken", true, 409;
    /// Nobody has the name, or not this client; or it is no member of the group.
    NOT_REGISTERED = 4002, "not registered", false, 404;
    /// The scope is not configured.
    NO_SUCH_SCOPE = 4003, "no such scope", false, 404;
    /// The entry is not as it was when it was looked up.
    CHANGED = 4004, "changed meanwhile", false, 409;
    /// The called client did not answer in time.
    CALL_TIMEOUT = 4005, "call timeout", true, 504;
    /// The called client, or its node, went away.
    CALLEE_GONE = 4006, "callee gone", true, 503;
    /// Too many calls wait for an answer.
    TOO_MANY_CALLS = 4007, "too many calls", true, 503;
    /// No call with this id waits for an answer of this client.
    NO_SUCH_CALL = 4008, "no such call", false, 404;
    /// The cluster can't be reached, and what is asked for can't be had without it. Whether a publication was stored is
    /// unknown: send it again with the same idempotency key.
    CLUSTER_UNREACHABLE = 4009, "cluster unreachable", true, 503;
    /// The database fails, and what is asked for can't be had without it. Whether a publication was stored is unknown:
    /// send it again with the same idempotency key.
    STORE_UNAVAILABLE = 4010, "store unavailable", true, 503;
    /// As many messages wait for that name as may.
    INBOX_FULL = 4011, "inbox full", true, 409;
    /// Nothing is said of that channel.
    CHANNEL_NOT_DESCRIBED = 4012, "channel not described", false, 404;
    /// What came is no command. Sent where somebody may be typing.
    NOT_A_COMMAND = 4013, "bad request: expected one JSON command a line, first of all \
        {\"id\":1,\"connect\":{\"token\":\"...\"}}", false, 400;
}

/// Why the server ended a connection; on a WebSocket it is the close code and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disconnect {
    /// The number on the wire. 3500–3999 and 4500–4999 are final; after any other the client reconnects.
    pub code: u16,
    /// A short text, at most 123 bytes on a WebSocket.
    pub reason: Cow<'static, str>,
}

impl Disconnect {
    /// Whether a client should come back by itself after this code.
    pub fn is_reconnect(&self) -> bool {
        !matches!(self.code, 3500..=3999 | 4500..=4999)
    }
}

macro_rules! disconnects {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $reason:literal;)*) => {
        impl Disconnect {
            $($(#[$doc])* pub const $name: Disconnect = Disconnect { code: $code, reason: Cow::Borrowed($reason) };)*
            /// Every disconnect there is, in the order of their numbers.
            pub const ALL: &'static [Disconnect] = &[$(Disconnect::$name),*];
        }
    };
}

disconnects! {
    /// The connection was closed without another reason.
    CONNECTION_CLOSED = 3000, "connection closed";
    /// The node shuts down; come back, to another node or to this one.
    SHUTDOWN = 3001, "shutdown";
    /// A fault of the server.
    SERVER_ERROR = 3004, "internal server error";
    /// The connection's token expired and was not refreshed.
    EXPIRED = 3005, "connection expired";
    /// A server-side subscription's time is over.
    SUBSCRIPTION_EXPIRED = 3006, "subscription expired";
    /// The client reads slower than it is sent to: its queue is full.
    SLOW = 3008, "slow";
    /// Writing to the socket failed.
    WRITE_ERROR = 3009, "write error";
    /// What the client holds and what the server has no longer fit: recover.
    INSUFFICIENT_STATE = 3010, "insufficient state";
    /// Somebody asked this client to reconnect.
    FORCE_RECONNECT = 3011, "force reconnect";
    /// A ping was not answered in time.
    NO_PONG = 3012, "no pong";
    /// Too many commands.
    TOO_MANY_REQUESTS = 3013, "too many requests";
    /// The token is broken, forged, for somebody else, revoked or invalidated.
    INVALID_TOKEN = 3500, "invalid token";
    /// A command is malformed, or not allowed in this state.
    BAD_REQUEST = 3501, "bad request";
    /// No connect command came in time.
    STALE = 3502, "stale";
    /// Somebody asked to end this connection for good, or to block its user.
    FORCE_NO_RECONNECT = 3503, "force disconnect";
    /// The user has too many connections.
    CONNECTION_LIMIT = 3504, "connection limit";
    /// The connection has too many channels.
    CHANNEL_LIMIT = 3505, "channel limit";
    /// The transport can't do what was asked of it.
    INAPPROPRIATE_PROTOCOL = 3506, "inappropriate protocol";
    /// The client may not connect.
    PERMISSION_DENIED = 3507, "permission denied";
    /// The feature is not switched on.
    NOT_AVAILABLE = 3508, "not available";
    /// Too many commands of this connection failed.
    TOO_MANY_ERRORS = 3509, "too many errors";
    /// A client that sends lines was silent for too long.
    IDLE = 4000, "idle";
}

/// Why the server ended a subscription. Below 2500 the client stays unsubscribed, from 2500 on it subscribes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsubscribe {
    /// The number on the wire.
    pub code: u32,
    /// A short text.
    pub reason: &'static str,
}

impl Unsubscribe {
    /// The server API ended it.
    pub const SERVER: Unsubscribe = Unsubscribe { code: 2000, reason: "server unsubscribe" };
    /// The client's position and the channel's no longer fit: recover.
    pub const INSUFFICIENT_STATE: Unsubscribe = Unsubscribe { code: 2500, reason: "insufficient state" };
    /// The subscription's token expired and was not refreshed.
    pub const EXPIRED: Unsubscribe = Unsubscribe { code: 2501, reason: "subscription expired" };
    /// Every unsubscribe code there is.
    pub const ALL: &'static [Unsubscribe] = &[Self::SERVER, Self::INSUFFICIENT_STATE, Self::EXPIRED];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_written_as_its_number_and_its_text() {
        assert_eq!(Error::NAME_TAKEN.to_string(), "4001: name taken");
    }

    /// A caller that sees only the status must be able to tell whether to send the request again.
    #[test]
    fn the_http_status_of_a_temporary_error_does_not_blame_the_request() {
        let conflicts = [Error::NAME_TAKEN, Error::INBOX_FULL];
        for error in Error::ALL {
            let is_of_server = (500..600).contains(&error.http_status);
            let is_conflict = conflicts.contains(error) && error.http_status == 409;
            assert_eq!(error.temporary, is_of_server || is_conflict, "{error}: {}", error.http_status);
            assert!((400..600).contains(&error.http_status), "{error}: {}", error.http_status);
            assert!(!error.is_overload() || error.http_status == 503, "{error}");
        }
    }

    #[test]
    fn error_numbers_are_in_order() {
        assert!(Error::ALL.is_sorted_by(|one, next| one.code < next.code));
    }

    #[test]
    fn a_client_comes_back_after_what_is_not_final() {
        for (code, is_reconnect) in [
            (3000, true),
            (3499, true),
            (3500, false),
            (3999, false),
            (4000, true),
            (4499, true),
            (4500, false),
            (4999, false),
            (5000, true),
        ] {
            assert_eq!(Disconnect { code, reason: Cow::Borrowed("") }.is_reconnect(), is_reconnect, "{code}");
        }
    }
}
