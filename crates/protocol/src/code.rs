//! The numbers of the protocol: errors of commands, unsubscribe codes and disconnect codes.
//!
//! Source: the Centrifugal client protocol v2 and its list of codes. Touchline's own numbers are 4000–4999.

use std::borrow::Cow;

/// Why the server refused a command of a client or an operation of the server API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    /// The error number on the wire.
    pub code: u32,
    /// A fixed text; it never contains input.
    pub message: &'static str,
    /// True if the same request may succeed later. Official SDKs then retry by themselves.
    pub temporary: bool,
    /// The HTTP status of an answer with this error, if the caller of the server API asks for statuses.
    pub http_status: u16,
    /// The gRPC status of an answer with this error, if the caller asks for statuses: 1–16.
    pub grpc_status: u8,
}

/// An error together with what the documentation says about it.
#[derive(Debug, Clone, Copy)]
pub struct ErrorEntry {
    /// The error that the entry describes.
    pub error: Error,
    /// The error's name in capitals.
    pub name: &'static str,
    /// What the caller or the operator can do about it, in one or two sentences.
    pub remedy: &'static str,
}

impl Error {
    /// Whether the error means that the server is overloaded. The HTTP answer always has the error's own status then,
    /// so that a load balancer sees the overload too.
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

/// Each line has the name, the number, the text, whether it is temporary, the HTTP status, the gRPC status and the
/// remedy.
macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $message:literal, $temporary:literal, $http_status:literal,
        $grpc_status:literal, $remedy:literal;)*) => {
        impl Error {
            $($(#[$doc])* pub const $name: Error = Error {
                code: $code,
                message: $message,
                temporary: $temporary,
                http_status: $http_status,
                grpc_status: $grpc_status,
            };)*
            /// All errors, in ascending order of their numbers.
            pub const ALL: &'static [Error] = &[$(Error::$name),*];
            /// All errors with their names and remedies, in ascending order of their numbers. The documentation and
            /// `GET /api/errors` are made from this list.
            pub const CATALOGUE: &'static [ErrorEntry] =
                &[$(ErrorEntry { error: Error::$name, name: stringify!($name), remedy: $remedy }),*];
        }
    };
}

errors! {
    /// The server failed internally.
    INTERNAL = 100, "internal server error", true, 500, 13,
        "Send the request again. If it fails again, read the log of the node that answered.";
    /// The caller did not prove its identity.
    UNAUTHORIZED = 101, "unauthorized", false, 401, 16,
        "Authenticate: a client with a token, a backend with a key of the server API.";
    /// The channel's namespace is not configured.
    UNKNOWN_CHANNEL = 102, "unknown channel", false, 404, 5,
        "Use a channel whose namespace is listed in `channel.namespaces`, or add the namespace there.";
    /// The caller does not have the permission.
    PERMISSION_DENIED = 103, "permission denied", false, 403, 7,
        "Allow it in the options of the namespace, in the token, or in the lists of the key. The log of the node \
        has the cause.";
    /// The server does not know the method.
    METHOD_NOT_FOUND = 104, "method not found", false, 404, 12,
        "Check the name of the operation or method. `/api/openapi.json` lists the operations of the server API.";
    /// The connection already has this subscription.
    ALREADY_SUBSCRIBED = 105, "already subscribed", false, 409, 6,
        "Use the existing subscription of the connection, or end it first.";
    /// A configured limit is reached.
    LIMIT_EXCEEDED = 106, "limit exceeded", false, 409, 8,
        "Release what you no longer need, or raise the limit in the configuration.";
    /// The request is malformed or contradicts itself.
    BAD_REQUEST = 107, "bad request", false, 400, 3,
        "Correct the request. The error's `field` names the field, and for broken JSON the message names the place.";
    /// The feature is disabled for this channel or server.
    NOT_AVAILABLE = 108, "not available", false, 400, 9,
        "Enable the feature in the configuration, for the namespace or for the server.";
    /// The token has expired; the client needs a new one.
    TOKEN_EXPIRED = 109, "token expired", false, 401, 16,
        "Get a new token and connect or subscribe with it.";
    /// The connection or the subscription has expired.
    EXPIRED = 110, "expired", false, 401, 16,
        "Connect or subscribe again with a token, or an answer of your backend, that has not expired.";
    /// The server is overloaded, or a rate limit is reached. The client should retry later.
    TOO_MANY_REQUESTS = 111, "too many requests", true, 503, 8,
        "Wait and send the request again, each time after a longer pause. If the error persists for durable channels, \
        check whether the primary database is full.";
    /// The requested position belongs to another epoch, or is no longer in the history.
    UNRECOVERABLE_POSITION = 112, "unrecoverable position", false, 416, 11,
        "Read the current state from your backend, and continue from the channel's newest position.";
    /// Another client owns the name.
    NAME_TAKEN = 4001, "name taken", true, 409, 6,
        "Choose another name, or wait until its owner has gone.";
    /// No client owns the name, or this client does not own it. For a group: the client is not a member.
    NOT_REGISTERED = 4002, "not registered", false, 404, 5,
        "Check that the client is connected and owns the name, or is a member of the group.";
    /// The scope is not configured.
    NO_SUCH_SCOPE = 4003, "no such scope", false, 404, 5,
        "Use a scope that is listed in `registry.scopes`, or add it there.";
    /// The entry changed after the caller looked it up.
    CHANGED = 4004, "changed meanwhile", false, 409, 10,
        "Look the entry up again, and repeat the change with its new version.";
    /// The called client did not answer in time.
    CALL_TIMEOUT = 4005, "call timeout", true, 504, 4,
        "Call again, perhaps with a longer `timeout_ms`. The client may have carried out the call.";
    /// The called client or its node has gone.
    CALLEE_GONE = 4006, "callee gone", true, 503, 14,
        "Call again when the client is connected again. It may have carried out the call.";
    /// Too many calls are waiting for an answer.
    TOO_MANY_CALLS = 4007, "too many calls", true, 503, 8,
        "Wait until earlier calls have been answered, and call again.";
    /// No call with this id is waiting for an answer from this client.
    NO_SUCH_CALL = 4008, "no such call", false, 404, 5,
        "Nothing can be done. The call was answered already, or its timeout has passed.";
    /// The node cannot reach the cluster, and the request needs it. It is unknown whether a publication was stored: the
    /// caller should send it again with the same idempotency key.
    CLUSTER_UNREACHABLE = 4009, "cluster unreachable", true, 503, 14,
        "Send the request again, for a publish with the same `idempotency_key`. If the error persists, check NATS.";
    /// The database fails, and the request needs it. It is unknown whether a publication was stored: the caller should
    /// send it again with the same idempotency key.
    STORE_UNAVAILABLE = 4010, "store unavailable", true, 503, 14,
        "Send the request again, for a publish with the same `idempotency_key`. If it persists, check the database.";
    /// The inbox of the name is full.
    INBOX_FULL = 4011, "inbox full", true, 409, 8,
        "Send again when the owner of the name has acknowledged messages, or raise `inbox_size` of the scope.";
    /// The channel does not have a description.
    CHANNEL_NOT_DESCRIBED = 4012, "channel not described", false, 404, 5,
        "Describe the channel with `channel_set` first.";
    /// The input is not a command. Sent on transports where a person may be typing.
    NOT_A_COMMAND = 4013, "bad request: expected one JSON command a line, first of all \
        {\"id\":1,\"connect\":{\"token\":\"...\"}}", false, 400, 3,
        "Send one JSON command on each line, `connect` first.";
    /// The server API does not support any version that the caller accepts.
    NO_SUCH_VERSION = 4014, "no such version", false, 406, 12,
        "Accept a version that the server supports. The answer lists them.";
    /// The channel carries bytes, and the client uses JSON.
    BINARY_CHANNEL = 4015, "binary channel", false, 400, 9,
        "Use the Protobuf protocol, or set `binary_as_base64` for the namespace.";
    /// The reactions of the channel are closed.
    REACTIONS_CLOSED = 4016, "reactions are closed", false, 409, 9,
        "Reactions are no longer counted. Open them again with `reaction_open`, which starts at zero.";
    /// The reloaded configuration has errors, or changes settings that need a restart. Nothing was changed.
    CONFIGURATION_REFUSED = 4017, "configuration refused", false, 400, 9,
        "Correct what the text names, or restart the node if a key needs a restart, and reload again.";
}

/// Why the server ended a connection. On a WebSocket this is the close code and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disconnect {
    /// The disconnect code on the wire. 3500–3999 and 4500–4999 are final; after any other code the client reconnects.
    pub code: u16,
    /// A short text for people, at most 123 bytes on a WebSocket.
    pub reason: Cow<'static, str>,
}

impl Disconnect {
    /// Whether the client should reconnect by itself after this code.
    pub fn is_reconnect(&self) -> bool {
        !matches!(self.code, 3500..=3999 | 4500..=4999)
    }
}

macro_rules! disconnects {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $reason:literal;)*) => {
        impl Disconnect {
            $($(#[$doc])* pub const $name: Disconnect = Disconnect { code: $code, reason: Cow::Borrowed($reason) };)*
            /// All disconnect codes, in ascending order.
            pub const ALL: &'static [Disconnect] = &[$(Disconnect::$name),*];
        }
    };
}

disconnects! {
    /// The connection was closed without a more specific reason.
    CONNECTION_CLOSED = 3000, "connection closed";
    /// The node shuts down. The client should reconnect, to another node or to this one.
    SHUTDOWN = 3001, "shutdown";
    /// The server failed internally.
    SERVER_ERROR = 3004, "internal server error";
    /// The connection's token expired and was not refreshed.
    EXPIRED = 3005, "connection expired";
    /// A server-side subscription has expired.
    SUBSCRIPTION_EXPIRED = 3006, "subscription expired";
    /// The client reads more slowly than the server sends, and its queue is full.
    SLOW = 3008, "slow";
    /// Writing to the client's socket failed.
    WRITE_ERROR = 3009, "write error";
    /// The client's state no longer matches the server's. The client should reconnect and recover.
    INSUFFICIENT_STATE = 3010, "insufficient state";
    /// The client was asked to reconnect.
    FORCE_RECONNECT = 3011, "force reconnect";
    /// The client did not answer a ping in time.
    NO_PONG = 3012, "no pong";
    /// The client sent too many commands.
    TOO_MANY_REQUESTS = 3013, "too many requests";
    /// The token is malformed, forged, not issued for this client, revoked or invalidated.
    INVALID_TOKEN = 3500, "invalid token";
    /// A command is malformed, or not allowed in this state.
    BAD_REQUEST = 3501, "bad request";
    /// The client did not send a connect command in time.
    STALE = 3502, "stale";
    /// This connection was ended for good on request, or its user is blocked.
    FORCE_NO_RECONNECT = 3503, "force disconnect";
    /// The user has too many connections.
    CONNECTION_LIMIT = 3504, "connection limit";
    /// The connection has too many channels.
    CHANNEL_LIMIT = 3505, "channel limit";
    /// The transport does not support what the client asked for.
    INAPPROPRIATE_PROTOCOL = 3506, "inappropriate protocol";
    /// The client is not allowed to connect.
    PERMISSION_DENIED = 3507, "permission denied";
    /// The feature is disabled.
    NOT_AVAILABLE = 3508, "not available";
    /// Too many commands of this connection failed.
    TOO_MANY_ERRORS = 3509, "too many errors";
    /// A client of the line protocol was silent for too long.
    IDLE = 4000, "idle";
}

/// Why the server ended a subscription. Below code 2500 the client stays unsubscribed; from 2500 on it subscribes
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsubscribe {
    /// The unsubscribe code on the wire.
    pub code: u32,
    /// A short text for people.
    pub reason: &'static str,
}

impl Unsubscribe {
    /// The server API ended the subscription.
    pub const SERVER: Unsubscribe = Unsubscribe { code: 2000, reason: "server unsubscribe" };
    /// The client's position no longer matches the channel. The client should subscribe again and recover.
    pub const INSUFFICIENT_STATE: Unsubscribe = Unsubscribe { code: 2500, reason: "insufficient state" };
    /// The subscription's token expired and was not refreshed.
    pub const EXPIRED: Unsubscribe = Unsubscribe { code: 2501, reason: "subscription expired" };
    /// All unsubscribe codes, in ascending order.
    pub const ALL: &'static [Unsubscribe] = &[Self::SERVER, Self::INSUFFICIENT_STATE, Self::EXPIRED];

    /// Whether the client should subscribe again by itself after this code.
    pub fn is_resubscribe(&self) -> bool {
        self.code >= 2500
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_written_as_its_number_and_its_text() {
        assert_eq!(Error::NAME_TAKEN.to_string(), "4001: name taken");
    }

    /// A caller that sees only the status must be able to decide whether to send the request again.
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

    /// gRPC libraries retry by themselves after 14 (unavailable), so only errors that may succeed later have it.
    #[test]
    fn the_grpc_status_of_an_error_does_not_contradict_it() {
        for error in Error::ALL {
            assert!((1..=16).contains(&error.grpc_status), "{error}: {}", error.grpc_status);
            assert!(error.grpc_status != 14 || error.temporary, "{error}");
            assert_eq!(error.grpc_status == 16, error.http_status == 401, "{error}");
        }
    }

    #[test]
    fn every_entry_of_the_catalogue_has_a_remedy_of_its_own() {
        assert_eq!(Error::CATALOGUE.len(), Error::ALL.len());
        let mut remedies: Vec<&str> = Error::CATALOGUE.iter().map(|entry| entry.remedy).collect();
        assert!(remedies.iter().all(|remedy| remedy.ends_with('.') && remedy.len() < 160 && !remedy.contains("  ")));
        remedies.sort_unstable();
        remedies.dedup();
        assert_eq!(remedies.len(), Error::ALL.len());
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
