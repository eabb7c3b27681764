//! HTTP: listeners, the server API, and endpoints that can be switched on.

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
        /// Address or host name to bind; empty is every address, of IPv6 and of IPv4. With `--dev`: `127.0.0.1`.
        key address: String = "";
        /// Port to bind; 0 is any free one.
        key port: u16 = 8_000;
        /// Address or host name of the internal port; empty is that of `address`. Where `address` is every address,
        /// `internal_port` must be another port than `port`.
        key internal_address: String = "";
        /// A port for the server API, metrics and probes, which are then not on `port`, where clients are; 0 is any
        /// free one. Empty: they share `port`, unless `internal_address` is another.
        key internal_port: Option<u16> = None;
        /// TLS on the internal port, if it differs from that of `port`.
        section internal_tls: InternalTlsSettings = InternalTlsSettings::default();
        /// The internal port does not speak the TLS of `port`.
        key tls_external: bool = false;
        /// Hosts that requests may be for, with a port or without; `*` stands for any run of characters; empty: any.
        /// Others get 421. IP addresses always may be: no name of elsewhere can be pointed at them. With `--dev`:
        /// `localhost`.
        own allowed_hosts: Vec<String> = &[];
        /// Connections that the kernel may hold until the node takes them.
        own backlog: u32 = 65_535, SOME;
        /// Time a client has to send the head of a request.
        own header_timeout: Duration = Duration::from_secs(10);
        /// Time a client has to send the body of a request, and the server to answer it: longer than the longest call
        /// of the API.
        own request_timeout: Duration = Duration::from_secs(30);
        /// Time that a connection may wait between two requests.
        own idle_timeout: Duration = Duration::from_secs(75);
        /// Addresses and networks (`10.0.0.0/8`) of proxies. From them, and from nobody else, the right-most address in
        /// `X-Forwarded-For` or `Forwarded` that is not one of theirs is the client's: for limits, for
        /// `anonymous_on_loopback_only`, and for logs of requests and, where a limit of addresses is on, of sessions.
        /// If a request has both headers they must tell the same.
        own trusted_proxies: Vec<String> = &[];
        /// Every connection begins with a header of the PROXY protocol, version 1 or 2, of one of `trusted_proxies`;
        /// others are closed.
        own proxy_protocol: bool = false;
        /// TLS handshakes that this node begins in a second, on all ports; more wait in the kernel. 0 is any number.
        own tls_handshake_rate_limit: usize = 2_000;
        /// TLS on this port.
        section tls: TlsSettings = TlsSettings::default();
        /// TLS with certificates from an ACME authority.
        section tls_autocert: AutocertSettings = AutocertSettings::default();
    }
}

impl HttpServerSettings {
    /// The address to bind.
    ///
    /// # Errors
    /// When `address` is neither an IP address nor a known host name.
    pub fn bind_address(&self) -> io::Result<IpAddr> {
        resolve(&self.address)
    }

    /// The address (as the settings give it) and the number of the internal port, if there is one.
    pub fn internal(&self) -> Option<(&str, u16)> {
        let address = if self.internal_address.is_empty() { &self.address } else { &self.internal_address };
        let port = self.internal_port.unwrap_or(self.port);
        let is_same = *address == self.address && (self.internal_port.is_none() || port == self.port && port != 0);
        (!is_same).then_some((address, port))
    }

    /// The address of the internal port, if there is one.
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

    /// The first of `trusted_proxies` that is neither an address nor a network, if there is one.
    pub fn bad_proxy(&self) -> Option<BadNetwork> {
        Networks::parse(&self.trusted_proxies).err()
    }
}

settings! {
    /// The server API.
    pub struct HttpApiSettings {
        /// The secret that callers of the server API show, as `X-API-Key` or `Authorization: apikey …`. It may do
        /// everything. Without it, `keys` and `jwks` every call is refused.
        key key: String = "", ValueKind::Secret;
        /// More keys, each with a name and what it may do.
        plain keys: Vec<NamedApiKey> = Vec::new();
        /// Callers that show a token of an issuer, as `Authorization: Bearer …`, beside those that show a key.
        section jwks: ApiJwksSettings = ApiJwksSettings::default();
        /// The server API is on the port of clients, also when there is an internal port.
        key external: bool = false;
        /// The server API asks for no key. For development.
        key insecure: bool = false;
        /// The server API is not served.
        key disabled: bool = false;
        /// Largest body of a request to the server API, bytes.
        own body_size_limit: usize = 10_485_760, SOME;
    }
}

settings! {
    /// The server API over gRPC, on a port of its own.
    pub struct GrpcApiSettings {
        /// The server API is served over gRPC.
        key enabled: bool = false;
        /// Address or host name to bind; empty is every address, of IPv6 and of IPv4.
        key address: String = "";
        /// Port to bind; 0 is any free one.
        key port: u16 = 10_000;
        /// A secret that callers over gRPC show, as `authorization: apikey …` in the metadata. It may do everything.
        /// The keys of `http_api` and its tokens are accepted too.
        key key: String = "", ValueKind::Secret;
        /// TLS on this port.
        section tls: InternalTlsSettings = InternalTlsSettings::default() => with {
            enabled: "The port speaks TLS, and nothing else.";
            cert_pem: "The certificate of the port, written as `http_server.tls.cert_pem`.";
            key_pem: "The key of the certificate, written as `http_server.tls.key_pem`.";
        };
        /// Clients are told the services, methods and messages (reflection). It asks for no key.
        key reflection: bool = false;
        /// Largest request, bytes, compressed or not.
        key max_receive_message_size: usize = 10_485_760, SOME;
    }
}

settings! {
    /// Callers of the server API that show a token of an issuer.
    pub struct ApiJwksSettings {
        /// A token of the issuer is as good as `http_api.key`.
        key enabled: bool = false;
        /// Address of the issuer's JSON Web Key Set, `https://…`.
        key endpoint: String = "";
        /// `endpoint` may be `http://` on another machine too: who is on the way to it can forge tokens.
        own insecure_skip_jwks_endpoint_safety_check: bool = false;
        /// What the `aud` claim must contain. It or `scope` is needed: an issuer has other tokens too.
        key audience: String = "";
        /// What the `iss` claim must equal, if it is set.
        key issuer: String = "";
        /// Words that the `scope` claim, a list or text with spaces, must have, if it is set.
        key scope: String = "";
        /// TLS to `endpoint`.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
    }
}

settings! {
    /// A key of the server API.
    pub struct ApiKeySettings {
        /// The secret, shown as `http_api.key`.
        own key: String = "", ValueKind::Secret;
        /// Operations that it may use: names, and groups (`@publish`, `@read`, `@connections`, `@registry`,
        /// `@inbox`, `@directory`, `@reactions`, `@bans`, `@tokens`, `@statistics`, `@events`); `*` is all.
        own operations: Vec<String> = &["*"];
        /// Patterns of the channels that it may name; `*` is all. With another value it may use an operation that names
        /// no channel only where `operations` has it by name or group.
        own channels: Vec<String> = &["*"];
    }
}

/// A key of the server API, with its name.
#[derive(Debug, Clone, Default)]
pub struct NamedApiKey {
    /// The name, for logs and metrics.
    pub name: String,
    /// The secret, and what it may do.
    pub options: ApiKeySettings,
}

settings! {
    /// An endpoint that can be switched on.
    pub struct EndpointSettings (path: &'static str) {
        /// Whether it is served.
        key enabled: bool = false;
        /// Its path.
        key handler_prefix: String = path, ValueKind::Path;
    }
}
