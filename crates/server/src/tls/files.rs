//! Certificates and keys in the values of settings.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::TlsError;
use super::pem;

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

/// The private key that the value of a setting stands for.
///
/// # Errors
/// [`TlsError::File`], and [`TlsError::Content`] when there is none.
pub(super) fn private_key(key: &str, value: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&pem::read(key, value)?).map_err(|_| content(key, value, "private key"))
}

/// The certificates that the value of a setting stands for.
///
/// # Errors
/// [`TlsError::File`], and [`TlsError::Content`] when there is none.
pub(super) fn certificates(key: &str, value: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(&pem::read(key, value)?).collect::<Result<Vec<_>, _>>();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| content(key, value, "certificate"))
}

fn content(key: &str, value: &str, what: &'static str) -> TlsError {
    TlsError::Content { key: key.to_owned(), path: pem::shown(value), what }
}
