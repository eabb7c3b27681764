//! The server under test: a fresh Touchline, or one that runs already.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::arguments::Options;
use crate::certificate::Certificate;
use crate::nats::Nats;
use crate::process::Part;
use crate::publisher::Api;
use crate::stream::Stream;
use crate::transport::Transport;
use crate::wire::Dialect;
use crate::workers::Plan;

/// Secret of the tokens that a server of our own accepts.
const SECRET: &str = "the lab's own secret, good on loopback only";
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How long servers may take to find each other.
const JOINING: Duration = Duration::from_secs(3);

/// Prefix of channels without history.
pub(crate) const PLAIN: &str = "lab:c";
/// Prefix of channels with history.
pub(crate) const HISTORY: &str = "history:c";
/// Prefix of channels with history on disk.
pub(crate) const DURABLE: &str = "durable:c";

/// A server and how to reach it.
pub(crate) struct ServerUnderTest {
    pub(crate) address: SocketAddr,
    pub(crate) api: Api,
    pub(crate) pid: u32,
    token_secret: Option<String>,
    path: String,
    dialect: Dialect,
    way: Transport,
    /// Where subscribers go.
    pub(crate) door: SocketAddr,
    _own: Option<(Part, Configuration)>,
}

/// A configuration file, and the database of durable channels, which are removed at the end.
struct Configuration {
    file: PathBuf,
    _database: Option<Arc<Database>>,
}

impl Drop for Configuration {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// A directory for a database; it is gone when this is dropped.
pub(crate) struct Database(pub(crate) PathBuf);

impl Database {
    /// A new one.
    pub(crate) fn new() -> Arc<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        Arc::new(Database(std::env::temp_dir().join(format!("touchline-lab-data-{}-{number}", std::process::id()))))
    }

    /// As the configuration has it.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.0.join("primary.db").display())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a server of the lab's own stands on.
#[derive(Default)]
struct Setup<'a> {
    nats: Option<&'a Nats>,
    database: Option<&'a Arc<Database>>,
    commit_size: Option<usize>,
    has_stats: bool,
    postgres: Option<&'a str>,
    is_guarded: bool,
}

impl ServerUnderTest {
    /// The server of the options, or a fresh one.
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
        database: &Arc<Database>,
        commit_size: Option<usize>,
    ) -> Result<Self> {
        ServerUnderTest::launch(options, &Setup { database: Some(database), commit_size, ..Setup::default() })
    }

    /// A fresh server with durable channels in a PostgreSQL, from which it reads as much at a time as it may.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_on_postgres(options: &Options, url: &str) -> Result<Self> {
        ServerUnderTest::launch(options, &Setup { postgres: Some(url), ..Setup::default() })
    }

    /// A fresh server with the usual limits for each client.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_guarded(options: &Options) -> Result<Self> {
        ServerUnderTest::launch(options, &Setup { is_guarded: true, ..Setup::default() })
    }

    /// A fresh server that keeps statistics.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start_with_stats(options: &Options, database: &Arc<Database>) -> Result<Self> {
        ServerUnderTest::launch(options, &Setup { database: Some(database), has_stats: true, ..Setup::default() })
    }

    /// As many fresh servers, joined by NATS.
    ///
    /// # Errors
    /// When one does not start.
    pub(crate) fn start_joined(options: &Options, nats: &Nats, count: usize) -> Result<Vec<Self>> {
        let subjects = (0..count)
            .map(|_| ServerUnderTest::launch(options, &Setup { nats: Some(nats), ..Setup::default() }))
            .collect();
        std::thread::sleep(JOINING);
        subjects
    }

    fn launch(options: &Options, ground: &Setup<'_>) -> Result<Self> {
        if let (Some(address), Some(pid)) = (options.server, options.pid) {
            return Ok(ServerUnderTest {
                address,
                api: Api {
                    address: options.api.unwrap_or(address),
                    key: options.key.clone(),
                    is_tls: options.way == Transport::Tls,
                },
                pid,
                token_secret: options.token_secret.clone(),
                path: options.path.clone(),
                dialect: options.dialect,
                way: options.way,
                door: address,
                _own: None,
            });
        }
        let address = free_address()?;
        let file = std::env::temp_dir().join(format!("touchline-lab-{}-{}.json", std::process::id(), address.port()));
        let tcp = free_address()?;
        let mut settings = configured(address, ground);
        options.way.configure(&mut settings, tcp.port());
        if options.way == Transport::Tls {
            settings["http_server"]["tls"] = Certificate::make()?.settings();
        }
        let configuration = Configuration { file: file.clone(), _database: ground.database.cloned() };
        std::fs::write(&file, settings.to_string()).context("failed to write the server's configuration")?;
        let own = serve(&configuration, options, address)?;
        let door = if options.way == Transport::Tcp { tcp } else { address };
        Ok(ServerUnderTest { door, ..ServerUnderTest::own(address, options.way, own, configuration) })
    }

    fn own(address: SocketAddr, way: Transport, own: Part, configuration: Configuration) -> Self {
        ServerUnderTest {
            address,
            api: Api { address, key: "lab".to_owned(), is_tls: way == Transport::Tls },
            pid: own.pid(),
            token_secret: Some(SECRET.to_owned()),
            path: "/connection/websocket".to_owned(),
            dialect: Dialect::Centrifugal,
            way,
            door: address,
            _own: Some((own, configuration)),
        }
    }

    /// A connection to where its clients speak HTTP and WebSocket.
    pub(crate) fn connect(&self) -> Result<Stream<TcpStream>> {
        Stream::connect(self.address, self.way == Transport::Tls)
    }

    /// Ends a server of the lab's own as a crash would, and gives what starts it again.
    pub(crate) fn kill(self) -> Result<Killed> {
        let (own, configuration) = self._own.context("only a server of the lab's own can be killed")?;
        drop(own);
        Ok(Killed { address: self.address, way: self.way, configuration })
    }

    /// Subscribers of this server. With `has_tokens` they come with a token each, where the server has a secret.
    pub(crate) fn plan(
        &self,
        connections: usize,
        prefix: &str,
        channels: usize,
        data_size: usize,
        has_tokens: bool,
    ) -> Plan {
        Plan {
            servers: vec![self.door],
            path: self.path.clone(),
            dialect: self.dialect,
            way: self.way,
            connections,
            prefix: prefix.to_owned(),
            channels,
            data_size,
            token_secret: self.token_secret.clone().filter(|_| has_tokens),
            shows_progress: true,
        }
    }
}

/// A server that is dead.
pub(crate) struct Killed {
    address: SocketAddr,
    way: Transport,
    configuration: Configuration,
}

impl Killed {
    /// The same server in its next life, on the same address.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn revive(self, options: &Options) -> Result<ServerUnderTest> {
        let own = serve(&self.configuration, options, self.address)?;
        Ok(ServerUnderTest::own(self.address, self.way, own, self.configuration))
    }
}

/// Starts a server, and waits until it listens.
fn serve(configuration: &Configuration, options: &Options, address: SocketAddr) -> Result<Part> {
    let mut words = vec!["serve".to_owned(), "--config".to_owned(), configuration.file.display().to_string()];
    if let Some(shards) = options.shards {
        words.extend(["--shards".to_owned(), shards.to_string()]);
    }
    let program = std::env::current_exe().context("this program has no path")?;
    let child: Child =
        Command::new(program).args(&words).stdin(Stdio::null()).spawn().context("failed to start a server")?;
    let mut own = Part(child);
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Some(status) = own.0.try_wait()? {
            bail!("the server under test ended at once: {status}");
        }
        if began.elapsed() > START_PATIENCE {
            bail!("the server under test does not listen");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(own)
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn configured(address: SocketAddr, ground: &Setup<'_>) -> serde_json::Value {
    let open = json!({"allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true});
    let mut history = json!({"name": "history", "history_size": 1_000, "history_ttl": "1h", "force_recovery": true});
    let mut lab = json!({"name": "lab"});
    let delta = json!({
        "name": "delta",
        "allow_subscribe_for_client": true,
        "allow_subscribe_for_anonymous": true,
        "allowed_delta_types": ["fossil"],
    });
    for (option, value) in open.as_object().into_iter().flatten() {
        history[option] = value.clone();
        lab[option] = value.clone();
    }
    let mut all = json!({
        "http_server": {"address": address.ip(), "port": address.port()},
        "http_api": {"key": "lab"},
        "client": {
            "token": {"hmac_secret_key": SECRET},
            "allow_anonymous_connect_without_token": true,
            "allowed_origins": ["*"],
            // A few clients of the lab do what many do elsewhere.
            "command_rate_limit": 0,
        },
        "registry": {"scopes": [{"name": "lab", "allow_register": ["*"], "allow_for_anonymous": true}]},
        "channel": {"without_namespace": open, "namespaces": [lab, history, delta]},
        "log": {"level": "error"},
    });
    if ground.is_guarded {
        all["client"].as_object_mut().map(|client| client.remove("command_rate_limit"));
    }
    if let Some(nats) = ground.nats {
        all["cluster"] = json!({"engine": "nats", "name": "lab", "nats_url": [nats.url]});
    }
    let sqlite = ground.database.map(|database| database.url());
    if let Some(url) = ground.postgres.or(sqlite.as_deref()) {
        let mut durable = all["channel"]["namespaces"][1].clone();
        (durable["name"], durable["durable"]) = (json!("durable"), json!(true));
        all["channel"]["namespaces"].as_array_mut().into_iter().for_each(|namespaces| namespaces.push(durable.clone()));
        all["store"] = json!({"primary": {"url": url, "pool_size": if ground.postgres.is_some() { 64 } else { 4 }}});
        if let (true, Some(database)) = (ground.has_stats, ground.database) {
            let url = format!("sqlite:{}", database.0.join("stats.db").display());
            all["store"]["stats"] = json!({"enabled": true, "url": url, "track_rate": 1_000_000});
            all["prometheus"] = json!({"enabled": true});
        }
        if let Some(size) = ground.commit_size {
            all["store"]["commit_size"] = json!(size);
        }
    }
    all
}
