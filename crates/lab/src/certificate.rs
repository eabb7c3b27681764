//! The certificate of servers and floors that the lab starts. Each server gets a new certificate, which only the lab's
//! clients accept.

use std::sync::Arc;

use anyhow::Result;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};

/// A certificate on P-256, and its key.
pub(crate) struct SelfSignedCertificate(CertifiedKey<KeyPair>);

impl SelfSignedCertificate {
    pub(crate) fn make() -> Result<Self> {
        Ok(SelfSignedCertificate(generate_simple_self_signed(["localhost".to_owned()])?))
    }

    /// The certificate as a server's configuration has it.
    pub(crate) fn settings(&self) -> Value {
        json!({"enabled": true, "cert_pem": self.0.cert.pem(), "key_pem": self.0.signing_key.serialize_pem()})
    }

    /// The TLS configuration of the floor. It uses the server's library, so that both choose the same cipher for the
    /// same client.
    pub(crate) fn sessions(&self) -> Result<Arc<ServerConfig>> {
        let key = PrivateKeyDer::try_from(self.0.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let chain = vec![self.0.cert.der().clone()];
        Ok(Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?))
    }
}
