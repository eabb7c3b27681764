//! TLS: certificates from files (read again when the files change), from the settings themselves, or from an ACME
//! authority; and the user that a client certificate names.

mod acme;
mod pem;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use touchline_config::{ClientAuth, ClientUser, ClusterSettings, Settings, TlsSettings, is_inline_pem};
use touchline_protocol::data::is_plain_text;
use x509_cert::der::Decode;

pub(crate) use self::acme::{Acme, PendingRenewal};
pub use self::pem::read_pem;

/// How often the watcher checks whether the files have changed.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Why TLS can't be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{key}: {} can't be read", named(.path))]
    File {
        /// The setting.
        key: String,
        /// The file, if its name may be shown: a value that does not look like a path may be a malformed secret.
        path: Option<PathBuf>,
        /// The system's reason.
        source: io::Error,
    },
    /// A setting, or its file, does not hold what it should.
    #[error("{key}: {} holds no {what} in PEM", named(.path))]
    Content {
        /// The setting.
        key: String,
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// What was expected.
        what: &'static str,
    },
    /// A setting must be the path of a file, and holds PEM text instead.
    #[error("{key}: expected the path of a file, found what should be in it")]
    NoPath {
        /// The setting.
        key: String,
    },
    /// The certificate, key or authority that a section names can't be used.
    #[error("{section}: {source}")]
    Section {
        /// The section, or a key of it.
        section: String,
        /// The reason.
        source: Box<TlsError>,
    },
    /// Certificate and key don't fit, or are of a kind that is not supported.
    #[error("the certificate or its key can't be used")]
    Certificate(#[from] rustls::Error),
    /// The authorities of clients can't be used.
    #[error("the authorities of client certificates can't be used")]
    Authorities(#[from] rustls::server::VerifierBuilderError),
    /// Certificates are to be ordered, and no host name is given.
    #[error("http_server.tls_autocert.host_whitelist: empty, and certificates are ordered for the names in it")]
    NoHosts,
    /// Certificates are to be ordered for a text that is not a host name.
    #[error(
        "http_server.tls_autocert.host_whitelist: {host:?} is not a host name \
         (a wildcard can't be proved by TLS or HTTP)"
    )]
    Host {
        /// What was given.
        host: String,
    },
    /// The secret of an external account is malformed.
    #[error("http_server.tls_autocert.eab_hmac_key: not URL-safe base64")]
    Binding,
    /// The directory of certificates can't be made.
    #[error("http_server.tls_autocert.cache_dir: {path} can't be made")]
    Cache {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// `http-01` challenges can't be served.
    #[error("http_server.tls_autocert.http_addr: can't listen on {address:?}")]
    Proofs {
        /// The address.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl TlsError {
    /// The same, with its section, if it does not name its key already.
    fn of(self, section: &str) -> Self {
        match self {
            TlsError::Certificate(_) | TlsError::Authorities(_) => {
                TlsError::Section { section: section.to_owned(), source: Box::new(self) }
            }
            named => named,
        }
    }
}

/// The path as an error shows it; a stand-in text when the path is not shown.
fn named(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "the value".to_owned(), |path| path.display().to_string())
}

/// The TLS of one listener.
#[derive(Debug)]
pub(crate) struct Tls {
    /// The configuration section of its settings, for errors and logs.
    section: &'static str,
    settings: TlsSettings,
    /// The source of certificates that are not loaded from files. None = the section has files.
    acme: Option<Arc<Acme>>,
    protocols: Vec<Vec<u8>>,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Loads the certificates of a section. If the section names none, they come from `acme`. `protocols` are offered
    /// by ALPN.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub(crate) fn open(
        section: &'static str,
        settings: &TlsSettings,
        acme: Option<&Arc<Acme>>,
        protocols: &[&str],
    ) -> Result<Arc<Self>, TlsError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let acme = acme.filter(|_| !settings.has_files()).cloned();
        let config =
            RwLock::new(load(section, settings, acme.as_deref(), &protocols).map_err(|error| error.of(section))?);
        let tls = Arc::new(Tls { section, settings: settings.clone(), acme, protocols, config });
        let (watched, mut seen) = (Arc::downgrade(&tls), tls.stamps());
        // The thread ends when the last owner drops this. If the system refuses it, the files are read only once.
        let _ = std::thread::Builder::new().name("certificates".into()).spawn(move || watch(&watched, &mut seen));
        Ok(tls)
    }

    /// The TLS configuration of new connections.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The TLS configuration for an ACME `tls-alpn-01` challenge handshake; the connection is closed after it. None =
    /// the handshake is an ordinary one.
    pub(crate) fn challenge_config(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        self.acme.as_ref()?.challenge_config(hello)
    }

    /// The user id that a client certificate names. None = no certificate, or the settings take no user from it.
    pub(crate) fn user(&self, certificates: Option<&[CertificateDer<'_>]>) -> Option<String> {
        user_of(self.settings.client_user, certificates?.first()?)
    }

    /// The modification times and sizes of the files; None for each that can't be read.
    fn stamps(&self) -> Vec<Option<(SystemTime, u64)>> {
        let settings = &self.settings;
        let stamp = |path: &String| fs::metadata(path).ok().and_then(|file| Some((file.modified().ok()?, file.len())));
        [&settings.cert_pem, &settings.key_pem, &settings.client_ca_pem].map(stamp).to_vec()
    }
}

/// Reloads the files when they change, until the last owner has dropped the configuration.
fn watch(tls: &Weak<Tls>, seen: &mut Vec<Option<(SystemTime, u64)>>) {
    loop {
        std::thread::sleep(WATCH_INTERVAL);
        let Some(tls) = tls.upgrade() else { return };
        let stamps = tls.stamps();
        if stamps == *seen {
            continue;
        }
        *seen = stamps;
        match load(tls.section, &tls.settings, tls.acme.as_deref(), &tls.protocols) {
            Ok(config) => {
                *tls.config.write().unwrap_or_else(PoisonError::into_inner) = config;
                tracing::info!(section = tls.section, "certificates were read again");
            }
            // Files are often written one after the other: at the next check they may be complete.
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "certificates have changed and can't be used; keeping the previous certificates"
                )
            }
        }
    }
}

/// Checks the certificates of every port that speaks TLS, and the settings of ACME. Returns all faults.
pub(crate) fn check(settings: &Settings) -> Vec<TlsError> {
    let http = &settings.http_server;
    let internal = http.internal_tls.of_port();
    let mut faults = Vec::new();
    let has_acme = http.tls_autocert.enabled;
    if has_acme {
        faults.extend(acme::check(&http.tls_autocert).err());
    }
    let sections = [
        ("http_server.tls", &http.tls, http.tls.enabled || has_acme, has_acme),
        ("tcp.tls", &settings.tcp.tls, settings.tcp.tls.enabled, has_acme),
        ("http_server.internal_tls", &internal, internal.enabled, false),
    ];
    for (section, tls, _, has_acme) in sections.into_iter().filter(|(_, _, is_on, _)| *is_on) {
        let needs_files = tls.has_files() || !has_acme;
        let loaded =
            if needs_files { load(section, tls, None, &[]).map(drop) } else { verifier(section, tls).map(drop) };
        faults.extend(loaded.err().map(|error| error.of(section)));
    }
    faults
}

/// Checks the TLS files of the connection to NATS. They must be paths, because they are read at every connect.
///
/// # Errors
/// See [`TlsError`].
pub(crate) fn check_nats(cluster: &ClusterSettings) -> Result<(), TlsError> {
    let (certificate, key) = (&cluster.nats_tls_cert, &cluster.nats_tls_key);
    for (name, value) in [("nats_tls_ca", &cluster.nats_tls_ca), ("nats_tls_cert", certificate), ("nats_tls_key", key)]
    {
        if is_inline_pem(value) {
            return Err(TlsError::NoPath { key: format!("cluster.{name}") });
        }
    }
    authorities("cluster.nats_tls_ca", &cluster.nats_tls_ca)?;
    if certificate.is_empty() && key.is_empty() {
        return Ok(());
    }
    let chain = certificates("cluster.nats_tls_cert", certificate)?;
    let key = private_key("cluster.nats_tls_key", key)?;
    let fits = rustls::ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain, key);
    fits.map(drop).map_err(|error| TlsError::from(error).of("cluster.nats_tls_cert"))
}

/// The certificate authorities in the value of a setting; none in an empty one.
///
/// # Errors
/// See [`TlsError`].
pub(crate) fn authorities(key: &str, value: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if !value.is_empty() {
        for authority in certificates(key, value)? {
            roots.add(authority).map_err(|error| TlsError::from(error).of(key))?;
        }
    }
    Ok(roots)
}

/// Asks clients for certificates, if there are authorities for them.
fn verifier(section: &str, settings: &TlsSettings) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    if settings.client_ca_pem.is_empty() {
        return Ok(None);
    }
    let roots = authorities(&format!("{section}.client_ca_pem"), &settings.client_ca_pem)?;
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots));
    Ok(Some(match settings.client_auth {
        ClientAuth::Require => verifier.build()?,
        ClientAuth::Request => verifier.allow_unauthenticated().build()?,
    }))
}

fn load(
    section: &str,
    settings: &TlsSettings,
    acme: Option<&Acme>,
    protocols: &[Vec<u8>],
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder();
    let builder = match verifier(section, settings)? {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = match acme {
        Some(acme) => builder.with_cert_resolver(acme.certificates()),
        None => {
            let chain = certificates(&format!("{section}.cert_pem"), &settings.cert_pem)?;
            builder.with_single_cert(chain, private_key(&format!("{section}.key_pem"), &settings.key_pem)?)?
        }
    };
    config.alpn_protocols = protocols.to_vec();
    // Tickets hold the state of sessions, so the server holds none.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    Ok(Arc::new(config))
}

fn private_key(key: &str, value: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&pem::read(key, value)?).map_err(|_| content(key, value, "private key"))
}

/// The certificates that the value of a setting stands for.
///
/// # Errors
/// [`TlsError::File`], and [`TlsError::Content`] when there is none.
fn certificates(key: &str, value: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(&pem::read(key, value)?).collect::<Result<Vec<_>, _>>();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| content(key, value, "certificate"))
}

fn content(key: &str, value: &str, what: &'static str) -> TlsError {
    TlsError::Content { key: key.to_owned(), path: pem::shown(value), what }
}

/// The user in a certificate's subject: all of it (RFC 4514), or its common name.
fn user_of(wanted: ClientUser, certificate: &[u8]) -> Option<String> {
    if wanted == ClientUser::None {
        return None;
    }
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    let subject = &certificate.tbs_certificate.subject;
    let is_user = |name: &str| !name.is_empty() && is_plain_text(name);
    if wanted == ClientUser::Subject {
        return Some(subject.to_string()).filter(|subject| is_user(subject));
    }
    let parts = subject.0.iter().flat_map(|part| part.0.iter());
    let name = parts
        .filter(|part| part.oid.to_string() == "2.5.4.3")
        .find_map(|part| std::str::from_utf8(part.value.value()).ok());
    name.filter(|name| is_user(name)).map(str::to_owned)
}
