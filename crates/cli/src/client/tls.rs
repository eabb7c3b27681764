//! TLS to a server: which certificates are trusted, and the texts for certificates that are not.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Error, Result, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::url::ServerUrl;

/// A configuration that trusts the CA certificates of the system (or of `SSL_CERT_FILE` and `SSL_CERT_DIR`), and in
/// addition those of a PEM file.
///
/// # Errors
/// When the file cannot be read or contains no certificate.
pub(crate) fn client_config(ca: Option<&Path>) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    // Certificates of the system that cannot be parsed are ignored.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        let fault = || format!("--ca {}: cannot be read as certificates in PEM", path.display());
        let certificates: Vec<CertificateDer<'_>> =
            CertificateDer::pem_file_iter(path).and_then(Iterator::collect).with_context(fault)?;
        if certificates.is_empty() {
            bail!("--ca {}: has no certificate in PEM", path.display());
        }
        for certificate in certificates {
            roots.add(certificate).with_context(fault)?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A configuration that accepts any certificate. It is for probes on this machine, which send no secrets and connect to
/// an address that no certificate contains.
///
/// # Errors
/// When the library refuses its own defaults.
pub(crate) fn untrusting_config() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = Arc::new(ProbedCertificate(provider.signature_verification_algorithms));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Accepts any certificate whose key has signed the handshake.
#[derive(Debug)]
struct ProbedCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for ProbedCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// The name that the server's certificate must contain.
///
/// # Errors
/// When the host is neither a DNS name nor an address.
pub(crate) fn server_name(url: &ServerUrl) -> Result<ServerName<'static>> {
    ServerName::try_from(url.host.clone()).with_context(|| format!("{:?} is not a valid host name", url.host))
}

/// The server does not use TLS, or its certificate is not trusted. Another try does not help.
#[derive(Debug)]
pub(crate) struct TlsRefusal(String);

impl fmt::Display for TlsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsRefusal {}

/// Explains why a TLS handshake failed.
pub(crate) fn explain(error: io::Error, url: &ServerUrl) -> Error {
    let authority = url.authority();
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let reason = match cause {
        Some(rustls::Error::InvalidCertificate(reason)) => reason,
        Some(rustls::Error::InvalidMessage(_)) => {
            let text = format!("{authority} does not use TLS: use a URL that begins with http:// (for watch: ws://)");
            return Error::new(TlsRefusal(text));
        }
        _ => return Error::new(error).context(format!("the TLS handshake with {authority} failed")),
    };
    Error::new(TlsRefusal(match reason {
        CertificateError::UnknownIssuer => format!(
            "the certificate of {authority} is not trusted, because this machine does not know its authority: \
             add the authority's certificate with --ca FILE"
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
            "the certificate of {authority} is for another host ({reason}): use a URL with a host that it contains \
             (--ca FILE does not help)"
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate of {authority} has expired ({reason}; --ca FILE does not help)")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => format!(
            "the certificate of {authority} is not valid yet ({reason}; --ca FILE does not help): compare the clocks"
        ),
        reason => format!(
            "the certificate of {authority} is not trusted ({reason}); \
             add the certificate of its authority with --ca FILE"
        ),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_read_from_pem() {
        let directory = std::env::temp_dir();
        let file = |name: &str| directory.join(format!("touchline-tls-{}-{name}.pem", std::process::id()));
        let (good, empty, broken) = (file("good"), file("empty"), file("broken"));
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate is made");
        let pem = key.cert.pem();
        for (path, text) in [(&good, pem.as_str()), (&empty, "nothing"), (&broken, &pem[..pem.len() / 2])] {
            std::fs::write(path, text).expect("the temporary directory is writable");
        }
        assert!(client_config(Some(&good)).is_ok());
        let said = |path: &Path| format!("{:#}", client_config(Some(path)).expect_err("it is refused"));
        assert!(said(&empty).contains("has no certificate in PEM"), "{}", said(&empty));
        assert!(said(&broken).contains("cannot be read as certificates"), "{}", said(&broken));
        assert!(said(Path::new("/no/such.pem")).contains("--ca /no/such.pem"), "it names the file");
        for path in [good, empty, broken] {
            let _ = std::fs::remove_file(path);
        }
    }
}
