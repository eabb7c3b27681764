//! Settings of TLS on ports, and of the source of its certificates.

use rustls_pki_types::DnsName;
use touchline_engine::setting::ValueKind;
use touchline_engine::{settings, words_of};

settings! {
    /// TLS of a port. The value of a field that ends in `_pem` is PEM, base64 of it, or the path of a file. The node
    /// reads such a file again when it changes.
    #[derive(PartialEq, Eq)]
    pub struct TlsSettings {
        /// The port accepts TLS connections only.
        key enabled: bool = false;
        /// Certificate chain, the server's certificate first: PEM, base64 of it, or the path of a file. The node reads
        /// the files of this section again when they change.
        key cert_pem: String = "";
        /// Private key of `cert_pem`: PEM, base64 of it, or the path of a file.
        key key_pem: String = "", ValueKind::Secret;
        /// CA certificates that verify client certificates: PEM, base64 of it, or the path of a file. Empty: clients
        /// are not asked for a certificate.
        key client_ca_pem: String = "";
        /// Whether a client certificate is optional (`request`) or required (`require`).
        own client_auth: ClientAuth = ClientAuth::Request;
        /// Which field of a client certificate becomes the user id. Clients with such a certificate need no token.
        own client_user: ClientUser = ClientUser::None;
    }
}

impl TlsSettings {
    /// Whether these settings name a certificate or a key. If not, the certificate comes from [`AutocertSettings`].
    pub fn has_files(&self) -> bool {
        !self.cert_pem.is_empty() || !self.key_pem.is_empty()
    }
}

settings! {
    /// TLS of the internal port. Fields that end in `_pem` are written as in [`TlsSettings`].
    #[derive(PartialEq, Eq)]
    pub struct InternalTlsSettings {
        /// The internal port has its own TLS settings, the keys of this section. Off: it uses the TLS of `port`.
        key enabled: bool = false;
        /// Certificate of the internal port, written as `http_server.tls.cert_pem`.
        key cert_pem: String = "";
        /// Private key of the internal port's certificate, written as `http_server.tls.key_pem`.
        key key_pem: String = "", ValueKind::Secret;
        /// CA certificates that verify the certificates of callers. If set, every caller must have a certificate.
        /// Empty: callers are not asked for one.
        key client_ca_pem: String = "";
    }
}

impl InternalTlsSettings {
    /// Converts these settings to the settings of a port.
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
    /// Certificates from an ACME authority (RFC 8555) such as Let's Encrypt. Enabling this accepts the terms of the
    /// authority.
    pub struct AutocertSettings {
        /// The port uses TLS with certificates from an ACME authority. The node renews a certificate when two thirds of
        /// its lifetime are over. By enabling this you accept the terms of the authority.
        key enabled: bool = false;
        /// Host names to order certificates for; each name gets its own certificate.
        key host_whitelist: Vec<String> = &[];
        /// Directory for the account, keys and certificates. Nodes may share it.
        key cache_dir: String = "data/certificates";
        /// E-mail address to which the authority reports problems. Empty: the authority gets no address.
        key email: String = "";
        /// Host name for clients that send none (SNI). Empty: the first of `host_whitelist`.
        key server_name: String = "";
        /// The node proves its names over HTTP (`http-01`). Off: over TLS on this port (`tls-alpn-01`), which must be
        /// reachable as port 443.
        key http: bool = false;
        /// Address on which the node proves its names over HTTP. It must be reachable as port 80. Other requests there
        /// are redirected to `https://`.
        key http_addr: String = ":80";
        /// Address of the authority's directory.
        own directory_url: String = "https://acme-v02.api.letsencrypt.org/directory";
        /// CA certificates that verify the server of the directory, instead of the system's: PEM, base64 of it, or the
        /// path of a file. Empty: those of the system.
        own ca_pem: String = "";
        /// Key id of your account with the authority, if it requires external account binding.
        own eab_kid: String = "";
        /// HMAC key of the account `eab_kid`, in URL-safe base64.
        own eab_hmac_key: String = "", ValueKind::Secret;
    }
}

impl AutocertSettings {
    /// The first entry of `host_whitelist` that no certificate can be ordered for, because it is not a host name or is
    /// a wildcard. `None` = all can be used.
    pub fn unusable_host(&self) -> Option<&str> {
        self.host_whitelist.iter().map(String::as_str).find(|host| DnsName::try_from(*host).is_err())
    }
}
