//! Certificates from an ACME authority (RFC 8555): ordered, proved, kept, and renewed when two thirds of their life are
//! over.

mod cache;
mod certificate;
mod http;
mod order;
mod renewal;
mod resolver;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use instant_acme::ExternalAccountKey;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use tokio::sync::oneshot;

use self::cache::Cache;
use self::renewal::Renewal;
use self::resolver::CertResolver;
use super::TlsError;
use crate::settings::AutocertSettings;

/// Certificates that are to be ordered and renewed once the node serves.
pub(crate) struct PendingRenewal {
    keeper: Renewal,
    /// Where proofs by HTTP are asked for.
    proofs: Option<TcpListener>,
    held: Arc<CertResolver>,
    ended: oneshot::Receiver<Infallible>,
}

impl PendingRenewal {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses it.
    pub(crate) fn start(self) -> io::Result<()> {
        let PendingRenewal { keeper, proofs, held, ended } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = move || {
            runtime.block_on(async move {
                if let Some(listener) = proofs {
                    tokio::spawn(http::serve(listener, held));
                }
                tokio::select! { _ = ended => (), never = keeper.run() => match never {} }
            });
        };
        std::thread::Builder::new().name("certificates".into()).spawn(work).map(drop)
    }
}

/// The certificates of this node. Dropped, they are renewed no more.
#[derive(Debug)]
pub(crate) struct Acme {
    held: Arc<CertResolver>,
    _alive: oneshot::Sender<Infallible>,
}

impl Acme {
    /// Serves the certificates that are kept; the others are ordered when the second is started.
    ///
    /// # Errors
    /// When a setting can't be used, the directory can't be made, or the address for proofs by HTTP can't be bound.
    pub(crate) fn open(settings: &AutocertSettings) -> Result<(Arc<Self>, PendingRenewal), TlsError> {
        let (first, binding) = checked(settings)?;
        let proofs = settings.http.then(|| listen(settings)).transpose()?;
        let cache = Cache::open(settings).map_err(|(path, source)| TlsError::Cache { path, source })?;
        let fallback = if settings.server_name.is_empty() { first } else { &settings.server_name };
        let held = Arc::new(CertResolver::new(fallback.to_ascii_lowercase()));
        let keeper = Renewal::new(settings.clone(), binding, cache, Arc::clone(&held));
        let (alive, ended) = oneshot::channel();
        let keeping = PendingRenewal { keeper, proofs, held: Arc::clone(&held), ended };
        Ok((Arc::new(Acme { held, _alive: alive }), keeping))
    }

    /// What ordinary handshakes are answered with.
    pub(super) fn certificates(&self) -> Arc<dyn ResolvesServerCert> {
        Arc::clone(&self.held) as Arc<dyn ResolvesServerCert>
    }

    /// What the handshake of an authority is answered with that asks for a proof.
    pub(super) fn proof(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        self.held.proof(hello)
    }
}

/// Whether certificates could be ordered with these settings. Nothing is made, bound or asked.
///
/// # Errors
/// When a setting can't be used.
pub(super) fn check(settings: &AutocertSettings) -> Result<(), TlsError> {
    checked(settings)?;
    super::authorities("http_server.tls_autocert.ca_pem", &settings.ca_pem)?;
    if settings.http { address(settings).map(drop) } else { Ok(()) }
}

/// The first of the names, and the account.
fn checked(settings: &AutocertSettings) -> Result<(&String, Option<ExternalAccountKey>), TlsError> {
    let first = settings.host_whitelist.first().ok_or(TlsError::NoHosts)?;
    if let Some(host) = settings.unusable_host() {
        return Err(TlsError::Host { host: host.to_owned() });
    }
    Ok((first, binding(settings)?))
}

/// The account by which the authority knows its customer (RFC 8555, section 7.3.4).
fn binding(settings: &AutocertSettings) -> Result<Option<ExternalAccountKey>, TlsError> {
    if settings.eab_kid.is_empty() {
        return Ok(None);
    }
    let key = URL_SAFE_NO_PAD.decode(settings.eab_hmac_key.trim_end_matches('=')).map_err(|_| TlsError::Binding)?;
    Ok(Some(ExternalAccountKey::new(settings.eab_kid.clone(), &key)))
}

fn listen(settings: &AutocertSettings) -> Result<TcpListener, TlsError> {
    let of = |source| TlsError::Proofs { address: settings.http_addr.clone(), source };
    let listener = TcpListener::bind(address(settings)?).map_err(of)?;
    listener.set_nonblocking(true).map_err(of)?;
    Ok(listener)
}

/// Where proofs by HTTP are answered.
fn address(settings: &AutocertSettings) -> Result<SocketAddr, TlsError> {
    let of = |error| TlsError::Proofs {
        address: settings.http_addr.clone(),
        source: io::Error::new(io::ErrorKind::InvalidInput, error),
    };
    http::address(&settings.http_addr).map_err(of)
}
