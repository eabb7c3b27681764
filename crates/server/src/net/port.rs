//! What a port serves, and how.

use std::sync::Arc;

use crate::tls::Tls;

/// What a port of HTTP serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortRole {
    /// Everything: there is no internal port.
    Whole,
    /// Clients only: the API and the probes have the internal port.
    Outer,
    /// The internal port: everything that is not for clients.
    Inner,
    /// The server API over gRPC, and nothing else.
    Grpc,
}

impl PortRole {
    /// Whether clients, and pages for them, are served.
    pub(crate) fn serves_clients(self) -> bool {
        matches!(self, PortRole::Whole | PortRole::Outer)
    }

    /// Whether metrics and probes are served.
    pub(crate) fn serves_operators(self) -> bool {
        matches!(self, PortRole::Whole | PortRole::Inner)
    }

    /// Whether the server API is served. `is_external`: it belongs to the clients' port.
    pub(crate) fn serves_api(self, is_external: bool) -> bool {
        match self {
            PortRole::Whole => true,
            PortRole::Outer => is_external,
            PortRole::Inner => !is_external,
            PortRole::Grpc => false,
        }
    }
}

/// What a port speaks.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) side: PortRole,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) is_for_lines: bool,
    /// Connections begin with a header of the PROXY protocol.
    pub(crate) is_introduced: bool,
}
