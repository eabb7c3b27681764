//! Why TLS can't be served.

use std::io;
use std::path::PathBuf;

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
    pub(super) fn of(self, section: &str) -> Self {
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
