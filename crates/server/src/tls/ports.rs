//! The TLS of all ports of a node.

use std::sync::Arc;

use touchline_config::{Settings, TlsSettings};

use super::acme::{Acme, PendingRenewal};
use super::config::{Tls, TlsState};
use super::error::TlsError;

/// The protocols that HTTP ports offer by ALPN.
const HTTP: [&str; 2] = ["h2", "http/1.1"];

/// The TLS configuration of each port; `None` = the port does not use TLS.
pub(crate) struct PortsTls {
    /// The TLS of the clients' HTTP port.
    pub(crate) http: Option<Arc<Tls>>,
    /// The TLS of the port for lines over TCP.
    pub(crate) lines: Option<Arc<Tls>>,
    /// The TLS of the internal port.
    pub(crate) inner: Option<Arc<Tls>>,
    /// The TLS of the gRPC port of the server API.
    pub(crate) grpc: Option<Arc<Tls>>,
}

/// New TLS states for the ports; they are checked and not in use yet.
pub(crate) struct PreparedTls(Vec<(Arc<Tls>, TlsState)>);

impl PortsTls {
    /// Loads the TLS configuration of every port. The second value is the renewal of certificates that must be ordered;
    /// None = there are none.
    ///
    /// # Errors
    /// [`TlsError`] says what can't be used.
    pub(crate) fn open(settings: &Settings) -> Result<(Self, Option<PendingRenewal>), TlsError> {
        let (http, tcp) = (&settings.http_server, &settings.tcp);
        let (acme, renewal) = http.tls_autocert.enabled.then(|| Acme::open(&http.tls_autocert)).transpose()?.unzip();
        let open = |section, of: &TlsSettings, protocols: &[&str]| Tls::open(section, of, acme.as_ref(), protocols);
        let outer =
            (http.tls.enabled || acme.is_some()).then(|| open("http_server.tls", &http.tls, &HTTP)).transpose()?;
        let inner = match (http.internal_tls.enabled, http.tls_external) {
            (true, _) => Some(Tls::open("http_server.internal_tls", &http.internal_tls.of_port(), None, &HTTP)?),
            (false, true) => None,
            (false, false) => outer.clone(),
        };
        let grpc = settings.grpc_api.enabled && settings.grpc_api.tls.enabled;
        let grpc = grpc.then(|| Tls::open("grpc_api.tls", &settings.grpc_api.tls.of_port(), None, &["h2"]));
        let lines = tcp.tls.enabled.then(|| open("tcp.tls", &tcp.tls, &[])).transpose()?;
        Ok((PortsTls { http: outer, lines, inner, grpc: grpc.transpose()? }, renewal))
    }

    /// The TLS of each port that has its own.
    pub(crate) fn all(&self) -> Vec<Arc<Tls>> {
        let is_own = |inner: &&Arc<Tls>| self.http.as_ref().is_none_or(|http| !Arc::ptr_eq(http, inner));
        let inner = self.inner.as_ref().filter(is_own);
        [self.http.as_ref(), self.lines.as_ref(), inner, self.grpc.as_ref()].into_iter().flatten().cloned().collect()
    }

    /// Loads other settings for the ports that use TLS.
    ///
    /// # Errors
    /// [`TlsError`] says what can't be used.
    pub(crate) fn prepare(&self, settings: &Settings) -> Result<PreparedTls, TlsError> {
        let http = &settings.http_server;
        let has_own_inner = http.internal_tls.enabled;
        let ports = [
            (&self.http, http.tls.clone()),
            (&self.lines, settings.tcp.tls.clone()),
            // Otherwise the internal port has the TLS of the port for clients.
            (if has_own_inner { &self.inner } else { &None }, http.internal_tls.of_port()),
            (&self.grpc, settings.grpc_api.tls.of_port()),
        ];
        let ports = ports.into_iter().filter_map(|(tls, of)| Some((Arc::clone(tls.as_ref()?), of)));
        ports.map(|(tls, of)| tls.prepare(&of).map(|state| (tls, state))).collect::<Result<_, _>>().map(PreparedTls)
    }
}

impl PreparedTls {
    /// Uses the new states for new connections from now on.
    pub(crate) fn adopt(self) {
        for (tls, state) in self.0 {
            tls.adopt(state);
        }
    }
}
