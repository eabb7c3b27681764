//! From settings to a running node: check and bind everything first, then start the shards.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use touchline_cluster::Joining;
use touchline_config::{BadNetwork, Settings, TlsSettings};
use touchline_engine::directory::Directory;
use touchline_engine::session::UserCounter;
use touchline_engine::tracker::TrackLimits;
use touchline_engine::{ClientSettings, Namespaces, ShardId, session};
use touchline_registry::ReplicaTiming;
use touchline_store::stats::Stats;

use crate::api;
use crate::auth::TokenVerifier;
use crate::backend::{nats, store};
use crate::net::origin::{BadOrigin, Origins};
use crate::node::{Node, NodeHandles, PortsTls};
use crate::preparation::{Ports, PreparedPort, prepare, proxies_of};
use crate::registry::actor::{self, RegistryMessage};
use crate::runtime::clock::Clock;
use crate::runtime::mailbox::{Message, ReplyTo};
use crate::runtime::poller::Poller;
use crate::runtime::process;
use crate::runtime::shard_handle::ShardHandle;
use crate::runtime::signer::HmacSigner;
use crate::runtime::user_counts::UserCounts;
use crate::shard::{Listeners, Shard};
use crate::tls::{Acme, PendingRenewal, Tls, TlsError};

/// Tasks that a shard's thread runs before it polls its sockets again.
const TASKS_PER_LOOK: u32 = 31;

/// Why a node can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address to bind is neither an IP address nor a host that is known.
    #[error("{key}: {address:?} is neither an IP address nor a host that is known here")]
    Address {
        /// The setting.
        key: &'static str,
        /// The value that was given.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// This machine does not have the address.
    #[error("{key}: this machine can't listen on {ip}")]
    NotLocal {
        /// The setting.
        key: &'static str,
        /// The given value, resolved.
        ip: IpAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Two listeners of this node are to have one address.
    #[error("{key}: {address} can't be had beside {first}, which is {first_key}'s: give {key} a number of its own")]
    Shared {
        /// The setting of the port of the second.
        key: &'static str,
        /// Its address.
        address: SocketAddr,
        /// The setting of the port of the first.
        first_key: &'static str,
        /// Its address.
        first: SocketAddr,
    },
    /// The address can't be bound: most often another process has it.
    #[error("{key}: can't listen on {address}")]
    Bind {
        /// The setting of the port.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// No token could be verified by a configured public key.
    #[error("{section}.{name}: {reason}")]
    Key {
        /// Section of the configuration.
        section: &'static str,
        /// The setting in it.
        name: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// The address of a database is not valid.
    #[error("store.{database}.url")]
    DatabaseAddress {
        /// Which database.
        database: &'static str,
        /// What is expected.
        source: touchline_store::UrlError,
    },
    /// A database can't be used.
    #[error("store.{database}.url: {source}")]
    Database {
        /// Which database.
        database: &'static str,
        /// Why.
        source: touchline_store::OpenError,
    },
    /// Both databases are one file.
    #[error("store.stats.url: the same file as store.primary.url")]
    OneFile,
    /// TLS can't be served.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The cluster can't be joined.
    #[error(transparent)]
    Join(#[from] touchline_cluster::JoinError),
    /// A trusted proxy is neither an address nor a network.
    #[error("http_server.trusted_proxies: {0}")]
    Proxy(#[from] BadNetwork),
    /// An allowed origin is not a valid pattern.
    #[error("client.allowed_origins: {0}")]
    Origin(#[from] BadOrigin),
    /// The PROXY protocol is expected, but no proxy is trusted.
    #[error("{section}.proxy_protocol needs http_server.trusted_proxies: its headers are taken from them only")]
    NoProxies {
        /// The port's section.
        section: &'static str,
    },
    /// A limit of the settings contradicts another.
    #[error("client.pong_timeout must be above zero, and shorter than every ping_interval")]
    PingInterval,
    /// A time that must not be zero is zero.
    #[error("{key} must be above zero")]
    NoTime {
        /// The key.
        key: &'static str,
    },
    /// A scope of the registry has the name of one of the server's own.
    #[error("registry.scopes: {name:?} begins with $, as the server's own scopes do")]
    ScopeName {
        /// The name.
        name: String,
    },
    /// The system refused threads, sockets or random numbers.
    #[error("the system refused {what}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// The system's reason, if it gave one.
        source: io::Error,
    },
}

/// A node whose settings are good and whose addresses are bound.
pub struct Server {
    node: Arc<Node>,
    mailboxes: Vec<UnboundedReceiver<Message>>,
    directory: Directory<ReplyTo>,
    registry_messages: std::sync::mpsc::Receiver<RegistryMessage>,
    joining: Option<Joining>,
    /// Certificates that are ordered once the shards can serve the challenges; None = none.
    renewal: Option<PendingRenewal>,
    listeners: Vec<Listeners>,
    addresses: Addresses,
}

/// The addresses that a node listens on; None = that port is not served.
#[derive(Debug, Clone, Copy)]
struct Addresses {
    http: SocketAddr,
    lines: Option<SocketAddr>,
    inner: Option<SocketAddr>,
}

/// Counts the connections of each user; None = they have no limit.
fn users_of(client: &ClientSettings) -> Option<Arc<dyn UserCounter + Send + Sync>> {
    let limit = client.user_connection_limit;
    if limit == 0 { None } else { Some(Arc::new(UserCounts::new(limit))) }
}

impl Server {
    /// Checks the settings and binds every address. Nothing is served yet.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn bind(mut settings: Settings) -> Result<Server, StartError> {
        let ports = prepare(&settings).map_err(|mut faults| faults.swap_remove(0))?;
        let client = &settings.client;
        let proxies = proxies_of(&settings)?;
        let origins = Origins::parse(&settings.client.allowed_origins)?;
        let verifier = TokenVerifier::new(client)?;
        let (tls, renewal) = tls_of(&settings)?;
        let shards = shards_of(&settings);
        let (listeners, addresses) = listen_everywhere(&ports, settings.http_server.backlog, shards)?;
        if settings.node.name.is_empty() {
            settings.node.name = format!("{}_{}", process::host_name(), addresses.http.port());
        }
        let id = format!("{:016x}{:016x}", random_number()?, random_number()?);
        let clock = Clock::start();
        let cluster = &settings.cluster;
        let timing = ReplicaTiming {
            heartbeat_ms: cluster.heartbeat_interval.as_millis() as u64,
            timeout_ms: cluster.node_timeout.as_millis() as u64,
            drift_max_ms: cluster.clock_drift_max.as_millis() as u64,
            // A probe of all connections ends within the time that each has for its pong.
            probe_timeout_ms: client.pong_timeout.as_millis() as u64 + 2_000,
            ..ReplicaTiming::default()
        };
        let directory =
            Directory::new(&id, &settings.registry.scopes, &timing, random_number()?, cluster.is_on(), clock.now_ms());
        let (registry, registry_messages) = std::sync::mpsc::channel();
        let stats = &settings.store.stats;
        let mut key = [0; 32];
        rand::fill(&mut key).map_err(|_| no_random_numbers())?;
        let signer = Arc::new(HmacSigner::new(key));
        let session = session::SessionSettings {
            client: client.clone(),
            namespaces: Arc::new(Namespaces::new(settings.channel.clone())),
            verifier: Box::new(verifier),
            scopes: directory.scopes(),
            version: crate::VERSION,
            id: id.clone(),
            signer: signer.clone(),
            users: users_of(client),
            line_idle: settings.tcp.idle_timeout,
            deferred_max: deferred_max(&settings),
            track: TrackLimits { rate: if stats.enabled { stats.track_rate } else { 0 }, props_max: stats.track_size },
        };
        let databases = store::opening(&settings, &session.namespaces, &id)?;
        let statistics = store::stats_opening(&settings)?;
        let (shards, mailboxes) = (0..shards).map(|_| ShardHandle::new()).unzip();
        let (cluster, joining) = nats::join(&settings, (&id, clock.now_ms()), &directory)?.unzip();
        let node = Arc::new(Node::new(
            settings,
            session,
            clock,
            id,
            NodeHandles { shards, registry, cluster, signer, tls, proxies, origins, serve_node: api::serve_node },
        ));
        if let Some(databases) = databases {
            store::open(&node, &databases).map_err(|source| StartError::Database { database: "primary", source })?;
        }
        if let Some(statistics) = statistics {
            let opened = Stats::open(&statistics).map_err(|source| StartError::Database { database: "stats", source });
            node.set_stats(opened?);
        }
        Ok(Server { node, mailboxes, directory, registry_messages, joining, renewal, listeners, addresses })
    }

    /// The address that was bound for HTTP.
    pub fn address(&self) -> SocketAddr {
        self.addresses.http
    }

    /// The address that was bound for lines over TCP, if they are served.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.addresses.lines
    }

    /// The address that was bound for the server API, metrics and probes, if it is not that of clients.
    pub fn internal_address(&self) -> Option<SocketAddr> {
        self.addresses.inner
    }

    /// Starts the shards, one thread each.
    ///
    /// # Errors
    /// [`StartError::System`].
    pub fn start(self) -> Result<Running, StartError> {
        let Server { node, mailboxes, directory, registry_messages, joining, renewal, listeners, addresses } = self;
        let started = actor::start(Arc::clone(&node), directory, registry_messages);
        let registry_actor = started.map_err(|source| StartError::System { what: "a thread", source })?;
        if let Some(joining) = joining {
            let node = Arc::clone(&node);
            joining.start(move |event| nats::handle(&node, event))?;
        }
        let mut threads = Vec::with_capacity(mailboxes.len());
        for (id, (mailbox, listeners)) in mailboxes.into_iter().zip(listeners).enumerate() {
            let seed = random_number()?;
            let node = Arc::clone(&node);
            let thread = std::thread::Builder::new().name(format!("shard-{id}"));
            let started = thread.spawn(move || {
                if let Err(error) = run_shard(&node, id as ShardId, mailbox, listeners, seed) {
                    tracing::error!(shard = id, %error, "a shard could not run");
                }
            });
            threads.push(started.map_err(|source| StartError::System { what: "a thread", source })?);
        }
        if let Some(renewal) = renewal {
            renewal.start().map_err(|source| StartError::System { what: "a thread", source })?;
        }
        Ok(Running { node, threads, registry_actor, addresses })
    }
}

/// A running node. [`Running::stop`] stops it; if this is dropped, the node runs on.
pub struct Running {
    node: Arc<Node>,
    threads: Vec<JoinHandle<()>>,
    registry_actor: JoinHandle<()>,
    addresses: Addresses,
}

impl Running {
    /// The address that it listens on for HTTP.
    pub fn address(&self) -> SocketAddr {
        self.addresses.http
    }

    /// The address that it listens on for lines over TCP, if they are served.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.addresses.lines
    }

    /// The address that it listens on for the server API, metrics and probes, if it is not that of clients.
    pub fn internal_address(&self) -> Option<SocketAddr> {
        self.addresses.inner
    }

    /// Drains and stops: accepts no more clients, disconnects the clients (3001) spread over `shutdown.spread`, and
    /// replies to the requests that are under way. Blocks until all have gone, or `shutdown.timeout` is over.
    pub fn stop(self) {
        let settings = &self.node.settings.shutdown;
        let until = Instant::now() + settings.timeout;
        self.node.draining.send_replace(true);
        let over_ms = settings.spread.min(settings.timeout).as_millis() as u64;
        let mut drains: Vec<oneshot::Receiver<()>> = Vec::with_capacity(self.threads.len());
        for shard in 0..self.threads.len() {
            let (done, drained) = oneshot::channel();
            self.node.send(shard as ShardId, Message::Drain { over_ms, done });
            drains.push(drained);
        }
        while Instant::now() < until
            && drains.iter_mut().any(|drained| drained.try_recv() == Err(oneshot::error::TryRecvError::Empty))
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.node.is_stopped.store(true, Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
        self.node.send_to_registry(RegistryMessage::Stop);
        let _ = self.registry_actor.join();
        if let Some(cluster) = &self.node.cluster {
            cluster.leave();
        }
        if let Some(store) = self.node.store() {
            store.close();
        }
        if let Some(stats) = self.node.stats() {
            stats.close();
        }
    }
}

/// One shard's thread: its runtime, its poller, its listener, its loop.
fn run_shard(
    node: &Arc<Node>,
    id: ShardId,
    mailbox: UnboundedReceiver<Message>,
    listeners: Listeners,
    seed: u64,
) -> io::Result<()> {
    let runtime: LocalRuntime = Builder::new_current_thread()
        .enable_all()
        .event_interval(TASKS_PER_LOOK)
        .build_local(LocalOptions::default())?;
    runtime.block_on(async {
        let poller = Poller::new()?;
        let registry = poller.registry()?;
        Shard::new(id, Arc::clone(node), mailbox, registry, listeners, seed)?.run(poller).await;
        Ok(())
    })
}

/// Bytes of commands that may wait in a session: twice the largest message that any transport takes.
fn deferred_max(settings: &Settings) -> usize {
    let streams = [&settings.http_stream, &settings.sse, &settings.uni_http_stream, &settings.uni_sse];
    let bodies = streams
        .into_iter()
        .map(|stream| stream.max_request_body_size())
        .chain([settings.emulation.max_request_body_size()]);
    let largest = bodies.chain([settings.websocket.message_size_limit, settings.tcp.message_size_limit]).max();
    largest.unwrap_or_default().saturating_mul(2)
}

/// Event loops of the node.
fn shards_of(settings: &Settings) -> usize {
    match settings.node.shards {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        shards => shards.min(usize::from(ShardId::MAX)),
    }
}

/// The protocols that ports of HTTP offer by ALPN.
const HTTP: [&str; 2] = ["h2", "http/1.1"];

/// The TLS configuration of every port, and the certificates that are to be ordered.
fn tls_of(settings: &Settings) -> Result<(PortsTls, Option<PendingRenewal>), TlsError> {
    let (http, tcp) = (&settings.http_server, &settings.tcp);
    let (acme, renewal) = http.tls_autocert.enabled.then(|| Acme::open(&http.tls_autocert)).transpose()?.unzip();
    let open = |section, of: &TlsSettings, protocols: &[&str]| Tls::open(section, of, acme.as_ref(), protocols);
    let ports = PortsTls {
        http: (http.tls.enabled || acme.is_some()).then(|| open("http_server.tls", &http.tls, &HTTP)).transpose()?,
        lines: tcp.tls.enabled.then(|| open("tcp.tls", &tcp.tls, &[])).transpose()?,
        inner: None,
    };
    let inner = match (http.internal_tls.enabled, http.tls_external) {
        (true, _) => Some(Tls::open("http_server.internal_tls", &http.internal_tls.of_port(), None, &HTTP)?),
        (false, true) => None,
        (false, false) => ports.http.clone(),
    };
    Ok((PortsTls { inner, ..ports }, renewal))
}

/// Binds every port: listeners for each shard, and where they listen.
fn listen_everywhere(ports: &Ports, backlog: u32, shards: usize) -> Result<(Vec<Listeners>, Addresses), StartError> {
    let listen_at = |port: PreparedPort| listen(port, backlog, shards);
    let (https, address) = listen_at(ports.http)?;
    let (lines, lines_address) = ports.lines.map(listen_at).transpose()?.unzip();
    let (inner, inner_address) = ports.inner.map(listen_at).transpose()?.unzip();
    let (mut lines, mut inner) = (lines.unwrap_or_default().into_iter(), inner.unwrap_or_default().into_iter());
    let listeners =
        https.into_iter().map(|http| Listeners { http, lines: lines.next(), inner: inner.next() }).collect();
    Ok((listeners, Addresses { http: address, lines: lines_address, inner: inner_address }))
}

/// One listener for each shard on the same address; the kernel spreads connections over them.
fn listen(port: PreparedPort, backlog: u32, count: usize) -> Result<(Vec<TcpListener>, SocketAddr), StartError> {
    let PreparedPort { key, address: mut bound } = port;
    let refused = |address| move |source| StartError::Bind { key, address, source };
    let mut listeners = Vec::with_capacity(count);
    if bound.port() != 0 {
        // A group of listeners would share the port with another process of the same user: that must be an error.
        probe(bound).map_err(refused(bound))?;
    }
    for _ in 0..count {
        let listener = listen_once(bound, backlog).map_err(refused(bound))?;
        bound = listener.local_addr().map_err(refused(bound))?;
        listeners.push(listener);
    }
    Ok((listeners, bound))
}

fn probe(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    serve_both(&socket, address)?;
    socket.bind(&address.into())
}

fn listen_once(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // Small writes should leave at once. Accepted sockets inherit it (tcp(7) on Linux).
    socket.set_tcp_nodelay(true)?;
    serve_both(&socket, address)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Makes the unspecified address of IPv6 include IPv4, whatever the system's default is.
fn serve_both(socket: &Socket, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() && address.ip().is_unspecified() { socket.set_only_v6(false) } else { Ok(()) }
}

fn random_number() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).map_err(|_| no_random_numbers())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn no_random_numbers() -> StartError {
    StartError::System { what: "random numbers", source: io::ErrorKind::Other.into() }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use touchline_engine::claims::{ConnectionClaims, SubscriptionClaims, TokenError, Verifier};
    use touchline_protocol::websocket::{Opcode, encode_masked_frame};

    use super::*;

    /// A fault in the code that serves one connection.
    struct Faulty;

    impl Verifier for Faulty {
        fn connection(&self, _: &str, _: u64) -> Result<ConnectionClaims, TokenError> {
            panic!("a fault that this test has put in")
        }

        fn subscription(&self, _: &str, _: u64) -> Result<SubscriptionClaims, TokenError> {
            panic!("a fault that this test has put in")
        }
    }

    fn connect(address: SocketAddr, command: &str) -> TcpStream {
        let mut socket = TcpStream::connect(address).expect("it listens");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket takes a timeout");
        let head = "GET /connection/websocket HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let mut bytes = head.as_bytes().to_vec();
        encode_masked_frame(Opcode::Text, command.as_bytes(), [1, 2, 3, 4], &mut bytes);
        socket.write_all(&bytes).expect("it reads");
        socket
    }

    fn reads(socket: &mut TcpStream, wanted: &str) -> bool {
        let (mut all, mut some) = (Vec::new(), [0; 512]);
        while let Ok(length @ 1..) = socket.read(&mut some) {
            all.extend_from_slice(&some[..length]);
            if String::from_utf8_lossy(&all).contains(wanted) {
                return true;
            }
        }
        false
    }

    #[test]
    fn a_panic_ends_its_own_connection_only_and_is_counted() {
        let mut settings = Settings::default();
        settings.http_server.address = "127.0.0.1".into();
        settings.http_server.port = 0;
        settings.node.shards = 1;
        settings.client.allow_anonymous_connect_without_token = true;
        let mut server = Server::bind(settings).expect("the settings are good");
        let node = Arc::get_mut(&mut server.node).expect("nobody else has it yet");
        node.session.verifier = Box::new(Faulty);
        let address = server.address();
        let running = server.start().expect("it starts");
        let mut neighbour = connect(address, r#"{"id":1,"connect":{}}"#);
        assert!(reads(&mut neighbour, r#""client":"#));
        let mut victim = connect(address, r#"{"id":1,"connect":{"token":"any"}}"#);
        assert!(!reads(&mut victim, r#""connect""#), "it is closed without a reply");
        let mut frame = Vec::new();
        encode_masked_frame(Opcode::Text, br#"{"id":2,"rpc":{"method":"none"}}"#, [1, 2, 3, 4], &mut frame);
        neighbour.write_all(&frame).expect("the neighbour is still there");
        assert!(reads(&mut neighbour, r#""id":2"#), "and served");
        assert_eq!(running.node.shards[0].metrics.panics.get(), 1);
        assert_eq!(running.node.connections(), 1);
        running.stop();
    }
}
