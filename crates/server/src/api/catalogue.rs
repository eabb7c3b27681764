//! All codes that a caller or a client may receive, as `GET /api/errors` returns them.

use schemars::JsonSchema;
use serde::Serialize;
use touchline_protocol::{Disconnect, Error, Unsubscribe};

/// All codes with their meanings.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ErrorCatalogue")]
pub(super) struct Catalogue {
    /// The errors that refuse a command of a client or an operation of the server API.
    errors: Vec<CatalogueError>,
    /// The codes with which a connection ends.
    disconnects: Vec<DisconnectCode>,
    /// The codes with which a subscription ends.
    unsubscribes: Vec<UnsubscribeCode>,
}

/// One error with its statuses and its remedy.
#[derive(Serialize, JsonSchema)]
struct CatalogueError {
    /// The number on the wire.
    code: u32,
    /// The name of the error, in capitals.
    name: &'static str,
    /// The text on the wire; the server may append details to it.
    message: &'static str,
    /// The status of an HTTP answer that reports the error.
    http_status: u16,
    /// The status of a gRPC answer that reports the error.
    grpc_status: u8,
    /// Whether the same request may succeed later.
    temporary: bool,
    /// What the caller or the operator can do about it.
    remedy: &'static str,
}

/// A code with which a connection ends.
#[derive(Serialize, JsonSchema)]
struct DisconnectCode {
    /// The close code of a WebSocket.
    code: u16,
    /// The text on the wire.
    reason: &'static str,
    /// Whether the client connects again by itself.
    reconnect: bool,
}

/// A code with which a subscription ends.
#[derive(Serialize, JsonSchema)]
struct UnsubscribeCode {
    /// The number on the wire.
    code: u32,
    /// The text on the wire.
    reason: &'static str,
    /// Whether the client subscribes again by itself.
    resubscribe: bool,
}

impl Catalogue {
    pub(super) fn new() -> Self {
        let error = |entry: &touchline_protocol::ErrorEntry| CatalogueError {
            code: entry.error.code,
            name: entry.name,
            message: entry.error.message,
            http_status: entry.error.http_status,
            grpc_status: entry.error.grpc_status,
            temporary: entry.error.temporary,
            remedy: entry.remedy,
        };
        let disconnect = |known: &'static Disconnect| DisconnectCode {
            code: known.code,
            reason: &known.reason,
            reconnect: known.is_reconnect(),
        };
        let unsubscribe = |known: &'static Unsubscribe| UnsubscribeCode {
            code: known.code,
            reason: known.reason,
            resubscribe: known.is_resubscribe(),
        };
        Catalogue {
            errors: Error::CATALOGUE.iter().map(error).collect(),
            disconnects: Disconnect::ALL.iter().map(disconnect).collect(),
            unsubscribes: Unsubscribe::ALL.iter().map(unsubscribe).collect(),
        }
    }
}
