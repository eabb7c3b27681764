//! The command line of `touchline-lab`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::deploy_arguments::DeployOptions;
use crate::ladder_arguments::LadderOptions;
use crate::numbers::{at_least_one, rate};
use crate::transport::ClientTransport;
use crate::web_arguments::{HttpOptions, WaitingOptions};
use crate::wire::Dialect;

/// Measure a server: load generators, floors, and scenarios that check their own results.
#[derive(Debug, Parser)]
#[command(name = "touchline-lab", version)]
pub struct LabArguments {
    /// The scenario to run.
    #[command(subcommand)]
    pub(crate) part: LabCommand,
    /// Options of all scenarios.
    #[command(flatten)]
    pub(crate) options: Options,
}

/// A scenario, or a helper process of one.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// A scenario to run.
    #[command(flatten)]
    Scenario(Scenario),
    /// Worker process: holds subscribers; reads commands from standard input.
    #[command(hide = true)]
    Worker,
    /// Guard process: ends the processes of the lab when the lab has ended; reads them from standard input.
    #[command(hide = true)]
    Guard,
    /// Sender of the floor: reads commands from standard input.
    #[command(hide = true)]
    FloorServer,
    /// Backend that answers hooks: reads commands from standard input.
    #[command(hide = true)]
    HookBackend,
    /// Bare loop that calls the backend: reads commands from standard input.
    #[command(hide = true)]
    HookCaller,
    /// Bare loop that counts reactions: reads commands from standard input.
    #[command(hide = true)]
    ReactionFloor,
    /// Crowd of clients that react: reads commands from standard input.
    #[command(hide = true)]
    ReactionCrowd,
    /// Clients that move between the nodes of a cluster: reads commands from standard input.
    #[command(hide = true)]
    RoamingClients,
    /// Registry node: reads commands from standard input.
    #[command(hide = true)]
    RegistryNode,
    /// Waiting threads, for comparison with waiting calls.
    #[command(hide = true)]
    WaitingThreads {
        /// Number of threads.
        count: usize,
        /// Seconds that each thread waits.
        delay: u64,
    },
}

/// The scenarios of the lab.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Scenario {
    /// Measure all figures for which docs/performance.md states a bound, one after the other.
    All,
    /// The floor of a fan-out: one thread sends one prepared frame to plain sockets, with one send for each socket.
    /// Over TLS the frame is encrypted for each socket.
    Floor(Fanout),
    /// Publications to many subscribers, compared with the floor.
    Fanout(Fanout),
    /// Memory and CPU of idle connections.
    Idle(Idle),
    /// CPU time to open a connection with a token and to subscribe.
    Connect(OpeningOptions),
    /// CPU time to open a connection with a token that has an id, with and without many revoked tokens and blocked
    /// users.
    Bans(BansOptions),
    /// Many new connections at once, to one process.
    Storm(OpeningOptions),
    /// Publishing over HTTP into a channel without subscribers.
    Publish(PublishOptions),
    /// Publishing over gRPC into a channel without subscribers, compared with a bare tonic service.
    Grpc(GrpcOptions),
    /// Clients that all return at once and recover missed publications.
    Recovery(Recovery),
    /// Publishing over HTTP into a durable channel, compared with a channel that is not stored and with bare disk
    /// syncs.
    Durable(Durable),
    /// Rows of a PostgreSQL outbox that become publications, compared with a loop that only selects and deletes them.
    Consumers(ConsumersOptions),
    /// The start of a server with a large database.
    Reopen(Reopen),
    /// Clients that recover from disk right after their server was killed and started again.
    Cold(Recovery),
    /// History of a cached channel while other requests wait one second for the database, compared with event loops
    /// that block on the database.
    Slow(Slow),
    /// Bytes on the wire: publications unchanged, compressed, and as deltas.
    Bytes,
    /// A fan-out while one client sends 100,000 commands a second.
    Noisy(Noisy),
    /// Hooks: the cost of a backend that is slow, fast, called by a crowd, or dead, each compared with its floor. One
    /// run takes about five minutes.
    Hooks(HooksOptions),
    /// Lifecycle events: a fan-out while clients connect and leave, with and without events; and how many events
    /// arrive.
    Events(EventsOptions),
    /// Reactions of a crowd: the cost of one reaction compared with a bare loop that counts reactions, a check that no
    /// reaction is lost, and a fan-out meanwhile.
    Reactions(ReactionsOptions),
    /// Web servers: httperf's sweep of offered rates and a closed loop, compared with other servers.
    Http(HttpOptions),
    /// Calls that wait for their answers, compared with waiting goroutines, promises and threads.
    Waiting(WaitingOptions),
    /// A rolling restart of three nodes under load: each node disconnects its clients, which move to the other nodes
    /// and recover all missed publications. With --from: an upgrade from another program to this one, and back.
    Deploy(DeployOptions),
    /// Publications on one of three servers joined by NATS to subscribers of all three, compared with a single server.
    Across(Across),
    /// Many channels, each with one subscriber on each of three servers joined by NATS.
    Channels(ChannelsOptions),
    /// A growing number of connections, over as many server processes as needed, joined by NATS.
    Ladder(LadderOptions),
    /// Names on one node and on four nodes, each a process that embeds the registry, joined by NATS; and names of
    /// WebSocket clients.
    Registry(Registry),
}

/// The options of all scenarios.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Number of runs. The medians are printed.
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Print the results as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Program of the server under test. Default: `touchline` in the folder of this program.
    #[arg(long, global = true, value_name = "PROGRAM")]
    pub(crate) touchline: Option<PathBuf>,
    /// Shards of the server under test. Default: one for each core.
    #[arg(long, global = true, value_name = "COUNT")]
    pub(crate) shards: Option<u16>,
    /// Address of a running server to measure, instead of a new Touchline for each run.
    #[arg(long, global = true, value_name = "HOST:PORT", requires = "pid")]
    pub(crate) server: Option<SocketAddr>,
    /// Address of the running server's HTTP API, if it differs. It uses TLS if the subscribers do.
    #[arg(long, global = true, value_name = "HOST:PORT", requires = "server")]
    pub(crate) api: Option<SocketAddr>,
    /// Process id of the running server, for CPU time and memory.
    #[arg(long, global = true, value_name = "PID", requires = "server")]
    pub(crate) pid: Option<u32>,
    /// API key of the server.
    #[arg(long, global = true, default_value = "lab")]
    pub(crate) key: String,
    /// HMAC secret of the running server's tokens. Without it, clients connect without a token.
    #[arg(long, global = true, value_name = "SECRET", requires = "server")]
    pub(crate) token_secret: Option<String>,
    /// Path of the server's WebSocket endpoint.
    #[arg(long, global = true, default_value = "/connection/websocket")]
    pub(crate) path: String,
    /// Protocol of the server.
    #[arg(long, global = true, value_enum, default_value_t = Dialect::Centrifugal)]
    pub(crate) dialect: Dialect,
    /// Transport of the subscribers. A running server must serve it at its address.
    #[arg(long = "way", value_name = "WAY", global = true, value_enum, default_value_t = ClientTransport::Websocket)]
    pub(crate) transport: ClientTransport,
    /// Do not print a progress line.
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
}

/// The named fan-outs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// 10,000 subscribers of one channel, 10 publications a second, 100 in all.
    Steady,
    /// 5,000 subscribers of one channel, 60 publications, each as soon as the previous one is answered.
    Burst,
    /// 10,000 subscribers over 1,000 channels, 1,000 publications a second, 5,000 in all.
    Sparse,
    /// 1,000 subscribers of one channel, 20 publications a second, 100 in all.
    Light,
}

/// Options of a fan-out.
#[derive(Debug, Clone, Args)]
pub(crate) struct Fanout {
    /// Name of a predefined fan-out; the options below change it.
    #[arg(long, value_enum, default_value_t = Preset::Steady)]
    pub(crate) preset: Preset,
    /// Number of subscribers.
    #[arg(long, value_name = "COUNT")]
    pub(crate) connections: Option<usize>,
    /// Number of channels that the subscribers are spread over.
    #[arg(long, value_name = "COUNT")]
    pub(crate) channels: Option<usize>,
    /// Number of publications, in all channels together.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    pub(crate) messages: Option<usize>,
    /// Publications per second; 0 is as fast as one publisher can.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Size of a publication's data, bytes.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(64..=60_000))]
    pub(crate) size: u32,
    /// For the floor: number of events in one send.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) coalesce: u32,
}

/// Options of `idle`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Idle {
    /// Number of connections, each with one subscription.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 18_000)]
    pub(crate) connections: usize,
    /// Time over which CPU is measured, seconds. The server pings every 25 seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 50)]
    pub(crate) seconds: u64,
}

/// Options of scenarios that open connections.
#[derive(Debug, Clone, Args)]
pub(crate) struct OpeningOptions {
    /// Number of connections.
    #[arg(long, value_name = "COUNT")]
    pub(crate) connections: Option<usize>,
    /// Connections that are opened at the same time.
    #[arg(long, value_name = "COUNT")]
    pub(crate) concurrency: Option<usize>,
}

/// Options of `bans`.
#[derive(Debug, Clone, Args)]
pub(crate) struct BansOptions {
    /// Connections per round, on each of the two servers.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 4_000)]
    pub(crate) connections: usize,
    /// Number of measured rounds; the servers take turns.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 8)]
    pub(crate) rounds: usize,
    /// Number of revoked tokens.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 100_000)]
    pub(crate) tokens: usize,
    /// Number of blocked users.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000)]
    pub(crate) users: usize,
}

/// Options of `publish`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PublishOptions {
    /// HTTP connections that publish, each with one request at a time.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 16)]
    pub(crate) connections: usize,
    /// Duration of the load, seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 4)]
    pub(crate) seconds: u64,
}

/// Options of `grpc`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GrpcOptions {
    /// Program of the bare service: `cargo build --release` in crates/lab/rivals/tonic builds it.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) bare: PathBuf,
    /// Calls per round, on each of the two servers.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 100_000)]
    pub(crate) calls: u64,
    /// Concurrent calls, over one connection.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 64)]
    pub(crate) concurrency: usize,
    /// Number of rounds; the servers take turns.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 5)]
    pub(crate) rounds: usize,
}

/// Options of `durable`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Durable {
    /// HTTP connections that publish, each with one request at a time.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 64)]
    pub(crate) connections: usize,
    /// Duration of each measurement, seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 4)]
    pub(crate) seconds: u64,
}

/// Options of `consumers`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConsumersOptions {
    /// Number of rows per measurement.
    #[arg(long, value_name = "COUNT", default_value_t = 200_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    pub(crate) rows: u32,
}

/// Options of `slow`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Slow {
    /// Numbers of concurrent requests.
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "10,100,1000")]
    pub(crate) concurrency: Vec<usize>,
    /// One of this many requests takes a second.
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "5,10,20,50,100")]
    pub(crate) one_in: Vec<u64>,
    /// Duration of each measurement, seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 1)]
    pub(crate) seconds: u64,
}

/// Options of `noisy`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Noisy {
    /// Number of other clients: subscribers of one channel.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 500)]
    pub(crate) connections: usize,
    /// Publications per second to these subscribers.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, default_value_t = 50.0)]
    pub(crate) rate: f64,
    /// Duration of each measurement, seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 6)]
    pub(crate) seconds: u64,
}

/// Options of `events`.
#[derive(Debug, Clone, Args)]
pub(crate) struct EventsOptions {
    /// Number of subscribers of the fan-out.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000)]
    pub(crate) subscribers: usize,
    /// Publications per fan-out, ten per second.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 100)]
    pub(crate) messages: usize,
    /// Clients that connect and leave per second meanwhile.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 2_000)]
    pub(crate) rate: u64,
    /// Number of pairs of fan-outs, one with and one without events.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 4)]
    pub(crate) pairs: usize,
    /// Time for which events are produced as fast as possible, seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 5)]
    pub(crate) seconds: u64,
    /// Measure only how many durable events arrive, with its own PostgreSQL.
    #[arg(long)]
    pub(crate) durable: bool,
}

/// Options of `reactions`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReactionsOptions {
    /// Number of clients that react and watch the totals.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000)]
    pub(crate) senders: usize,
    /// Reactions per second of all clients together.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 100_000)]
    pub(crate) rate: u64,
    /// Duration of the reactions, seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 5)]
    pub(crate) seconds: u64,
    /// Number of pairs of a bare loop and a server.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 4)]
    pub(crate) pairs: usize,
    /// Number of subscribers of the fan-out. Senders and subscribers together must be fewer than the 20,000 open files
    /// of a process.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 9_000)]
    pub(crate) subscribers: usize,
    /// Publications per fan-out, ten per second.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 100)]
    pub(crate) messages: usize,
}

/// Options of `hooks`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HooksOptions {
    /// Measure only these figures.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIGURE")]
    pub(crate) only: Vec<HookFigure>,
    /// Measure with small numbers, which takes only some seconds. This shows that the scenario works, not what hooks
    /// cost.
    #[arg(long)]
    pub(crate) quick: bool,
}

/// A figure of the scenario `hooks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookFigure {
    /// A backend that takes five seconds for every tenth publication, while a fan-out runs.
    Slow,
    /// Connections that a backend accepts, compared with tokens and bare calls.
    Connect,
    /// Publications that a backend allows, compared with other publications and bare calls.
    Publish,
    /// A crowd that returns at once, with and without cached answers for a channel.
    Return,
    /// A backend that is dead for a minute under load.
    Outage,
}

/// Options of `reopen`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Reopen {
    /// Number of publications in the database.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000_000)]
    pub(crate) publications: usize,
    /// Number of channels that the publications are spread over.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000)]
    pub(crate) channels: usize,
}

/// Options of scenarios with clients that return.
#[derive(Debug, Clone, Args)]
pub(crate) struct Recovery {
    /// Number of clients.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 5_000)]
    pub(crate) connections: usize,
    /// Publications that each client has missed.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 50)]
    pub(crate) publications: usize,
}

/// Options of `registry`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Registry {
    /// Number of names.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1_000..=2_000_000)
    )]
    pub(crate) names: u32,
    /// Number of nodes.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) nodes: u32,
    /// Number of WebSocket clients that register one name each.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000)]
    pub(crate) connections: usize,
    /// Folder with the source of Syn 3 (its `src`). The same steps also run on Syn, alternately, with the Erlang that
    /// is found in PATH.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) beside: Option<PathBuf>,
}

/// Options of `channels`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChannelsOptions {
    /// Number of channels.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 50_000)]
    pub(crate) channels: usize,
    /// Number of these channels that get a publication.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 5_000)]
    pub(crate) messages: usize,
}

/// Options of `across`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Across {
    /// Subscribers per server.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 5_000)]
    pub(crate) connections: usize,
    /// Number of publications, in one channel.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 60)]
    pub(crate) messages: usize,
    /// Publications per second.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, default_value_t = 5.0)]
    pub(crate) rate: f64,
}
