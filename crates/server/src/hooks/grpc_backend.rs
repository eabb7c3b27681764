//! A backend that is asked over gRPC: its settings, ready for use.

use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderMap;
use tokio::net::TcpStream;
use touchline_engine::hook::ProxyGrpcSettings;

use crate::outbound::GrpcClient;
use crate::tls::TlsError;

/// Time to connect, where that is tried.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// A backend that is asked over gRPC.
pub(super) struct GrpcBackend {
    pub(super) client: GrpcClient,
    /// What every call has.
    pub(super) metadata: HeaderMap,
    target: String,
}

impl GrpcBackend {
    /// A backend at `target`, a host and a port. None = that is none.
    ///
    /// # Errors
    /// When a certificate, a key or an authority of the settings cannot be used.
    pub(super) fn new(
        section: &str,
        target: &str,
        settings: &ProxyGrpcSettings,
        metadata: HeaderMap,
    ) -> Result<Option<Self>, TlsError> {
        let scheme = if settings.tls.enabled { "https" } else { "http" };
        let origin: Option<Uri> = format!("{scheme}://{target}").parse().ok();
        let Some(origin) = origin.filter(|origin| origin.port().is_some() && origin.path() == "/") else {
            return Ok(None);
        };
        let client = GrpcClient::new(origin, &format!("{section}.grpc.tls"), &settings.tls, settings.compression)?;
        Ok(Some(GrpcBackend { client, metadata, target: target.to_owned() }))
    }

    /// Connects once, without TLS.
    ///
    /// # Errors
    /// Why it cannot be reached.
    pub(super) async fn try_connection(&self) -> Result<String, String> {
        match tokio::time::timeout(TRIAL_TIMEOUT, TcpStream::connect(&self.target)).await {
            Ok(Ok(_)) => Ok("accepts connections".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", TRIAL_TIMEOUT.as_secs())),
        }
    }

    /// The address, for logs.
    pub(super) fn shown_address(&self) -> String {
        format!("grpc://{}", self.target)
    }
}
