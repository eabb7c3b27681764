//! A node that is ready to start, and a node that runs.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use touchline_cluster::Joining;
use touchline_config::WrittenKey;
use touchline_engine::ShardId;
use touchline_engine::directory::Directory;
use touchline_lock::Lock;

use crate::api::start_watching;
use crate::auth::KeyFetcher;
use crate::backend::activity::note_activity;
use crate::backend::{nats, seen};
use crate::consumers::{PreparedConsumer, RunningConsumers};
use crate::draining::RunningDrain;
use crate::events::{EventEndpoint, EventsStart};
use crate::handle::ServerHandle;
use crate::hooks::{self, HookHandler, WorkerStart};
use crate::node::Node;
use crate::reactions::{self, ReactionsStart};
use crate::registry::actor;
use crate::reloading::{Reloader, ReplacedThreads, RunningTeller};
use crate::runtime::ends_process::EndsProcess;
use crate::runtime::event_mailbox::EventMessage;
use crate::runtime::hook_mailbox::HookMessage;
use crate::runtime::mailbox::Message;
use crate::runtime::poller::Poller;
use crate::runtime::process::VERSION;
use crate::runtime::registry_mailbox::RegistryMessage;
use crate::runtime::reload::{ReloadFn, SettingsSource};
use crate::runtime::reply_to::ReplyTo;
use crate::shard::acceptor::BoundListener;
use crate::shard::services::Services;
use crate::shard::state::Shard;
use crate::start_error::StartError;
use crate::tls::{PendingRenewal, PortsTls};
use crate::traces::{self, TraceExport};

/// How many tasks a shard's thread runs before it polls its sockets again.
const TASKS_PER_LOOK: u32 = 31;

/// A node whose settings are checked and whose addresses are bound, and which does not serve yet.
pub struct Server {
    pub(crate) node: Arc<Node>,
    pub(crate) directory: Directory<ReplyTo>,
    pub(crate) registry_messages: std::sync::mpsc::Receiver<RegistryMessage>,
    pub(crate) joining: Option<Joining>,
    /// Certificates that are ordered once the shards can serve the challenges; None = there are none to order.
    pub(crate) renewal: Option<PendingRenewal>,
    /// What the thread that asks backends begins with; None = no hook is switched on.
    pub(crate) worker: Option<WorkerStart>,
    /// Answers the hooks that have no endpoint.
    pub(crate) handler: Option<Arc<dyn HookHandler>>,
    /// Where a reload reads settings from, and the keys of the start; None = the program does not say it.
    pub(crate) source: Option<(Box<dyn SettingsSource>, Vec<WrittenKey>)>,
    /// What the thread that sends events to backends begins with; None = no endpoint wants events.
    pub(crate) teller: Option<(EventsStart, UnboundedSender<Vec<EventEndpoint>>)>,
    pub(crate) tls: PortsTls,
    /// What the thread that keeps the totals of reactions begins with.
    pub(crate) reactions: ReactionsStart,
    /// The consumers that are switched on.
    pub(crate) consumers: Vec<PreparedConsumer>,
    pub(crate) shards: Vec<ShardParts>,
    /// The functions of higher layers that the shards call.
    pub(crate) services: Services,
    /// The thread that fetches keys; it has tried each key set once. None = there are no keys to fetch.
    pub(crate) fetcher: Option<KeyFetcher>,
    pub(crate) addresses: Addresses,
}

/// What the thread of one shard begins with.
pub(crate) struct ShardParts {
    pub(crate) mailbox: UnboundedReceiver<Message>,
    pub(crate) listeners: Vec<BoundListener>,
    /// A random number for the shard.
    pub(crate) seed: u64,
}

/// The addresses that a node listens on; None = that port is not served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) http: SocketAddr,
    pub(crate) lines: Option<SocketAddr>,
    pub(crate) inner: Option<SocketAddr>,
    pub(crate) grpc: Option<SocketAddr>,
}

impl Server {
    /// The address that is bound for HTTP.
    pub fn address(&self) -> SocketAddr {
        self.addresses.http
    }

    /// The address that is bound for lines over TCP; None = lines are not served.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.addresses.lines
    }

    /// The address that is bound for the server API, metrics and probes; None = they share the port of clients.
    pub fn internal_address(&self) -> Option<SocketAddr> {
        self.addresses.inner
    }

    /// The address that is bound for the server API over gRPC; None = gRPC is not served.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.addresses.grpc
    }

    /// Starts the shards, one thread each.
    ///
    /// # Errors
    /// [`StartError::System`] if the system refuses a thread; an error of the cluster, the consumers or the traces if
    /// they cannot start.
    pub fn start(self) -> Result<Running, StartError> {
        let Server {
            node,
            shards,
            directory,
            registry_messages,
            joining,
            renewal,
            worker,
            handler,
            source,
            teller,
            tls,
            reactions: reactions_start,
            consumers,
            services,
            addresses,
            fetcher,
        } = self;
        let no_thread = |source| StartError::System { what: "a thread", source };
        // When it is dropped, everything that has started by then stops. So a failed start leaves nothing.
        let mut running = Running {
            handle: ServerHandle::new(&node),
            node: Arc::clone(&node),
            threads: Vec::with_capacity(shards.len()),
            registry_actor: None,
            replaced: Arc::default(),
            reactions: None,
            addresses,
            traces: traces::start(&node.newest.get().settings.opentelemetry, &node.id)?,
        };
        running.registry_actor =
            Some(actor::start(Arc::clone(&node), directory, registry_messages).map_err(no_thread)?);
        if let Some(joining) = joining {
            joining.start(nats::handler(&node))?;
        }
        running.replaced.lock().fetcher = fetcher;
        let worker = worker.map(|worker| hooks::start(Arc::clone(&node), worker)).transpose();
        running.replaced.lock().worker = worker.map_err(no_thread)?;
        let teller = teller.map(|(start, endpoints)| RunningTeller::start(&node, start, endpoints)).transpose()?;
        running.replaced.lock().teller = teller;
        let reactions = reactions::start(Arc::clone(&node), reactions_start);
        running.reactions = Some(reactions.map_err(no_thread)?);
        running.start_shards(services, shards)?;
        if let Some(renewal) = renewal {
            renewal.start().map_err(no_thread)?;
        }
        running.replaced.lock().consumers = RunningConsumers::start(&node, consumers)?;
        if let Some((source, written)) = source {
            let threads = Arc::clone(&running.replaced);
            let (node, written) = (Arc::downgrade(&node), Lock::new(written));
            let reloader = Reloader { node: node.clone(), source, handler, threads, written, tls };
            let reload: ReloadFn = Arc::new(move || reloader.reload());
            drop(node.upgrade().map(|node| node.reload.set(reload)));
        }
        note_activity(&node, "start", VERSION, "ok");
        start_watching(&node).map_err(no_thread)?;
        Ok(running)
    }
}

/// A running node and a handle of it. The node stops when [`Running::stop`] is called or when this value is dropped.
pub struct Running {
    handle: ServerHandle,
    node: Arc<Node>,
    threads: Vec<JoinHandle<()>>,
    registry_actor: Option<JoinHandle<()>>,
    /// The threads that a reload replaces.
    replaced: Arc<Lock<ReplacedThreads>>,
    /// The thread that keeps the totals of reactions.
    reactions: Option<JoinHandle<()>>,
    addresses: Addresses,
    /// The thread that exports traces; None = traces are off.
    traces: Option<TraceExport>,
}

impl Running {
    /// The address on which the node listens for HTTP.
    pub fn address(&self) -> SocketAddr {
        self.addresses.http
    }

    /// The address on which the node listens for lines over TCP; None = lines are not served.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.addresses.lines
    }

    /// The address on which the node listens for the server API, metrics and probes; None = they share the port of
    /// clients.
    pub fn internal_address(&self) -> Option<SocketAddr> {
        self.addresses.inner
    }

    /// The address on which the node listens for the server API over gRPC; None = gRPC is not served.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.addresses.grpc
    }

    /// Returns a handle for other threads. It does not keep the server running.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Drains and stops the node. It accepts no more clients, and disconnects its clients (3001) as fast as the other
    /// nodes can take them, over at least `shutdown.spread`. It replies to the requests that are under way. Blocks
    /// until all clients are gone or `shutdown.timeout` is over.
    pub fn stop(self) {
        drop(self);
    }

    /// Starts the threads of the shards, and waits until all have started.
    fn start_shards(&mut self, services: Services, shards: Vec<ShardParts>) -> Result<(), StartError> {
        let refused = |source| StartError::System { what: "the thread of a shard", source };
        let (ready, readiness) = std::sync::mpsc::channel();
        for (id, parts) in shards.into_iter().enumerate() {
            let (node, ready) = (Arc::clone(&self.node), ready.clone());
            let thread = std::thread::Builder::new().name(format!("shard-{id}"));
            let started = thread.spawn(move || {
                let _ends = EndsProcess::of("shard");
                if let Err(error) = run_shard(node, id as ShardId, services, parts, &ready) {
                    let _ = ready.send(Err(error));
                }
            });
            self.threads.push(started.map_err(refused)?);
        }
        drop(ready);
        for _ in 0..self.threads.len() {
            let started = readiness.recv().unwrap_or_else(|_| Err(io::Error::other("its thread has ended")));
            started.map_err(refused)?;
        }
        Ok(())
    }

    fn drain_and_stop(&mut self) {
        let timeout = self.node.generation().settings.shutdown.timeout;
        let until = self.node.clock.time().now() + timeout;
        let mut drain = RunningDrain::begin(&self.node);
        note_activity(&self.node, "drain", "", "ok");
        // A running reload holds the lock, and sees that the node stops. Its threads end after the drain.
        let consumers = self.replaced.try_lock().and_then(|mut threads| threads.consumers.take());
        if let Some(mut consumers) = consumers {
            consumers.stop(timeout);
        }
        // The rest of the time is for the close frames of clients whose backend has not answered by then.
        let patience_ms = timeout.as_millis() as u64 / 10 * 9;
        let mut drains: Vec<oneshot::Receiver<()>> = Vec::with_capacity(self.threads.len());
        for shard in 0..self.threads.len() {
            let (done, drained) = oneshot::channel();
            self.node.send(shard as ShardId, Message::Drain { patience_ms, done });
            drains.push(drained);
        }
        while self.node.clock.time().now() < until
            && drains.iter_mut().any(|drained| drained.try_recv() == Err(oneshot::error::TryRecvError::Empty))
        {
            drain.advance(&self.node);
            // real time: a heartbeat that reads the node's clock.
            std::thread::sleep(Duration::from_millis(10));
        }
        self.node.is_stopped.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let ReplacedThreads { worker, fetcher, teller, consumers } = std::mem::take(&mut *self.replaced.lock());
        drop(fetcher);
        if let Some(mut consumers) = consumers {
            consumers.stop(Duration::ZERO);
        }
        if let (Some(hooks), Some(worker)) = (&self.node.newest.get().hooks, worker) {
            hooks.send(HookMessage::Stop);
            let _ = worker.join();
        }
        if let (Some(events), Some(teller)) = (self.node.events.get(), teller) {
            events.command(EventMessage::Stop);
            let _ = teller.thread.join();
        }
        if let Some(reactions) = self.reactions.take() {
            self.node.reactions.stop();
            let _ = reactions.join();
        }
        self.node.send_to_registry(RegistryMessage::Stop);
        if let Some(registry_actor) = self.registry_actor.take() {
            let _ = registry_actor.join();
        }
        if let Some(cluster) = &self.node.cluster {
            cluster.leave();
        }
        seen::finish(&self.node);
        if let Some(store) = self.node.store() {
            store.close();
        }
        if let Some(stats) = self.node.stats() {
            stats.close();
        }
        if let Some(traces) = self.traces.take() {
            traces.stop();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.drain_and_stop();
    }
}

impl Deref for Running {
    type Target = ServerHandle;

    fn deref(&self) -> &ServerHandle {
        &self.handle
    }
}

/// Runs the thread of one shard: its runtime, its poller, its listeners and its loop. `ready` gets the shard's start;
/// a failure of the start is returned.
fn run_shard(
    node: Arc<Node>,
    id: ShardId,
    services: Services,
    parts: ShardParts,
    ready: &Sender<io::Result<()>>,
) -> io::Result<()> {
    let runtime: LocalRuntime = Builder::new_current_thread()
        .enable_all()
        .event_interval(TASKS_PER_LOOK)
        .build_local(LocalOptions::default())?;
    runtime.block_on(async {
        node.shards[usize::from(id)].begin_thread();
        let poller = Poller::new()?;
        let registry = poller.registry()?;
        let ShardParts { mailbox, listeners, seed } = parts;
        #[cfg(test)]
        if seed == tests::FAULTY_SEED {
            return Err(io::Error::other("a fault that a test has put in"));
        }
        let shard = Shard::new(id, node, services, mailbox, registry, listeners, seed)?;
        let _ = ready.send(Ok(()));
        shard.run(poller).await;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::PathBuf;
    use std::sync::Weak;
    use std::time::{Duration, Instant};

    use touchline_config::Settings;
    use touchline_engine::claims::{ConnectionClaims, SubscriptionClaims, TokenError, Verifier};
    use touchline_protocol::websocket::{Opcode, encode_masked_frame};

    use super::*;
    use crate::shard::backends::FAULTY_CHANNEL;

    /// The seed of a shard that cannot start.
    pub(super) const FAULTY_SEED: u64 = u64::MAX;

    /// Panics in the code that serves one connection.
    struct Faulty;

    impl Verifier for Faulty {
        fn connection(&self, _: &str, _: u64) -> Result<ConnectionClaims, TokenError> {
            panic!("a fault that this test has put in")
        }

        fn subscription(&self, _: &str, _: u64) -> Result<SubscriptionClaims, TokenError> {
            panic!("a fault that this test has put in")
        }
    }

    fn settings(shards: usize) -> Settings {
        let mut settings = Settings::default();
        settings.http_server.address = "127.0.0.1".into();
        settings.http_server.port = 0;
        settings.node.shards = shards;
        settings.client.allow_anonymous_connect_without_token = true;
        settings.shutdown.spread = Duration::ZERO;
        settings
    }

    /// Adds both databases to the settings, in a new directory.
    fn with_databases(mut settings: Settings, name: &str) -> (Settings, PathBuf) {
        let directory = std::env::temp_dir().join(format!("touchline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        let channels = &mut settings.channel.without_namespace;
        (channels.durable, channels.history_size, channels.history_ttl) = (true, 10, Duration::from_secs(60));
        (channels.allow_subscribe_for_client, channels.allow_subscribe_for_anonymous) = (true, true);
        (channels.allow_publish_for_client, channels.allow_publish_for_anonymous) = (true, true);
        settings.store.primary.url = format!("sqlite:{}", directory.join("primary.db").display());
        settings.store.stats.url = format!("sqlite:{}", directory.join("stats.db").display());
        settings.store.stats.enabled = true;
        (settings, directory)
    }

    /// Whether the node is freed. Threads of the databases may take a moment to end.
    fn is_freed(node: &Weak<Node>) -> bool {
        touchline_testkit::comes(touchline_testkit::PATIENCE, || node.strong_count() == 0)
    }

    /// Runs a node that has a client and an HTTP connection that waits for its next request. Then stops the node.
    fn run_and_stop(settings: Settings, publishes: bool) -> Weak<Node> {
        let server = Server::bind(settings).expect("the settings are good");
        let (node, address) = (Arc::downgrade(&server.node), server.address());
        let running = server.start().expect("it starts");
        let mut client = connect(address, r#"{"id":1,"connect":{}}"#);
        assert!(reads(&mut client, r#""client":"#));
        if publishes {
            let commands =
                [r#"{"id":2,"subscribe":{"channel":"a"}}"#, r#"{"id":3,"publish":{"channel":"a","data":{"n":1}}}"#];
            for command in commands {
                let mut frame = Vec::new();
                encode_masked_frame(Opcode::Text, command.as_bytes(), [1, 2, 3, 4], &mut frame);
                client.write_all(&frame).expect("it reads");
            }
            assert!(reads(&mut client, r#""id":3,"publish""#), "the publication is stored");
        }
        let mut idle = TcpStream::connect(address).expect("it listens");
        idle.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket takes a timeout");
        idle.write_all(b"GET /none HTTP/1.1\r\nHost: t\r\n\r\n").expect("it reads");
        assert!(reads(&mut idle, "not found"));
        assert!(node.upgrade().is_some(), "it runs");
        running.stop();
        node
    }

    #[test]
    fn a_node_that_has_stopped_is_freed() {
        assert!(is_freed(&run_and_stop(settings(2), false)));
    }

    #[test]
    fn a_node_with_databases_that_has_stopped_is_freed() {
        let (settings, directory) = with_databases(settings(2), "freed");
        assert!(is_freed(&run_and_stop(settings, true)));
        std::fs::remove_dir_all(directory).expect("nothing is in use any more");
    }

    #[test]
    fn a_node_that_never_starts_is_freed() {
        let server = Server::bind(settings(2)).expect("the settings are good");
        let node = Arc::downgrade(&server.node);
        drop(server);
        assert!(node.upgrade().is_none());
        let (settings, directory) = with_databases(settings(2), "unstarted");
        let server = Server::bind(settings).expect("the settings are good");
        let node = Arc::downgrade(&server.node);
        drop(server);
        assert!(is_freed(&node), "its databases do not keep it");
        // The threads that open the databases may still write into the directory.
        let until = Instant::now() + Duration::from_secs(20);
        while directory.exists() && Instant::now() < until {
            let _ = std::fs::remove_dir_all(&directory);
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
    fn a_shard_that_cannot_start_ends_the_start_and_leaves_nothing() {
        let (settings, directory) = with_databases(settings(3), "unready");
        let mut server = Server::bind(settings).expect("the settings are good");
        server.shards[1].seed = FAULTY_SEED;
        let node = Arc::downgrade(&server.node);
        let Err(error) = server.start() else { panic!("it does not start") };
        assert_eq!(error.to_string(), "the system refused the thread of a shard");
        assert!(is_freed(&node), "its threads have ended");
        std::fs::remove_dir_all(directory).expect("nothing is in use any more");
    }

    #[test]
    fn a_panic_in_the_home_of_a_channel_ends_the_process() {
        const FAULT: &str = "FAULT_OF_A_TEST";
        const SIGABRT: i32 = 6;
        if std::env::var_os(FAULT).is_none() {
            let test = "server::tests::a_panic_in_the_home_of_a_channel_ends_the_process";
            let mut child = std::process::Command::new(std::env::current_exe().expect("a path"));
            let child = child.args(["--exact", test, "--nocapture"]).env(FAULT, "1").output().expect("it runs");
            assert_eq!(child.status.signal(), Some(SIGABRT), "{}", String::from_utf8_lossy(&child.stderr));
            return;
        }
        let mut settings = settings(2);
        settings.channel.without_namespace.allow_publish_for_anonymous = true;
        settings.channel.without_namespace.allow_publish_for_client = true;
        let server = Server::bind(settings).expect("the settings are good");
        let address = server.address();
        let _running = server.start().expect("it starts");
        // Both shards accept, so the home runs on its own thread, and on that of another connection.
        for _ in 0..100 {
            let mut client = connect(address, r#"{"id":1,"connect":{}}"#);
            assert!(reads(&mut client, r#""client":"#));
            let command = format!(r#"{{"id":2,"publish":{{"channel":"{FAULTY_CHANNEL}","data":1}}}}"#);
            let mut frame = Vec::new();
            encode_masked_frame(Opcode::Text, command.as_bytes(), [1, 2, 3, 4], &mut frame);
            client.write_all(&frame).expect("it reads");
            reads(&mut client, "never");
        }
        panic!("the process goes on");
    }

    #[test]
    fn a_panic_ends_its_own_connection_only_and_is_counted() {
        let mut server = Server::bind(settings(1)).expect("the settings are good");
        let node = Arc::get_mut(&mut server.node).expect("nobody else has it yet");
        let newest = Arc::get_mut(&mut node.newest).expect("nothing else has it yet");
        newest.get_mut().expect("no shard has it yet").session.verifier = Box::new(Faulty);
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
