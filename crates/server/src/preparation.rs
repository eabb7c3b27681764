//! Checks the settings of a node before it listens on any port. `touchline check` runs these checks only, so it refuses
//! what a start would refuse. The checks do not touch ports: a running node may hold them while a new configuration is
//! checked.

use hyper::header::HeaderName;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use touchline_config::{Probes, Settings, resolve};
use touchline_engine::ClientSettings;

use crate::api::operations_named;
use crate::auth::{ApiAccess, KeySets, TokenVerifier, check_token_keys};
use crate::backend::nats;
use crate::consumers;
use crate::events;
use crate::hooks::Endpoints;
use crate::net::origin::Origins;
use crate::net::proxies::Proxies;
use crate::start_error::StartError;
use crate::tls;

/// The ports that a node will listen on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    /// The port for HTTP.
    pub(crate) http: PreparedPort,
    /// The port for lines over TCP; None = lines are not served.
    pub(crate) lines: Option<PreparedPort>,
    /// The port for the server API, metrics and probes; None = they share the port for HTTP.
    pub(crate) inner: Option<PreparedPort>,
    /// The port for the server API over gRPC; None = gRPC is not served.
    pub(crate) grpc: Option<PreparedPort>,
}

/// One port, and the configuration key that sets it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PreparedPort {
    /// The configuration key that sets the port's number.
    pub(crate) key: &'static str,
    /// The address to bind.
    pub(crate) address: SocketAddr,
}

impl PreparedPort {
    /// Whether the two can't both be bound: the ports are equal, and the addresses are equal or one covers the other.
    fn overlaps(&self, other: &PreparedPort) -> bool {
        let (one, two) = (self.address, other.address);
        let covers = |all: SocketAddr, one: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4());
        one.port() == two.port() && one.port() != 0 && (one.ip() == two.ip() || covers(one, two) || covers(two, one))
    }
}

/// Returns all faults that keep a node from starting with these settings, as far as they are known before addresses are
/// bound and databases are opened. An empty list means that there are none.
pub fn check(settings: &Settings) -> Vec<StartError> {
    let mut faults = prepare(settings).err().unwrap_or_default();
    faults.extend(Endpoints::new(settings, None).err().map(StartError::hook));
    faults.extend(events::endpoints(settings).err());
    faults
}

/// The checks of settings that only this server can make, for programs that read a configuration.
pub const PROBES: Probes = Probes { token_keys, start };

fn token_keys(client: &ClientSettings) -> Option<String> {
    check_token_keys(client).err().map(|fault| causes(&fault))
}

/// The faults of [`check`] with their causes, except those that a configuration check already reports by key.
fn start(settings: &Settings) -> Vec<String> {
    let is_told = |fault: &StartError| match fault {
        StartError::Key { section, .. } => section.starts_with("client."),
        fault => matches!(fault, StartError::PingInterval),
    };
    check(settings).iter().filter(|fault| !is_told(fault)).map(|fault| causes(fault)).collect()
}

/// Joins an error and its causes into one text. A cause that the text already ends with is not repeated.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    text
}

/// Checks everything that needs no other system.
///
/// # Errors
/// All faults that were found; at least one.
pub(crate) fn prepare(settings: &Settings) -> Result<Ports, Vec<StartError>> {
    let mut faults = Vec::new();
    let client = &settings.client;
    if client.pong_timeout.is_zero() || settings.ping_intervals().any(|(_, interval)| interval <= client.pong_timeout) {
        faults.push(StartError::PingInterval);
    }
    faults.extend(
        times(settings).into_iter().filter(|(_, time)| time.is_zero()).map(|(key, _)| StartError::NoTime { key }),
    );
    if let Some(scope) = settings.registry.scopes.iter().find(|scope| scope.name.starts_with('$')) {
        faults.push(StartError::ScopeName { name: scope.name.clone() });
    }
    faults.extend(proxies_of(settings).err());
    faults.extend(Origins::parse(&client.allowed_origins).err().map(StartError::Origin));
    let mut key_sets = KeySets::default();
    faults.extend(TokenVerifier::new(client, &mut key_sets).err());
    faults.extend(ApiAccess::new(&settings.http_api, operations_named, &mut key_sets).err());
    #[cfg(not(feature = "grpc"))]
    faults.extend(settings.grpc_api.enabled.then_some(StartError::NoGrpc { key: "grpc_api.enabled" }));
    #[cfg(not(feature = "otel"))]
    faults.extend(settings.opentelemetry.enabled.then_some(StartError::NoTraces));
    faults.extend(tls::check(settings).into_iter().map(StartError::Tls));
    databases(settings, &mut faults);
    if settings.cluster.is_on() {
        faults.extend(cluster(settings).err());
    }
    faults.extend(consumers::prepare(settings).err());
    let ports = ports_of(settings, &mut faults);
    ports.filter(|_| faults.is_empty()).ok_or(faults)
}

/// The times that must not be zero: with zero, no request could be sent, answered or received.
fn times(settings: &Settings) -> [(&'static str, Duration); 7] {
    let (http, store, cluster) = (&settings.http_server, &settings.store, &settings.cluster);
    [
        ("http_server.header_timeout", http.header_timeout),
        ("http_server.request_timeout", http.request_timeout),
        ("http_server.idle_timeout", http.idle_timeout),
        ("store.primary.timeout", store.primary.timeout),
        ("store.stats.timeout", store.stats.timeout),
        ("cluster.heartbeat_interval", cluster.heartbeat_interval),
        ("cluster.node_timeout", cluster.node_timeout),
    ]
}

/// The header field in which a trusted proxy names the user; None = no proxy names users.
pub(crate) fn user_field(settings: &Settings) -> Result<Option<HeaderName>, StartError> {
    let name = settings.client.user_id_http_header.as_str();
    if name.is_empty() {
        return Ok(None);
    }
    if settings.http_server.trusted_proxies.is_empty() {
        let reason = "it needs http_server.trusted_proxies: the user is taken from them only";
        return Err(StartError::UserField { reason });
    }
    let field = HeaderName::from_bytes(name.as_bytes());
    field.map(Some).map_err(|_| StartError::UserField { reason: "this is not the name of a header field" })
}

/// Parses the trusted proxies.
pub(crate) fn proxies_of(settings: &Settings) -> Result<Proxies, StartError> {
    let http = &settings.http_server;
    for (section, is_on) in [("http_server", http.proxy_protocol), ("tcp", settings.tcp.proxy_protocol)] {
        if is_on && http.trusted_proxies.is_empty() {
            return Err(StartError::NoProxies { section });
        }
    }
    Ok(Proxies::parse(&http.trusted_proxies)?)
}

/// Checks the URLs of the databases that are used, their certificate authorities, and that the databases are not one
/// file.
fn databases(settings: &Settings, faults: &mut Vec<StartError>) {
    let store = &settings.store;
    let used = [
        ("primary", "store.primary.tls_ca", &store.primary.url, &store.primary.tls_ca, settings.needs_primary()),
        ("stats", "store.stats.tls_ca", &store.stats.url, &store.stats.tls_ca, store.stats.enabled),
    ];
    let mut files = Vec::new();
    for (database, key, url, tls_ca, _) in used.into_iter().filter(|(.., is_used)| *is_used) {
        faults.extend(tls::authorities(key, tls_ca).err().map(StartError::Tls));
        match url.parse::<touchline_store::DatabaseUrl>() {
            Ok(url) => {
                faults.extend(url.inspect().err().map(|source| StartError::Database { database, source }));
                files.push(url);
            }
            Err(source) => faults.push(StartError::DatabaseAddress { database, source }),
        }
    }
    if let [primary, stats] = files.as_slice()
        && primary.is_same_file(stats)
    {
        faults.push(StartError::OneFile);
    }
}

fn cluster(settings: &Settings) -> Result<(), StartError> {
    tls::check_nats(&settings.cluster)?;
    touchline_cluster::check(&nats::joining(settings, "", 0, Vec::new())?)?;
    Ok(())
}

/// Works out the ports of all listeners, and checks that no two of them are the same.
fn ports_of(settings: &Settings, faults: &mut Vec<StartError>) -> Option<Ports> {
    let (http, tcp) = (&settings.http_server, &settings.tcp);
    let mut port = |key, address_key, address: &str, port| {
        let unknown = |source: io::Error| StartError::Address { key: address_key, address: address.to_owned(), source };
        let resolved = resolve(address).map_err(unknown).and_then(|ip| is_local(address_key, ip));
        resolved
            .map(|ip| PreparedPort { key, address: SocketAddr::new(ip, port) })
            .map_err(|error| faults.push(error))
            .ok()
    };
    let outer = port("http_server.port", "http_server.address", &http.address, http.port);
    let lines = tcp.enabled.then(|| port("tcp.port", "tcp.address", &tcp.address, tcp.port));
    let inner = http.internal().map(|(address, number)| {
        let key = if http.internal_address.is_empty() { "http_server.address" } else { "http_server.internal_address" };
        port("http_server.internal_port", key, address, number)
    });
    let api = &settings.grpc_api;
    let grpc = api.enabled.then(|| port("grpc_api.port", "grpc_api.address", &api.address, api.port));
    let known = [outer, lines.flatten(), inner.flatten(), grpc.flatten()].into_iter().flatten().collect::<Vec<_>>();
    for (index, one) in known.iter().enumerate() {
        if let Some(first) = known[..index].iter().find(|first| first.overlaps(one)) {
            faults.push(StartError::Shared {
                key: one.key,
                address: one.address,
                first_key: first.key,
                first: first.address,
            });
        }
    }
    let is_missing = |port: &Option<Option<PreparedPort>>| matches!(port, Some(None));
    let is_whole = [&lines, &inner, &grpc].into_iter().all(|port| !is_missing(port));
    is_whole.then_some(Ports { http: outer?, lines: lines.flatten(), inner: inner.flatten(), grpc: grpc.flatten() })
}

/// Checks that this machine has the address.
fn is_local(key: &'static str, ip: IpAddr) -> Result<IpAddr, StartError> {
    TcpListener::bind((ip, 0)).map(|_| ip).map_err(|source| StartError::NotLocal { key, ip, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_where_one_is_every_one() {
        let port = |text: &str| PreparedPort { key: "", address: text.parse().expect("it is an address") };
        for (one, two, expected) in [
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "[::1]:80", true),
            ("0.0.0.0:80", "10.0.0.1:80", true),
            ("0.0.0.0:80", "[::]:80", true),
            ("10.0.0.1:80", "10.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("10.0.0.1:80", "127.0.0.1:80", false),
            ("[::]:80", "127.0.0.1:81", false),
            ("[::]:0", "[::]:0", false),
        ] {
            assert_eq!(port(one).overlaps(&port(two)), expected, "{one} {two}");
            assert_eq!(port(two).overlaps(&port(one)), expected, "{two} {one}");
        }
    }
}
