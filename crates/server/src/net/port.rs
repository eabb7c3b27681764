//! What a port serves, and which protocols it uses.

use std::sync::Arc;

use crate::tls::Tls;

/// What an HTTP port serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortRole {
    /// Everything, because there is no internal port.
    Whole,
    /// Clients only, because the internal port serves the API and the probes.
    Outer,
    /// The internal port: everything that is not for clients.
    Inner,
    /// Only the server API over gRPC.
    Grpc,
}

impl PortRole {
    /// Whether the port serves clients, and pages for them.
    pub(crate) fn serves_clients(self) -> bool {
        matches!(self, PortRole::Whole | PortRole::Outer)
    }

    /// Whether the port serves metrics and probes.
    pub(crate) fn serves_operators(self) -> bool {
        matches!(self, PortRole::Whole | PortRole::Inner)
    }

    /// Whether the port serves the server API. `is_external`: whether the API belongs to the clients' port.
    pub(crate) fn serves_api(self, is_external: bool) -> bool {
        match self {
            PortRole::Whole => true,
            PortRole::Outer => is_external,
            PortRole::Inner => !is_external,
            PortRole::Grpc => false,
        }
    }
}

/// What a port serves, and with which protocols.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) side: PortRole,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) is_for_lines: bool,
    /// Whether connections begin with a header of the PROXY protocol.
    pub(crate) is_introduced: bool,
}
