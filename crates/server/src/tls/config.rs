//! The TLS configuration of a port: its certificates, which are read again when the files change, and the user that a
//! client certificate names.

use std::fs;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, WebPkiClientVerifier};
use touchline_config::{ClientAuth, ClientUser, TlsSettings};
use touchline_lock::SharedLock;
use touchline_protocol::fact::is_name;
use x509_cert::der::Decode;

use super::acme::Acme;
use super::error::TlsError;
use super::files::{authorities, certificates, private_key, validity};

/// How often the watcher checks whether the files have changed.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The TLS of one listener.
#[derive(Debug)]
pub(crate) struct Tls {
    /// The section of the configuration, for errors and logs.
    section: &'static str,
    /// The source of the certificates if the section has no files; `None` = the section must have files.
    acme: Option<Arc<Acme>>,
    protocols: Vec<Vec<u8>>,
    state: SharedLock<TlsState>,
}

/// The settings of a listener's TLS and their configuration. A reload replaces them.
#[derive(Debug, Clone)]
pub(super) struct TlsState {
    settings: Arc<TlsSettings>,
    config: Arc<ServerConfig>,
    /// When the first certificate of the chain expires, in seconds since the Unix epoch; `None` = ACME renews it.
    expires_s: Option<u64>,
}

impl Tls {
    /// Loads the certificates of a section. If the section names none, they come from `acme`. ALPN offers `protocols`.
    ///
    /// # Errors
    /// [`TlsError`] says what can't be used.
    pub(crate) fn open(
        section: &'static str,
        settings: &TlsSettings,
        acme: Option<&Arc<Acme>>,
        protocols: &[&str],
    ) -> Result<Arc<Self>, TlsError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let acme = acme.cloned();
        let state = SharedLock::new(TlsState::load(section, settings, acme.as_deref(), &protocols)?);
        let tls = Arc::new(Tls { section, acme, protocols, state });
        let (watched, mut seen) = (Arc::downgrade(&tls), tls.state().stamps());
        // The thread ends when the last owner drops this. If the system refuses the thread, the files are read only
        // once.
        let _ = std::thread::Builder::new().name("certificates".into()).spawn(move || watch(&watched, &mut seen));
        Ok(tls)
    }

    /// Loads other settings of the section. [`Tls::adopt`] uses them for new connections.
    ///
    /// # Errors
    /// [`TlsError`] says what can't be used.
    pub(super) fn prepare(&self, settings: &TlsSettings) -> Result<TlsState, TlsError> {
        TlsState::load(self.section, settings, self.acme.as_deref(), &self.protocols)
    }

    /// Uses this state for new connections from now on.
    pub(super) fn adopt(&self, state: TlsState) {
        *self.state.write() = state;
    }

    fn state(&self) -> TlsState {
        self.state.read().clone()
    }

    /// The section, and when its first certificate expires, in seconds since the Unix epoch. None = ACME renews it.
    pub(crate) fn expiry(&self) -> Option<(&'static str, u64)> {
        self.state().expires_s.map(|expires_s| (self.section, expires_s))
    }

    /// The TLS configuration of new connections.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.state.read().config)
    }

    /// The TLS configuration for the handshake of an ACME `tls-alpn-01` challenge, after which the connection is
    /// closed. None = the handshake is an ordinary one.
    pub(crate) fn challenge_config(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        self.acme.as_ref()?.challenge_config(hello)
    }

    /// The user id that a client certificate names; None = there is no certificate, or the settings take no user from
    /// it.
    pub(crate) fn user(&self, certificates: Option<&[CertificateDer<'_>]>) -> Option<String> {
        user_of(self.state().settings.client_user, certificates?.first()?)
    }
}

impl TlsState {
    fn load(
        section: &str,
        settings: &TlsSettings,
        acme: Option<&Acme>,
        protocols: &[Vec<u8>],
    ) -> Result<Self, TlsError> {
        let acme = acme.filter(|_| !settings.has_files());
        let config = load(section, settings, acme, protocols).map_err(|error| error.of(section))?;
        let expires_s = match acme {
            None => Some(validity(section, &settings.cert_pem)?.1),
            Some(_) => None,
        };
        Ok(TlsState { settings: Arc::new(settings.clone()), config, expires_s })
    }

    /// The modification times and sizes of the files; None for each file that can't be read.
    fn stamps(&self) -> Vec<Option<(SystemTime, u64)>> {
        let settings = &self.settings;
        let stamp = |path: &String| fs::metadata(path).ok().and_then(|file| Some((file.modified().ok()?, file.len())));
        [&settings.cert_pem, &settings.key_pem, &settings.client_ca_pem].map(stamp).to_vec()
    }
}

/// Reloads the files when they change, until the last owner has dropped the configuration.
fn watch(tls: &Weak<Tls>, seen: &mut Vec<Option<(SystemTime, u64)>>) {
    loop {
        // real time: files change with the system's clock.
        std::thread::sleep(WATCH_INTERVAL);
        let Some(tls) = tls.upgrade() else { return };
        let known = tls.state();
        let stamps = known.stamps();
        if stamps == *seen {
            continue;
        }
        *seen = stamps;
        match tls.prepare(&known.settings) {
            Ok(state) => {
                let mut present = tls.state.write();
                // A reload of the settings may have been faster.
                if Arc::ptr_eq(&present.settings, &known.settings) {
                    *present = state;
                }
                drop(present);
                tracing::info!(section = tls.section, "certificates were read again");
            }
            // Files are often written one after the other, so they may be complete at the next check.
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "certificates have changed and can't be used; keeping the previous certificates"
                )
            }
        }
    }
}

/// Makes the verifier of client certificates, if the settings have authorities for them; None = there are none.
///
/// # Errors
/// [`TlsError`] says what can't be used.
pub(super) fn verifier(section: &str, settings: &TlsSettings) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
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

/// Makes the rustls configuration of a section.
///
/// # Errors
/// [`TlsError`] says what can't be used.
pub(super) fn load(
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
    // Tickets contain the state of sessions, so the server stores none.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
    Ok(Arc::new(config))
}

/// The user in a certificate's subject: the whole subject (RFC 4514), or its common name.
fn user_of(wanted: ClientUser, certificate: &[u8]) -> Option<String> {
    if wanted == ClientUser::None {
        return None;
    }
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    let subject = &certificate.tbs_certificate.subject;
    if wanted == ClientUser::Subject {
        return Some(subject.to_string()).filter(|subject| is_name(subject));
    }
    let parts = subject.0.iter().flat_map(|part| part.0.iter());
    let name = parts
        .filter(|part| part.oid.to_string() == "2.5.4.3")
        .find_map(|part| std::str::from_utf8(part.value.value()).ok());
    name.filter(|name| is_name(name)).map(str::to_owned)
}
