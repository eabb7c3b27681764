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
    /// The status of a gRPC answer that carries the error, where the caller asks for statuses: 1–16.
    pub grpc_status: u8,
}

/// What the catalogue says of an error, beside the error itself.
#[derive(Debug, Clone, Copy)]
pub struct ErrorEntry {
    /// The error.
    pub error: Error,
    /// Its name, in capitals.
    pub name: &'static str,
    /// What the caller or the operator can do about it, in one or two sentences.
    pub remedy: &'static str,
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

/// Each line: the name, the number, the text, whether it is temporary, the statuses of HTTP and gRPC, the remedy.
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
            /// Every error there is, in the order of their numbers.
            pub const ALL: &'static [Error] = &[$(Error::$name),*];
            /// What is to be said of each error, in the order of their numbers; documentation and `GET /api/errors` are
            /// made from it.
            pub const CATALOGUE: &'static [ErrorEntry] =
                &[$(ErrorEntry { error: Error::$name, name: stringify!($name), remedy: $remedy }),*];
        }
    };
}

errors! {
    /// A fault of the server.
    INTERNAL = 100, "internal server error", true, 500, 13,
        "Send the request again. If it fails again, look at the log of the node that answered.";
    /// The caller has not proved who it is.
    UNAUTHORIZED = 101, "unauthorized", false, 401, 16,
        "Show who you are: a client by a token, a backend by a key of the server API.";
    /// The channel's namespace is not configured.
    UNKNOWN_CHANNEL = 102, "unknown channel", false, 404, 5,
        "Use a channel of a namespace that is in `channel.namespaces`, or add the namespace there.";
    /// The caller may not do this.
    PERMISSION_DENIED = 103, "permission denied", false, 403, 7,
        "Allow it in the options of the namespace, in the token, or in the lists of the key. The log of the node names \
        what is missing.";
    /// No such method.
    METHOD_NOT_FOUND = 104, "method not found", false, 404, 12,
        "Look at the name of the operation or method; `/api/openapi.json` has those of the server API.";
    /// The connection has this subscription already.
    ALREADY_SUBSCRIBED = 105, "already subscribed", false, 409, 6,
        "Use the subscription that the connection has, or end it first.";
    /// A limit of the configuration is reached.
    LIMIT_EXCEEDED = 106, "limit exceeded", false, 409, 8,
        "Free what is not needed any more, or raise the limit in the configuration.";
    /// The request is malformed or contradicts itself.
    BAD_REQUEST = 107, "bad request", false, 400, 3,
        "Correct the request: `field` of the error, or the log of the node, names what is wrong.";
    /// The feature is not switched on for this channel or server.
    NOT_AVAILABLE = 108, "not available", false, 400, 9,
        "Switch the feature on in the configuration: for the namespace, or for the server.";
    /// The token's time is over: get a new one.
    TOKEN_EXPIRED = 109, "token expired", false, 401, 16,
        "Get a new token and connect or subscribe with it.";
    /// The connection's or subscription's time is over.
    EXPIRED = 110, "expired", false, 401, 16,
        "Connect or subscribe again, with a token or an answer of your backend whose time is not over.";
    /// Overload, or a rate limit: try later.
    TOO_MANY_REQUESTS = 111, "too many requests", true, 503, 8,
        "Wait and send the request again, each time after a longer pause.";
    /// The asked position is of another epoch, or no longer in the history.
    UNRECOVERABLE_POSITION = 112, "unrecoverable position", false, 416, 11,
        "Read the present state from your backend, and go on from the channel's newest position.";
    /// Somebody else has the name.
    NAME_TAKEN = 4001, "name taken", true, 409, 6,
        "Choose another name, or wait until its owner has gone.";
    /// Nobody has the name, or not this client; or it is no member of the group.
    NOT_REGISTERED = 4002, "not registered", false, 404, 5,
        "Look whether the client is connected and has the name, or is a member of the group.";
    /// The scope is not configured.
    NO_SUCH_SCOPE = 4003, "no such scope", false, 404, 5,
        "Use a scope that is in `registry.scopes`, or add it there.";
    /// The entry is not as it was when it was looked up.
    CHANGED = 4004, "changed meanwhile", false, 409, 10,
        "Look the entry up again, and repeat the change with its new version.";
    /// The called client did not answer in time.
    CALL_TIMEOUT = 4005, "call timeout", true, 504, 4,
        "Call again, or with a longer `timeout_ms`. The client may have done what it was called for.";
    /// The called client, or its node, went away.
    CALLEE_GONE = 4006, "callee gone", true, 503, 14,
        "Call again when the client has come back. It may have done what it was called for.";
    /// Too many calls wait for an answer.
    TOO_MANY_CALLS = 4007, "too many calls", true, 503, 8,
        "Wait until calls under way have been answered, and call again.";
    /// No call with this id waits for an answer of this client.
    NO_SUCH_CALL = 4008, "no such call", false, 404, 5,
        "Nothing can be done: the call was answered already, or its time is over.";
    /// The cluster can't be reached, and what is asked for can't be had without it. Whether a publication was stored is
    /// unknown: send it again with the same idempotency key.
    CLUSTER_UNREACHABLE = 4009, "cluster unreachable", true, 503, 14,
        "Send the request again, a publish with the same `idempotency_key`. If it lasts, look at NATS.";
    /// The database fails, and what is asked for can't be had without it. Whether a publication was stored is unknown:
    /// send it again with the same idempotency key.
    STORE_UNAVAILABLE = 4010, "store unavailable", true, 503, 14,
        "Send the request again, a publish with the same `idempotency_key`. If it lasts, look at the database.";
    /// As many messages wait for that name as may.
    INBOX_FULL = 4011, "inbox full", true, 409, 8,
        "Send again when the owner of the name has acknowledged messages, or raise `inbox_size` of the scope.";
    /// Nothing is said of that channel.
    CHANNEL_NOT_DESCRIBED = 4012, "channel not described", false, 404, 5,
        "Describe the channel with `channel_set` first.";
    /// What came is no command. Sent where somebody may be typing.
    NOT_A_COMMAND = 4013, "bad request: expected one JSON command a line, first of all \
        {\"id\":1,\"connect\":{\"token\":\"...\"}}", false, 400, 3,
        "Send one JSON command a line, `connect` first.";
    /// The server API is not spoken in a version that the caller accepts.
    NO_SUCH_VERSION = 4014, "no such version", false, 406, 12,
        "Accept a version that the server speaks: the answer lists them.";
    /// The channel's publications are bytes, and the client speaks JSON.
    BINARY_CHANNEL = 4015, "binary channel", false, 400, 9,
        "Use the Protobuf protocol, or set `binary_as_base64` for the namespace.";
    /// The channel's reactions are closed.
    REACTIONS_CLOSED = 4016, "reactions are closed", false, 409, 9,
        "Nothing is counted any more. Open them again with `reaction_open`, which begins at zero.";
    /// The configuration that was read again has faults, or differs in what takes a restart. Nothing was changed.
    CONFIGURATION_REFUSED = 4017, "configuration refused", false, 400, 9,
        "Mend what the text names, or restart the node where a key takes that, and reload again.";
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

    /// Whether a client should subscribe again by itself after this code.
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

    /// Libraries of gRPC send a call again by themselves after 14 (unavailable), so only what may succeed later has it.
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
