//! Certificates and keys in the values of settings.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::der::Decode;

use super::error::TlsError;
use super::pem;

/// Reads the certificate authorities in the value of a setting. An empty value has none.
///
/// # Errors
/// [`TlsError`] says what can't be used.
pub(crate) fn authorities(key: &str, value: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if !value.is_empty() {
        for authority in certificates(key, value)? {
            roots.add(authority).map_err(|error| TlsError::from(error).of(key))?;
        }
    }
    Ok(roots)
}

/// Reads the certificate chain and the key by which other servers know this node.
///
/// # Errors
/// [`TlsError::File`], and [`TlsError::Content`] when one of them is missing.
pub(crate) fn client_certificate(
    section: &str,
    cert_pem: &str,
    key_pem: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = certificates(&format!("{section}.cert_pem"), cert_pem)?;
    Ok((chain, private_key(&format!("{section}.key_pem"), key_pem)?))
}

/// Reads the private key in the value of a setting.
///
/// # Errors
/// [`TlsError::File`], and [`TlsError::Content`] when there is none.
pub(super) fn private_key(key: &str, value: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&pem::read(key, value)?).map_err(|_| content(key, value, "private key"))
}

/// Reads the certificates in the value of a setting.
///
/// # Errors
/// [`TlsError::File`], and [`TlsError::Content`] when there is none.
pub(super) fn certificates(key: &str, value: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_slice_iter(&pem::read(key, value)?).collect::<Result<Vec<_>, _>>();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| content(key, value, "certificate"))
}

/// The beginning and the end of the time in which all certificates of a chain are valid, in Unix seconds.
pub(crate) type Validity = (u64, u64);

/// Reads the time in which all certificates of a value are valid.
///
/// # Errors
/// [`TlsError::File`], and [`TlsError::Content`] when one cannot be read.
pub(super) fn validity(section: &str, cert_pem: &str) -> Result<Validity, TlsError> {
    let key = format!("{section}.cert_pem");
    let chain = certificates(&key, cert_pem)?;
    let bounds = chain.iter().map(|der| {
        let validity = x509_cert::Certificate::from_der(der).ok()?.tbs_certificate.validity;
        Some((validity.not_before.to_unix_duration().as_secs(), validity.not_after.to_unix_duration().as_secs()))
    });
    let missing = || TlsError::Content { key, path: None, what: "certificate" };
    let bounds = bounds.collect::<Option<Vec<_>>>().ok_or_else(missing)?;
    Ok(bounds.into_iter().fold((0, u64::MAX), |all, one| (all.0.max(one.0), all.1.min(one.1))))
}

fn content(key: &str, value: &str, what: &'static str) -> TlsError {
    TlsError::Content { key: key.to_owned(), path: pem::shown(value), what }
}
