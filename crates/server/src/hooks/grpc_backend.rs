//! A backend that is asked over gRPC: its settings, checked and ready for use.

use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderMap;
use tonic::Code;
use touchline_engine::hook::ProxyGrpcSettings;

use crate::outbound::GrpcClient;
use crate::tls::TlsError;

/// The timeout of a trial connection.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// The method that a trial calls (gRPC health checking protocol), and the largest answer in bytes.
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const HEALTH_ANSWER_SIZE: usize = 4_096;

/// A backend that is asked over gRPC.
pub(super) struct GrpcBackend {
    pub(super) client: GrpcClient,
    /// The metadata that every call sends.
    pub(super) metadata: HeaderMap,
    target: String,
}

impl GrpcBackend {
    /// Makes a backend at `target`, a host and a port. None = `target` is not valid.
    ///
    /// # Errors
    /// When a certificate, a key or an authority in the settings cannot be used.
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

    /// Calls a method that changes nothing, the check of gRPC's health service. A backend without this service counts
    /// as reached too.
    ///
    /// Why the backend cannot be reached.
    /// Why it cannot be reached.
    pub(super) async fn try_connection(&self) -> Result<String, String> {
        let called = self.client.call::<(), ()>(HEALTH_CHECK, (), HeaderMap::new(), TRIAL_TIMEOUT, HEALTH_ANSWER_SIZE);
        // real time: a trial before a node runs.
        match tokio::time::timeout(TRIAL_TIMEOUT, called).await {
            Ok(Ok(())) => Ok("answers".to_owned()),
            Ok(Err(error)) => match error.code {
                Some(Code::Unavailable | Code::DeadlineExceeded) | None => Err(error.text),
                Some(code) => Ok(format!("answers (health check: {code})")),
            },
            Err(_) => Err(format!("no answer within {} s", TRIAL_TIMEOUT.as_secs())),
        }
    }

    /// Returns the address, for logs.
    pub(super) fn shown_address(&self) -> String {
        format!("grpc://{}", self.target)
    }
}
