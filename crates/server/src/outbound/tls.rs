//! Which servers a client trusts, and which certificate it shows them.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use touchline_config::ClientTlsSettings;

use crate::tls::{TlsError, authorities, client_certificate};

/// Makes the TLS configuration of a client, without ALPN.
///
/// # Errors
/// When a certificate, a key or an authority of the settings cannot be used.
pub(crate) fn config(section: &str, settings: &ClientTlsSettings) -> Result<ClientConfig, TlsError> {
    let is_own = settings.enabled;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = if is_own && settings.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else if is_own && !settings.server_ca_pem.is_empty() {
        builder.with_root_certificates(authorities(&format!("{section}.server_ca_pem"), &settings.server_ca_pem)?)
    } else {
        builder.with_root_certificates(system_authorities())
    };
    if is_own && !settings.cert_pem.is_empty() {
        let (chain, key) = client_certificate(section, &settings.cert_pem, &settings.key_pem)?;
        Ok(builder.with_client_auth_cert(chain, key)?)
    } else {
        Ok(builder.with_no_client_auth())
    }
}

/// The authorities that the system trusts. A system without a file of them trusts none: then TLS fails with an error
/// that says so.
fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Trusts every server (`insecure_skip_verify`). The signatures of the handshake are still checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
