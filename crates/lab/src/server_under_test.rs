//! The server under test: a new Touchline, or a running server.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::arguments::Options;
use crate::certificate::SelfSignedCertificate;
use crate::guard;
use crate::joining::wait_until_joined;
use crate::nats::Nats;
use crate::process::ChildProcess;
use crate::publisher::PublishClient;
use crate::reaction_parts::OPTIONS;
use crate::socket::LabStream;
use crate::stat::listens;
use crate::transport::ClientTransport;
use crate::wire::Dialect;
use crate::workers::Plan;

/// Secret of the tokens that a server started by the lab accepts.
const SECRET: &str = "the lab's own secret, good on loopback only";
/// Maximum time until a server listens.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Prefix of channels without history.
pub(crate) const PLAIN: &str = "lab:c";
/// Prefix of the ladder's matches.
pub(crate) const MATCHES: &str = "lab:m";
/// Prefix of channels with history.
pub(crate) const HISTORY: &str = "history:c";
/// The table that a server of [`ServerUnderTest::start_consuming`] reads.
pub(crate) const OUTBOX: &str = "outbox";
/// Rows that it reads in one transaction.
pub(crate) const OUTBOX_BATCH: u32 = 1_000;
/// Prefix of channels with history on disk.
pub(crate) const DURABLE: &str = "durable:c";

/// Prefix of channels into which clients publish.
pub(crate) const DIRECT: &str = "direct:c";
/// Prefix of channels about which a backend is asked.
pub(crate) const ASKED: &str = "asked:c";

/// The server under test, and how clients and the lab reach it.
pub(crate) struct ServerUnderTest {
    pub(crate) address: SocketAddr,
    pub(crate) api: PublishClient,
    pub(crate) pid: u32,
    token_secret: Option<String>,
    path: String,
    dialect: Dialect,
    transport: ClientTransport,
    /// The address that subscribers connect to.
    pub(crate) subscriber_address: SocketAddr,
    _own: Option<(ChildProcess, ServerConfigFile)>,
}

/// The configuration file of a server, and its database of durable channels. Both are removed when this is dropped.
struct ServerConfigFile {
    file: PathBuf,
    /// Further words of the command.
    _database: Option<Arc<LabDatabase>>,
}

impl Drop for ServerConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// A directory for a database; it is removed when this is dropped.
pub(crate) struct LabDatabase(pub(crate) PathBuf);

impl LabDatabase {
    /// A directory with a name that is unique in this machine. The server makes it.
    pub(crate) fn new() -> Arc<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("touchline-lab-data-{}-{number}", std::process::id()));
        guard::remove_with_lab(&path);
        Arc::new(LabDatabase(path))
    }

    /// The URL of the primary database, as the configuration has it.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.0.join("primary.db").display())
    }
}

impl Drop for LabDatabase {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The setup of a server that the lab starts.
#[derive(Default)]
struct Setup<'a> {
    nats: Option<&'a Nats>,
    database: Option<&'a Arc<LabDatabase>>,
    commit_size: Option<usize>,
    postgres: Option<&'a str>,
    is_guarded: bool,
    hook: Option<&'a HookSetup>,
    is_consuming: bool,
    /// The port of gRPC.
    grpc: Option<SocketAddr>,
    events: Option<&'a EventsSetup<'a>>,
    /// Interval of reaction totals. `None` = no reactions.
    reactions: Option<&'a str>,
    is_called: bool,
    /// Many nodes on one machine, each with as many clients as it can have.
    is_crowded: bool,
}

/// The actions that call a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskedAction {
    /// Connections without a token.
    Connect,
    /// Subscriptions of the channels [`ASKED`].
    Subscribe,
    /// Publications of clients into the channels [`ASKED`].
    Publish,
}

/// The events that are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventsSetup<'a> {
    /// Where the backend listens.
    pub(crate) backend: SocketAddr,
    pub(crate) types: &'a [&'a str],
    /// The primary database in which events wait; None = they wait in memory.
    pub(crate) postgres: Option<&'a str>,
}

/// A hook that is switched on.
#[derive(Debug, Clone)]
pub(crate) struct HookSetup {
    pub(crate) action: AskedAction,
    /// Where the backend listens.
    pub(crate) backend: SocketAddr,
    pub(crate) timeout: Duration,
}

impl HookSetup {
    /// The address of the backend, as the configuration has it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.backend)
    }

    /// Switches the hook on in a server's configuration.
    fn configure(&self, configuration: &mut serde_json::Value) {
        let mut proxy = json!({"endpoint": self.url(), "timeout": format!("{}ms", self.timeout.as_millis())});
        let mut asked = json!({"name": "asked"});
        match self.action {
            AskedAction::Connect => {
                proxy["enabled"] = json!(true);
                configuration["client"]["proxy"] = json!({"connect": proxy});
            }
            AskedAction::Subscribe => {
                asked["subscribe_proxy_enabled"] = json!(true);
                configuration["channel"]["proxy"] = json!({"subscribe": proxy});
            }
            AskedAction::Publish => {
                asked["publish_proxy_enabled"] = json!(true);
                configuration["channel"]["proxy"] = json!({"publish": proxy});
            }
        }
        if let Some(namespaces) = configuration["channel"]["namespaces"].as_array_mut() {
            namespaces.extend([asked, json!({"name": "direct", "allow_publish_for_client": true})]);
        }
    }
}

impl ServerUnderTest {
    /// The server in the options, or a new one.
    ///
    /// # Errors
    /// When a fresh one does not start.
    pub(crate) fn start(options: &Options) -> Result<Self> {
        ServerUnderTest::launch(options, &Setup::default())
    }

    /// A fresh server with durable channels; `commit_size`: publications in one commit.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_durable(
        options: &Options,
        database: &Arc<LabDatabase>,
        commit_size: Option<usize>,
    ) -> Result<Self> {
        ServerUnderTest::launch(options, &Setup { database: Some(database), commit_size, ..Setup::default() })
    }

    /// A fresh server with durable channels in PostgreSQL, which it reads with as many connections as allowed.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_on_postgres(options: &Options, url: &str) -> Result<Self> {
        ServerUnderTest::launch(options, &Setup { postgres: Some(url), ..Setup::default() })
    }

    /// The same that reads the table [`OUTBOX`] in the same database.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_consuming(options: &Options, url: &str) -> Result<Self> {
        ServerUnderTest::launch(options, &Setup { postgres: Some(url), is_consuming: true, ..Setup::default() })
    }

    /// A fresh server with the usual limits for each client.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_guarded(options: &Options) -> Result<Self> {
        ServerUnderTest::launch(options, &Setup { is_guarded: true, ..Setup::default() })
    }

    /// A fresh server that asks a backend.
    ///
    /// # Errors
    /// When it does not start, or the options name a server that runs already.
    pub(crate) fn start_with_hook(options: &Options, hook: &HookSetup) -> Result<Self> {
        if options.server.is_some() {
            bail!("only a server of the lab's own can be told whom to ask");
        }
        ServerUnderTest::launch(options, &Setup { hook: Some(hook), ..Setup::default() })
    }

    /// A fresh server with the server API over gRPC, and the address of that port.
    ///
    /// # Errors
    /// When it does not start, or the options name a server that runs already.
    pub(crate) fn start_with_grpc(options: &Options) -> Result<(Self, SocketAddr)> {
        if options.server.is_some() {
            bail!("only a server of the lab's own has a known port of gRPC");
        }
        let grpc = free_address()?;
        let server = ServerUnderTest::launch(options, &Setup { grpc: Some(grpc), ..Setup::default() })?;
        Ok((server, grpc))
    }

    /// A fresh server on which any number of calls may wait, and its address for lines over TCP.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_calling(options: &Options) -> Result<(Self, SocketAddr)> {
        let options = Options { transport: ClientTransport::Tcp, ..options.clone() };
        let server = ServerUnderTest::launch(&options, &Setup { is_called: true, ..Setup::default() })?;
        let address = server.subscriber_address;
        Ok((server, address))
    }

    /// A new server that sends lifecycle events to a backend, if one is given.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_with_events(options: &Options, events: Option<&EventsSetup<'_>>) -> Result<Self> {
        let postgres = events.and_then(|events| events.postgres);
        ServerUnderTest::launch(options, &Setup { events, postgres, ..Setup::default() })
    }

    /// A new server whose channels `match:…` have reactions. It publishes their totals at this interval.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_counting(options: &Options, tick: &str) -> Result<Self> {
        ServerUnderTest::launch(options, &Setup { reactions: Some(tick), ..Setup::default() })
    }

    /// As many fresh servers, joined by NATS.
    ///
    /// # Errors
    /// When one does not start.
    pub(crate) fn start_joined(options: &Options, nats: &Nats, count: usize) -> Result<Vec<Self>> {
        ServerUnderTest::join(options, count, &Setup { nats: Some(nats), ..Setup::default() })
    }

    /// As many fresh servers, joined by NATS if there is one. They ping each client once a minute, and wait longer for
    /// pongs and for each other, because all share the same processors.
    ///
    /// # Errors
    /// When one does not start.
    pub(crate) fn start_ladder(options: &Options, nats: Option<&Nats>, count: usize) -> Result<Vec<Self>> {
        ServerUnderTest::join(options, count, &Setup { nats, is_crowded: true, ..Setup::default() })
    }

    fn join(options: &Options, count: usize, setup: &Setup<'_>) -> Result<Vec<Self>> {
        let servers: Vec<_> = (0..count).map(|_| ServerUnderTest::launch(options, setup)).collect::<Result<_>>()?;
        wait_until_joined(&servers.iter().map(|server| &server.api).collect::<Vec<_>>())?;
        Ok(servers)
    }

    fn launch(options: &Options, setup: &Setup<'_>) -> Result<Self> {
        if let (Some(address), Some(pid)) = (options.server, options.pid) {
            if !listens(pid, address.port()) {
                bail!(
                    "--pid {pid}: this process does not listen at port {}; a shell that has started the server is \
                     another process",
                    address.port()
                );
            }
            return Ok(ServerUnderTest {
                address,
                api: PublishClient {
                    address: options.api.unwrap_or(address),
                    key: options.key.clone(),
                    is_tls: options.transport == ClientTransport::Tls,
                },
                pid,
                token_secret: options.token_secret.clone(),
                path: options.path.clone(),
                dialect: options.dialect,
                transport: options.transport,
                subscriber_address: address,
                _own: None,
            });
        }
        let address = free_address()?;
        let file = std::env::temp_dir().join(format!("touchline-lab-{}-{}.json", std::process::id(), address.port()));
        let tcp = free_address()?;
        let mut settings = configured(address, setup);
        if setup.is_called {
            let scope = &mut settings["registry"]["scopes"][0];
            (scope["allow_call_for_client"], scope["call_timeout_max"]) = (json!(true), json!("10m"));
            (scope["calls_limit"], scope["client_calls_limit"]) = (json!(1_000_000), json!(1_000_000));
        }
        options.transport.configure(&mut settings, tcp.port());
        if options.transport == ClientTransport::Tls {
            settings["http_server"]["tls"] = SelfSignedCertificate::make()?.settings();
        }
        guard::remove_with_lab(&file);
        let configuration = ServerConfigFile { file: file.clone(), _database: setup.database.cloned() };
        std::fs::write(&file, settings.to_string()).context("failed to write the server's configuration")?;
        let own = serve(&configuration, options, address)?;
        let subscriber_address = if options.transport == ClientTransport::Tcp { tcp } else { address };
        Ok(ServerUnderTest {
            subscriber_address,
            ..ServerUnderTest::own(address, options.transport, own, configuration)
        })
    }

    fn own(
        address: SocketAddr,
        transport: ClientTransport,
        own: ChildProcess,
        configuration: ServerConfigFile,
    ) -> Self {
        ServerUnderTest {
            address,
            api: PublishClient { address, key: "lab".to_owned(), is_tls: transport == ClientTransport::Tls },
            pid: own.pid(),
            token_secret: Some(SECRET.to_owned()),
            path: "/connection/websocket".to_owned(),
            dialect: Dialect::Centrifugal,
            transport,
            subscriber_address: address,
            _own: Some((own, configuration)),
        }
    }

    /// A new connection to the address at which clients speak HTTP and WebSocket.
    pub(crate) fn connect(&self) -> Result<LabStream<TcpStream>> {
        LabStream::connect(self.address, self.transport == ClientTransport::Tls)
    }

    /// The token of a user. `None` = clients of this server have no tokens.
    pub(crate) fn token(&self, user: usize) -> Option<String> {
        self.token_secret.as_deref().map(|secret| crate::token::sign(secret, user, false))
    }

    /// Ends a server that the lab has started, as a crash would. The result can start it again.
    pub(crate) fn kill(self) -> Result<Killed> {
        let (own, configuration) = self._own.context("only a server of the lab's own can be killed")?;
        drop(own);
        Ok(Killed { address: self.address, transport: self.transport, configuration })
    }

    /// A plan of subscribers of this server. With `has_tokens` each sends a token, if the server has a secret.
    pub(crate) fn plan(
        &self,
        connections: usize,
        prefix: &str,
        channels: usize,
        data_size: usize,
        has_tokens: bool,
    ) -> Plan {
        Plan {
            servers: vec![self.subscriber_address],
            path: self.path.clone(),
            dialect: self.dialect,
            transport: self.transport,
            connections,
            prefix: prefix.to_owned(),
            channels,
            data_size,
            token_secret: self.token_secret.clone().filter(|_| has_tokens),
            has_token_ids: false,
            is_subscribing: true,
            shows_progress: true,
        }
    }
}

/// A server that was killed, and the data to start it again.
pub(crate) struct Killed {
    address: SocketAddr,
    transport: ClientTransport,
    configuration: ServerConfigFile,
}

impl Killed {
    /// Starts the same server again, on the same address.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn revive(self, options: &Options) -> Result<ServerUnderTest> {
        let own = serve(&self.configuration, options, self.address)?;
        Ok(ServerUnderTest::own(self.address, self.transport, own, self.configuration))
    }
}

/// Starts a server, and waits until it listens.
fn serve(configuration: &ServerConfigFile, options: &Options, address: SocketAddr) -> Result<ChildProcess> {
    let mut words = vec!["serve".to_owned(), "--config".to_owned(), configuration.file.display().to_string()];
    if let Some(shards) = options.shards {
        words.extend(["--shards".to_owned(), shards.to_string()]);
    }
    let child: Child = Command::new(server_program(options)?)
        .args(&words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("failed to start a server")?;
    let mut own = ChildProcess::of(child, "the server under test");
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Some(status) = own.0.try_wait()? {
            bail!("the server under test ended at once: {status}");
        }
        if began.elapsed() > START_TIMEOUT {
            bail!("the server under test does not listen");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(own)
}

/// The program of the server under test.
///
/// # Errors
/// When there is no such program.
pub(crate) fn server_program(options: &Options) -> Result<PathBuf> {
    let program = match &options.touchline {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("this program has no path")?.with_file_name("touchline"),
    };
    if !program.is_file() {
        bail!("there is no server at {}: name its program with --touchline PROGRAM", program.display());
    }
    Ok(program)
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn configured(address: SocketAddr, setup: &Setup<'_>) -> serde_json::Value {
    let open = json!({"allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true});
    let mut history = json!({"name": "history", "history_size": 1_000, "history_ttl": "1h", "force_recovery": true});
    let mut lab = json!({"name": "lab"});
    let mut delta = json!({"name": "delta", "allowed_delta_types": ["fossil"]});
    for (option, value) in open.as_object().into_iter().flatten() {
        history[option] = value.clone();
        lab[option] = value.clone();
        delta[option] = value.clone();
    }
    let mut all = json!({
        "http_server": {"address": address.ip(), "port": address.port()},
        "http_api": {"key": "lab"},
        "client": {
            "token": {"hmac_secret_key": SECRET},
            "allow_anonymous_connect_without_token": true,
            "allowed_origins": ["*"],
            // A few clients of the lab send as many commands as many clients do in production.
            "command_rate_limit": 0,
        },
        "registry": {"scopes": [{"name": "lab", "allow_register": ["*"], "allow_for_anonymous": true}]},
        "channel": {"without_namespace": open, "namespaces": [lab, history, delta]},
        "log": {"level": "error"},
    });
    if setup.is_guarded {
        all["client"].as_object_mut().map(|client| client.remove("command_rate_limit"));
    }
    join_others(&mut all, setup);
    if let Some(grpc) = setup.grpc {
        all["grpc_api"] = json!({"enabled": true, "address": grpc.ip(), "port": grpc.port()});
    }
    if let Some(hook) = setup.hook {
        hook.configure(&mut all);
    }
    setup.reactions.iter().for_each(|tick| count_reactions(&mut all, tick));
    if let Some(EventsSetup { backend, types, postgres }) = setup.events {
        let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let endpoint = format!("http://{backend}/events");
        let mut told = json!({"name": "lab", "endpoint": endpoint, "types": types, "secret": secret});
        told["durable"] = postgres.is_some().into();
        all["events"] = json!([told]);
    }
    let sqlite = setup.database.map(|database| database.url());
    if let Some(url) = setup.postgres.or(sqlite.as_deref()) {
        let mut durable = all["channel"]["namespaces"][1].clone();
        (durable["name"], durable["durable"]) = (json!("durable"), json!(true));
        all["channel"]["namespaces"].as_array_mut().into_iter().for_each(|namespaces| namespaces.push(durable.clone()));
        all["store"] = json!({"primary": {"url": url, "pool_size": if setup.postgres.is_some() { 64 } else { 4 }}});
        if setup.is_consuming {
            all["consumers"] = json!([{"name": "lab", "enabled": true, "type": "postgresql", "postgresql": {
                "dsn": url,
                "outbox_table_name": OUTBOX,
                "partition_select_limit": OUTBOX_BATCH,
                "partition_poll_interval": "10ms",
            }}]);
        }
        if let Some(size) = setup.commit_size {
            all["store"]["commit_size"] = json!(size);
        }
    }
    all
}

/// The node is part of a cluster if there is NATS. In a crowd nodes and clients share their processors, so the load is
/// late, and not the other side.
fn join_others(all: &mut serde_json::Value, setup: &Setup<'_>) {
    if let Some(nats) = setup.nats {
        all["cluster"] = json!({"engine": "nats", "name": "lab", "nats_url": [nats.url]});
    }
    if setup.is_crowded {
        (all["client"]["ping_interval"], all["client"]["pong_timeout"]) = (json!("60s"), json!("30s"));
        (all["cluster"]["heartbeat_interval"], all["cluster"]["node_timeout"]) = (json!("3s"), json!("20s"));
    }
}

/// Channels `match:…` have reactions.
fn count_reactions(all: &mut serde_json::Value, tick: &str) {
    let mut counting = all["channel"]["namespaces"][0].clone();
    counting["name"] = json!("match");
    (counting["reactions"], counting["reactions_rate"]) = (json!(OPTIONS), json!(1_000));
    all["channel"]["namespaces"].as_array_mut().into_iter().for_each(|namespaces| namespaces.push(counting.clone()));
    all["reactions"] = json!({"tick": tick});
}
