//! Why TLS can't be served.

use std::io;
use std::path::PathBuf;

/// Why TLS can't be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{key}: {} can't be read", named(.path))]
    File {
        /// The configuration key of the file.
        key: String,
        /// The path of the file; None = it is not shown, because a value that does not look like a path may be a
        /// malformed secret.
        path: Option<PathBuf>,
        /// The system's reason.
        source: io::Error,
    },
    /// A setting, or its file, does not contain what it should.
    #[error("{key}: {} holds no {what} in PEM", named(.path))]
    Content {
        /// The configuration key of the setting.
        key: String,
        /// The path of the file; None = there is none, or it is not shown.
        path: Option<PathBuf>,
        /// What the setting should contain.
        what: &'static str,
    },
    /// A setting must be the path of a file, but contains PEM text.
    #[error("{key}: expected the path of a file, found the content of the file")]
    NoPath {
        /// The configuration key of the setting.
        key: String,
    },
    /// The certificate, key or authority that a section names can't be used.
    #[error("{section}: {source}")]
    Section {
        /// The section, or a configuration key in it.
        section: String,
        /// Why it can't be used.
        source: Box<TlsError>,
    },
    /// The certificate and the key don't match, or are of an unsupported kind.
    #[error("the certificate or its key can't be used")]
    Certificate(#[from] rustls::Error),
    /// The certificate authorities for clients can't be used.
    #[error("the authorities of client certificates can't be used")]
    Authorities(#[from] rustls::server::VerifierBuilderError),
    /// Certificates should be ordered, but no host name is given.
    #[error("http_server.tls_autocert.host_whitelist: empty, but certificates are ordered for the names in it")]
    NoHosts,
    /// Certificates should be ordered for a text that is not a host name.
    #[error(
        "http_server.tls_autocert.host_whitelist: {host:?} is not a host name \
         (a wildcard can't be proved by TLS or HTTP)"
    )]
    Host {
        /// The text that was given.
        host: String,
    },
    /// The secret of an external account is malformed.
    #[error("http_server.tls_autocert.eab_hmac_key: not URL-safe base64")]
    Binding,
    /// The directory of certificates can't be created.
    #[error("http_server.tls_autocert.cache_dir: {path} can't be created")]
    Cache {
        /// The path of the directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The node can't listen for `http-01` challenges.
    #[error("http_server.tls_autocert.http_addr: can't listen on {address:?}")]
    Proofs {
        /// The address of the challenges.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl TlsError {
    /// Adds the section to the error, unless the error already names its key.
    pub(super) fn of(self, section: &str) -> Self {
        match self {
            TlsError::Certificate(_) | TlsError::Authorities(_) => {
                TlsError::Section { section: section.to_owned(), source: Box::new(self) }
            }
            named => named,
        }
    }
}

/// The path as an error shows it; a stand-in text if the path is not shown.
fn named(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "the value".to_owned(), |path| path.display().to_string())
}
