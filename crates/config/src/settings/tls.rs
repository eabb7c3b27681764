//! TLS of ports, and the source of its certificates.

use rustls_pki_types::DnsName;
use serde::Deserialize;

/// TLS of a port. A field that ends in `_pem` is PEM, base64 of it, or the path of a file that is read again when it
/// changes.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSettings {
    /// Whether the port speaks TLS, and nothing else.
    pub enabled: bool,
    /// The certificate and those above it.
    pub cert_pem: String,
    /// Its key.
    pub key_pem: String,
    /// The authorities that verify client certificates; empty = the port requests none.
    pub client_ca_pem: String,
    /// Whether a client must have a certificate.
    pub client_auth: ClientAuth,
    /// Which field of a client certificate is the user id.
    pub client_user: ClientUser,
}

/// TLS of the internal port. Fields that end in `_pem` are as in [`TlsSettings`].
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InternalTlsSettings {
    /// Whether the internal port has TLS of its own.
    pub enabled: bool,
    /// The certificate and those above it.
    pub cert_pem: String,
    /// Its key.
    pub key_pem: String,
    /// The authorities that verify the certificates of callers, which are then required. Empty = the port requests
    /// none.
    pub client_ca_pem: String,
}

impl InternalTlsSettings {
    /// These settings as the settings of a port.
    pub fn of_port(&self) -> TlsSettings {
        TlsSettings {
            enabled: self.enabled,
            cert_pem: self.cert_pem.clone(),
            key_pem: self.key_pem.clone(),
            client_ca_pem: self.client_ca_pem.clone(),
            client_auth: ClientAuth::Require,
            client_user: ClientUser::None,
        }
    }
}

impl std::fmt::Debug for InternalTlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A key may be written here.
        f.debug_struct("InternalTlsSettings").field("enabled", &self.enabled).finish_non_exhaustive()
    }
}

/// Whether a client must have a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// The certificate is optional.
    #[default]
    Request,
    /// The certificate is required.
    Require,
}

/// Which field of a client certificate is the user id; such clients need no token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientUser {
    /// None: the client must send a token.
    #[default]
    None,
    /// The whole subject (RFC 4514).
    Subject,
    /// The subject's common name.
    CommonName,
}

impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A key may be written here.
        f.debug_struct("TlsSettings")
            .field("enabled", &self.enabled)
            .field("client_auth", &self.client_auth)
            .finish_non_exhaustive()
    }
}

impl TlsSettings {
    /// Whether these settings name a certificate. If not, it comes from [`AutocertSettings`].
    pub fn has_files(&self) -> bool {
        !self.cert_pem.is_empty() || !self.key_pem.is_empty()
    }
}

/// Certificates from an ACME authority (RFC 8555) such as Let's Encrypt. Enabling this accepts the authority's terms.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AutocertSettings {
    /// Whether certificates are ordered; the HTTP port then speaks TLS with them.
    pub enabled: bool,
    /// Names that certificates are ordered for, each its own.
    pub host_whitelist: Vec<String>,
    /// Directory where the account, keys and certificates are kept.
    pub cache_dir: String,
    /// The mail address to which the authority reports problems; empty = the authority gets none.
    pub email: String,
    /// The host whose certificate clients without SNI get; empty = the first of `host_whitelist`.
    pub server_name: String,
    /// Whether names are proved by HTTP (`http-01`) instead of on the HTTP port by TLS (`tls-alpn-01`).
    pub http: bool,
    /// The address on which `http-01` is answered; it must be reachable as port 80. Other requests are redirected to
    /// `https://`.
    pub http_addr: String,
    /// Address of the authority's directory.
    pub directory_url: String,
    /// The authority that verifies the directory's server, instead of the system's: PEM, base64 of it, or the path of a
    /// file; empty = the system's.
    pub ca_pem: String,
    /// The key id of an external account, for an authority that requires one; empty = none.
    pub eab_kid: String,
    /// The secret of the external account, in URL-safe base64.
    pub eab_hmac_key: String,
}

impl AutocertSettings {
    /// The first of `host_whitelist` that no certificate can be ordered for: it is not a host name, or it is a
    /// wildcard.
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
        f.debug_struct("AutocertSettings")
            .field("enabled", &self.enabled)
            .field("hosts", &self.host_whitelist)
            .finish_non_exhaustive()
    }
}
