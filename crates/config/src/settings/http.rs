//! Settings of HTTP: listeners, the server API, and endpoints that can be enabled.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use touchline_engine::hook::ClientTlsSettings;
use touchline_engine::setting::{SOME, ValueKind};
use touchline_engine::settings;

use super::addresses::resolve;
use super::tls::{AutocertSettings, InternalTlsSettings, TlsSettings};
use crate::networks::{BadNetwork, Networks};

settings! {
    /// The HTTP listeners.
    pub struct HttpServerSettings {
        /// Address or host name to bind. Empty: every address, IPv6 and IPv4. With `--dev`: `127.0.0.1`.
        key address: String = "";
        /// Port to bind. 0: any free port.
        key port: u16 = 8_000;
        /// Address or host name of the internal port. Empty: that of `address`. If `address` is every address,
        /// `internal_port` must differ from `port`.
        key internal_address: String = "";
        /// A separate port for the server API, metrics and probes, which are then not served on `port`, the port of
        /// clients. 0: any free port. Empty: they share `port`, unless `internal_address` is another address.
        key internal_port: Option<u16> = None;
        /// TLS on the internal port, if it differs from the TLS of `port`.
        section internal_tls: InternalTlsSettings = InternalTlsSettings::default();
        /// The internal port does not use the TLS of `port`.
        key tls_external: bool = false;
        /// Hosts that requests may be addressed to, with or without a port; `*` matches any characters. Empty: any
        /// host. Requests to other hosts get 421. A host that is an IP address is always allowed: an attack by DNS
        /// rebinding sends the attacker's domain name as host. With `--dev`: `localhost`.
        own allowed_hosts: Vec<String> = &[];
        /// Connections that may wait in the kernel until the node accepts them.
        own backlog: u32 = 65_535, SOME;
        /// Time that a client has to send the head of a request.
        own header_timeout: Duration = Duration::from_secs(10);
        /// Time that a client has to send the body of a request, and the server to answer it. Set a time that is longer
        /// than the longest call of the server API.
        own request_timeout: Duration = Duration::from_secs(30);
        /// Time that a connection may wait between two requests.
        own idle_timeout: Duration = Duration::from_secs(75);
        /// Addresses and networks (`10.0.0.0/8`) of your proxies. The node accepts `X-Forwarded-For` or `Forwarded`
        /// from them only. The right-most address in such a header that is not one of your proxies is the client's
        /// address. The node uses it for limits, for `anonymous_on_loopback_only` and in log lines about requests. If a
        /// limit by client address is on, log lines about refused sessions contain the address too. If a request has
        /// both headers, they must agree.
        own trusted_proxies: Vec<String> = &[];
        /// Every connection must come from one of `trusted_proxies` and begin with a header of the PROXY protocol,
        /// version 1 or 2. Other connections are closed.
        own proxy_protocol: bool = false;
        /// TLS handshakes that this node begins per second, on all ports together. Further connections wait in the
        /// kernel. 0: no limit.
        own tls_handshake_rate_limit: usize = 2_000;
        /// TLS on this port.
        section tls: TlsSettings = TlsSettings::default();
        /// TLS with certificates from an ACME authority.
        section tls_autocert: AutocertSettings = AutocertSettings::default();
    }
}

impl HttpServerSettings {
    /// The IP address that `address` stands for.
    ///
    /// # Errors
    /// When `address` is neither an IP address nor a known host name.
    pub fn bind_address(&self) -> io::Result<IpAddr> {
        resolve(&self.address)
    }

    /// The address (as the settings give it) and the number of the internal port. `None` = there is no internal port.
    pub fn internal(&self) -> Option<(&str, u16)> {
        let address = if self.internal_address.is_empty() { &self.address } else { &self.internal_address };
        let port = self.internal_port.unwrap_or(self.port);
        let is_same = *address == self.address && (self.internal_port.is_none() || port == self.port && port != 0);
        (!is_same).then_some((address, port))
    }

    /// The socket address of the internal port. `None` = there is no internal port.
    ///
    /// # Errors
    /// As [`HttpServerSettings::bind_address`].
    pub fn internal_bind_address(&self) -> io::Result<Option<SocketAddr>> {
        self.internal().map(|(address, port)| resolve(address).map(|ip| SocketAddr::new(ip, port))).transpose()
    }

    /// Whether the internal port speaks TLS.
    pub fn has_internal_tls(&self) -> bool {
        self.internal_tls.enabled || !self.tls_external && (self.tls.enabled || self.tls_autocert.enabled)
    }

    /// The first entry of `trusted_proxies` that is neither an address nor a network. `None` = all are valid.
    pub fn bad_proxy(&self) -> Option<BadNetwork> {
        Networks::parse(&self.trusted_proxies).err()
    }
}

settings! {
    /// The server API.
    pub struct HttpApiSettings {
        /// Key of the server API. Callers send it as `X-API-Key` or `Authorization: apikey …`. It permits every
        /// operation. If none of `key`, `keys` and `jwks` is set, the server API refuses every call.
        key key: String = "", ValueKind::Secret;
        /// More keys, each with a name and permissions.
        plain keys: Vec<NamedApiKey> = Vec::new();
        /// Callers that send a token of an issuer, as `Authorization: Bearer …`, instead of a key.
        section jwks: ApiJwksSettings = ApiJwksSettings::default();
        /// The server API is served on the port of clients, even if there is an internal port.
        key external: bool = false;
        /// The server API asks for no key. For development only.
        key insecure: bool = false;
        /// The server API is not served.
        key disabled: bool = false;
        /// Maximum body of a request to the server API, bytes.
        own body_size_limit: usize = 10_485_760, SOME;
    }
}

settings! {
    /// The server API over gRPC, on a port of its own.
    pub struct GrpcApiSettings {
        /// The server API is served over gRPC.
        key enabled: bool = false;
        /// Address or host name to bind. Empty: every address, IPv6 and IPv4.
        key address: String = "";
        /// Port to bind. 0: any free port.
        key port: u16 = 10_000;
        /// Key of the server API over gRPC. Callers send it as `authorization: apikey …` in the metadata. It permits
        /// every operation. The keys and tokens of `http_api` are accepted too.
        key key: String = "", ValueKind::Secret;
        /// TLS on this port.
        section tls: InternalTlsSettings = InternalTlsSettings::default() => with {
            enabled: "The port accepts TLS connections only.";
            cert_pem: "Certificate of the port, written as `http_server.tls.cert_pem`.";
            key_pem: "Private key of the certificate, written as `http_server.tls.key_pem`.";
        };
        /// gRPC reflection: clients can list the services, methods and messages. It asks for no key.
        key reflection: bool = false;
        /// Maximum size of a request, bytes, compressed or not.
        key max_receive_message_size: usize = 10_485_760, SOME;
    }
}

settings! {
    /// Callers of the server API that send a token of an issuer.
    pub struct ApiJwksSettings {
        /// Callers may send a token of the issuer. It permits the same as `http_api.key`.
        key enabled: bool = false;
        /// Address of the issuer's JSON Web Key Set, `https://…`.
        key endpoint: String = "";
        /// `endpoint` may be `http://` on another machine too. An attacker on the network path can then forge tokens.
        own insecure_skip_jwks_endpoint_safety_check: bool = false;
        /// Value that the `aud` claim must contain. Set this or `scope`, because an issuer also issues tokens for other
        /// services.
        key audience: String = "";
        /// If set, the `iss` claim must equal it.
        key issuer: String = "";
        /// If set, the `scope` claim must contain all of these words. The claim is a list of words, or text with words
        /// separated by spaces.
        key scope: String = "";
        /// TLS to `endpoint`.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
    }
}

settings! {
    /// A key of the server API.
    pub struct ApiKeySettings {
        /// The key. Callers send it as they send `http_api.key`.
        own key: String = "", ValueKind::Secret;
        /// Operations that the key permits: names, and groups (`@publish`, `@read`, `@connections`, `@registry`,
        /// `@inbox`, `@directory`, `@reactions`, `@bans`, `@tokens`, `@statistics`, `@events`); `*` is all.
        own operations: Vec<String> = &["*"];
        /// Patterns of the channels that the key may be used for; `*` is all. With any other value, an operation that
        /// names no channel is permitted only if `operations` lists it by name or group.
        own channels: Vec<String> = &["*"];
    }
}

/// An entry of `http_api.keys`: a key of the server API with its name.
#[derive(Debug, Clone, Default)]
pub struct NamedApiKey {
    /// The name, for logs and metrics.
    pub name: String,
    /// The key and its permissions.
    pub options: ApiKeySettings,
}

settings! {
    /// An HTTP endpoint that can be enabled.
    pub struct EndpointSettings (path: &'static str) {
        /// The endpoint is served.
        key enabled: bool = false;
        /// Path of the endpoint.
        key handler_prefix: String = path, ValueKind::Path;
    }
}
