//! Certificates from an ACME authority (RFC 8555). The node orders them, answers the authority's challenges, stores
//! them, and renews them when two thirds of their lifetime are over.

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
use touchline_config::AutocertSettings;

use self::cache::Cache;
use self::renewal::Renewal;
use self::resolver::CertResolver;
use super::error::TlsError;
use super::files::authorities;

/// The renewal task before its thread has started: it orders and renews certificates once the node serves.
pub(crate) struct PendingRenewal {
    renewal: Renewal,
    /// The listener for `http-01` challenges; None = the HTTP port answers challenges by TLS.
    challenges: Option<TcpListener>,
    resolver: Arc<CertResolver>,
    ended: oneshot::Receiver<Infallible>,
}

impl PendingRenewal {
    /// Starts the renewal thread.
    ///
    /// # Errors
    /// When the system refuses to start a thread.
    pub(crate) fn start(self) -> io::Result<()> {
        let PendingRenewal { renewal, challenges, resolver, ended } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = move || {
            runtime.block_on(async move {
                if let Some(listener) = challenges {
                    tokio::spawn(http::serve(listener, resolver));
                }
                tokio::select! { _ = ended => (), never = renewal.run() => match never {} }
            });
        };
        std::thread::Builder::new().name("certificates".into()).spawn(work).map(drop)
    }
}

/// The ACME certificates of this node. When this is dropped, the renewal thread ends.
#[derive(Debug)]
pub(crate) struct Acme {
    resolver: Arc<CertResolver>,
    _alive: oneshot::Sender<Infallible>,
}

impl Acme {
    /// Serves the stored certificates. The returned [`PendingRenewal`] orders the missing ones once it is started.
    ///
    /// # Errors
    /// When a setting can't be used, the directory can't be made, or the address for `http-01` can't be bound.
    pub(crate) fn open(settings: &AutocertSettings) -> Result<(Arc<Self>, PendingRenewal), TlsError> {
        let (first, binding) = checked(settings)?;
        let challenges = settings.http.then(|| listen(settings)).transpose()?;
        let cache = Cache::open(settings).map_err(|(path, source)| TlsError::Cache { path, source })?;
        let fallback = if settings.server_name.is_empty() { first } else { &settings.server_name };
        let resolver = Arc::new(CertResolver::new(fallback.to_ascii_lowercase()));
        let renewal = Renewal::new(settings.clone(), binding, cache, Arc::clone(&resolver));
        let (alive, ended) = oneshot::channel();
        let pending = PendingRenewal { renewal, challenges, resolver: Arc::clone(&resolver), ended };
        Ok((Arc::new(Acme { resolver, _alive: alive }), pending))
    }

    /// The resolver that chooses the certificate of an ordinary handshake.
    pub(super) fn certificates(&self) -> Arc<dyn ResolvesServerCert> {
        Arc::clone(&self.resolver) as Arc<dyn ResolvesServerCert>
    }

    /// The TLS configuration for the handshake of a `tls-alpn-01` challenge; None = the handshake is an ordinary one.
    pub(super) fn challenge_config(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        self.resolver.challenge_config(hello)
    }
}

/// Checks whether certificates could be ordered with these settings. Creates no file, binds no port and sends nothing.
///
/// # Errors
/// When a setting can't be used.
pub(super) fn check(settings: &AutocertSettings) -> Result<(), TlsError> {
    checked(settings)?;
    authorities("http_server.tls_autocert.ca_pem", &settings.ca_pem)?;
    if settings.http { address(settings).map(drop) } else { Ok(()) }
}

/// The first host name, and the external account; None = the settings name no account.
fn checked(settings: &AutocertSettings) -> Result<(&String, Option<ExternalAccountKey>), TlsError> {
    let first = settings.host_whitelist.first().ok_or(TlsError::NoHosts)?;
    if let Some(host) = settings.unusable_host() {
        return Err(TlsError::Host { host: host.to_owned() });
    }
    Ok((first, binding(settings)?))
}

/// The external account binding (RFC 8555, section 7.3.4); None = the settings have no key id.
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

/// The address on which `http-01` challenges are answered.
fn address(settings: &AutocertSettings) -> Result<SocketAddr, TlsError> {
    let of = |error| TlsError::Proofs {
        address: settings.http_addr.clone(),
        source: io::Error::new(io::ErrorKind::InvalidInput, error),
    };
    http::address(&settings.http_addr).map_err(of)
}
