//! TLS of ports, and where its certificates come from.

use rustls::pki_types::DnsName;
use serde::Deserialize;

/// TLS of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSettings {
    /// Whether the port speaks TLS, and nothing else.
    pub enabled: bool,
    /// Path of the certificate and those above it, in PEM. The files of this section are read again when they change.
    pub cert_pem: String,
    /// Path of its key, in PEM.
    pub key_pem: String,
    /// Path of the authorities that certificates of clients are trusted by; empty = none are asked for.
    pub client_ca_pem: String,
    /// Whether a client must have a certificate.
    pub client_auth: ClientAuth,
    /// The user whom a client's certificate names.
    pub client_user: ClientUser,
}

/// Whether a client must have a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// It may.
    #[default]
    Request,
    /// It must.
    Require,
}

/// What of a client's certificate is its user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientUser {
    /// Nothing: it has to show a token.
    #[default]
    None,
    /// The whole subject (RFC 4514).
    Subject,
    /// The subject's common name.
    CommonName,
}

impl TlsSettings {
    /// Whether the certificate is one of files. Else it is one of [`AutocertSettings`].
    pub fn has_files(&self) -> bool {
        !self.cert_pem.is_empty() || !self.key_pem.is_empty()
    }
}

/// Certificates from an ACME authority (RFC 8555), as Let's Encrypt. To enable this is to agree to its terms.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AutocertSettings {
    /// Whether certificates are ordered; the HTTP port then speaks TLS with them.
    pub enabled: bool,
    /// Names that certificates are ordered for, each its own.
    pub host_whitelist: Vec<String>,
    /// Directory where the account, keys and certificates are kept.
    pub cache_dir: String,
    /// Where the authority writes to when something is wrong; empty = it is told none.
    pub email: String,
    /// The name of clients that tell none; empty = the first of `host_whitelist`.
    pub server_name: String,
    /// Whether names are proved by HTTP (`http-01`) instead of on the HTTP port by TLS (`tls-alpn-01`).
    pub http: bool,
    /// Where this is answered; it has to be reachable as port 80. Other requests are sent to `https://`.
    pub http_addr: String,
    /// Address of the authority's directory.
    pub directory_url: String,
    /// Path of the authority (PEM) that its server is trusted by, instead of the system's; empty = the system's.
    pub ca_pem: String,
    /// The account that the authority knows its customer by, if it wants one.
    pub eab_kid: String,
    /// Its secret, in URL-safe base64.
    pub eab_hmac_key: String,
}

impl AutocertSettings {
    /// The first of `host_whitelist` that no certificate can be ordered for: it is no host name, or a wildcard.
    pub fn unusable_host(&self) -> Option<&str> {
        self.host_whitelist.iter().map(String::as_str).find(|host| DnsName::try_from(*host).is_err())
    }
}

impl Default for AutocertSettings {
    fn default() -> Self {
        AutocertSettings {
            enabled: false,
            host_whitelist: Vec::new(),
            cache_dir: "data/certificates".into(),
            email: String::new(),
            server_name: String::new(),
            http: false,
            http_addr: ":80".into(),
            directory_url: "https://acme-v02.api.letsencrypt.org/directory".into(),
            ca_pem: String::new(),
            eab_kid: String::new(),
            eab_hmac_key: String::new(),
        }
    }
}

impl std::fmt::Debug for AutocertSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AutocertSettings").field("enabled", &self.enabled).field("hosts", &self.host_whitelist).finish_non_exhaustive()
    }
}
