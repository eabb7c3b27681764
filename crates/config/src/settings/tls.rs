//! TLS of ports, and the source of its certificates.

use rustls_pki_types::DnsName;
use touchline_engine::setting::ValueKind;
use touchline_engine::{settings, words_of};

settings! {
    /// TLS of a port. A field that ends in `_pem` is PEM, base64 of it, or the path of a file that is read again when
    /// it changes.
    #[derive(PartialEq, Eq)]
    pub struct TlsSettings {
        /// The port speaks TLS, and nothing else.
        key enabled: bool = false;
        /// The certificate and those above it: PEM, base64 of it, or the path of a file. Files of this section are read
        /// again when they change.
        key cert_pem: String = "";
        /// The key of `cert_pem`: PEM, base64 of it, or the path of a file.
        key key_pem: String = "", ValueKind::Secret;
        /// Authorities that certificates of clients are trusted by: PEM, base64 of it, or the path of a file; empty:
        /// none are asked for.
        key client_ca_pem: String = "";
        /// Whether a client may have a certificate, or must.
        own client_auth: ClientAuth = ClientAuth::Request;
        /// What of a client's certificate is its user: then it needs no token.
        own client_user: ClientUser = ClientUser::None;
    }
}

impl TlsSettings {
    /// Whether these settings name a certificate. If not, it comes from [`AutocertSettings`].
    pub fn has_files(&self) -> bool {
        !self.cert_pem.is_empty() || !self.key_pem.is_empty()
    }
}

settings! {
    /// TLS of the internal port. Fields that end in `_pem` are as in [`TlsSettings`].
    #[derive(PartialEq, Eq)]
    pub struct InternalTlsSettings {
        /// The internal port has TLS of its own, by the keys of this section. Else it speaks that of `port`.
        key enabled: bool = false;
        /// The certificate of the internal port, written as `http_server.tls.cert_pem`.
        key cert_pem: String = "";
        /// The key of the internal port's certificate, written as `http_server.tls.key_pem`.
        key key_pem: String = "", ValueKind::Secret;
        /// Authorities that certificates of callers are trusted by; then each must have one. Empty: none are asked for.
        key client_ca_pem: String = "";
    }
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

/// Whether a client must have a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// The certificate is optional.
    #[default]
    Request,
    /// The certificate is required.
    Require,
}

/// Which field of a client certificate is the user id; such clients need no token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientUser {
    /// None: the client must send a token.
    #[default]
    None,
    /// The whole subject (RFC 4514).
    Subject,
    /// The subject's common name.
    CommonName,
}

words_of!(ClientAuth { Request = "request", Require = "require" });
words_of!(ClientUser { None = "none", Subject = "subject", CommonName = "common_name" });

settings! {
    /// Certificates from an ACME authority (RFC 8555) such as Let's Encrypt. Enabling this accepts the authority's
    /// terms.
    pub struct AutocertSettings {
        /// The port speaks TLS with certificates that are ordered from an ACME authority, and renewed when two thirds
        /// of their life are over. To enable this is to agree to the authority's terms.
        key enabled: bool = false;
        /// Names that certificates are ordered for, each its own.
        key host_whitelist: Vec<String> = &[];
        /// Directory where the account, keys and certificates are kept; nodes may share it.
        key cache_dir: String = "data/certificates";
        /// Where the authority writes to when something is wrong; empty: it is told none.
        key email: String = "";
        /// The name of clients that tell none; empty: the first of `host_whitelist`.
        key server_name: String = "";
        /// Names are proved by HTTP (`http-01`) instead of on this port by TLS (`tls-alpn-01`, for which it has to be
        /// reachable as port 443).
        key http: bool = false;
        /// Address where names are proved by HTTP; it has to be reachable as port 80. Other requests are sent to
        /// `https://`.
        key http_addr: String = ":80";
        /// Address of the authority's directory.
        own directory_url: String = "https://acme-v02.api.letsencrypt.org/directory";
        /// The authority that the directory's server is trusted by, instead of the system's: PEM, base64 of it, or the
        /// path of a file; empty: the system's.
        own ca_pem: String = "";
        /// The account that the authority knows its customer by, if it wants one (external account binding).
        own eab_kid: String = "";
        /// The secret of the account `eab_kid`, in URL-safe base64.
        own eab_hmac_key: String = "", ValueKind::Secret;
    }
}

impl AutocertSettings {
    /// The first of `host_whitelist` that no certificate can be ordered for: it is not a host name, or it is a
    /// wildcard.
    pub fn unusable_host(&self) -> Option<&str> {
        self.host_whitelist.iter().map(String::as_str).find(|host| DnsName::try_from(*host).is_err())
    }
}
