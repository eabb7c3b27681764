//! Every code that a caller or a client may meet, as `GET /api/errors` tells it.

use schemars::JsonSchema;
use serde::Serialize;
use touchline_protocol::{Disconnect, Error, Unsubscribe};

/// Every code with its meaning.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ErrorCatalogue")]
pub(super) struct Catalogue {
    /// Why a command of a client, or an operation of the server API, was refused.
    errors: Vec<CatalogueError>,
    /// Why a connection was ended.
    disconnects: Vec<DisconnectCode>,
    /// Why a subscription was ended.
    unsubscribes: Vec<UnsubscribeCode>,
}

/// An error.
#[derive(Serialize, JsonSchema)]
struct CatalogueError {
    /// The number on the wire.
    code: u32,
    /// The name, in capitals.
    name: &'static str,
    /// The text on the wire; more may stand behind it.
    message: &'static str,
    /// The status of an HTTP answer that tells the error.
    http_status: u16,
    /// The status of a gRPC answer that tells the error.
    grpc_status: u8,
    /// Whether the same request may succeed later.
    temporary: bool,
    /// What can be done about it.
    remedy: &'static str,
}

/// A reason why a connection was ended.
#[derive(Serialize, JsonSchema)]
struct DisconnectCode {
    /// The close code of a WebSocket.
    code: u16,
    /// The text on the wire.
    reason: &'static str,
    /// Whether the client connects again by itself.
    reconnect: bool,
}

/// A reason why a subscription was ended.
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
