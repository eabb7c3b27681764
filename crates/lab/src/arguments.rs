//! The command line of `touchline lab`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::ladder_arguments::LadderOptions;
use crate::numbers::{at_least_one, rate};
use crate::transport::ClientTransport;
use crate::web_arguments::{AssetsOptions, HttpOptions, WaitingOptions};
use crate::wire::Dialect;

/// Arguments of `touchline lab`.
#[derive(Debug, Args)]
pub struct LabArguments {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) part: LabCommand,
    /// How to measure.
    #[command(flatten)]
    pub(crate) options: Options,
}

/// A scenario, or a process that one starts.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// What to measure.
    #[command(flatten)]
    Scenario(Scenario),
    /// A worker: holds subscribers and reads commands from standard input.
    #[command(hide = true)]
    Worker,
    /// Ends what the lab has started when the lab has ended: reads it from standard input.
    #[command(hide = true)]
    Guard,
    /// The floor's sender: reads commands from standard input.
    #[command(hide = true)]
    FloorServer,
    /// The backend that answers hooks: reads commands from standard input.
    #[command(hide = true)]
    HookBackend,
    /// The bare loop that asks it: reads commands from standard input.
    #[command(hide = true)]
    HookCaller,
    /// The bare loop that counts reactions: reads commands from standard input.
    #[command(hide = true)]
    ReactionFloor,
    /// A crowd that reacts: reads commands from standard input.
    #[command(hide = true)]
    ReactionCrowd,
    /// A registry node: reads commands from standard input.
    #[command(hide = true)]
    RegistryNode,
    /// Threads that wait, beside calls that do.
    #[command(hide = true)]
    WaitingThreads {
        /// Threads.
        count: usize,
        /// Seconds that each waits.
        delay: u64,
    },
}

/// What to measure.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Scenario {
    /// Every figure that has a bound, one after the other.
    All,
    /// The bare machine: one thread, plain sockets, one prebuilt frame, one send each; over TLS the frame is encrypted
    /// for each.
    Floor(Fanout),
    /// Publications to many subscribers, beside the floor.
    Fanout(Fanout),
    /// Memory and CPU of connections that only wait.
    Idle(Idle),
    /// CPU of a connection opened and subscribed with a token.
    Connect(OpeningOptions),
    /// The same with tokens that have an id, beside many revoked tokens and blocked users, and without them.
    Bans(BansOptions),
    /// Many connections at once, on one process.
    Storm(OpeningOptions),
    /// Publishing over HTTP into a channel without subscribers.
    Publish(PublishOptions),
    /// Publishing over gRPC into a channel without subscribers, beside a bare tonic service.
    Grpc(GrpcOptions),
    /// Clients that return at once and recover what they missed.
    Recovery(Recovery),
    /// Publishing over HTTP into a durable channel, beside one that nobody keeps and beside bare syncs.
    Durable(Durable),
    /// Rows of an outbox in PostgreSQL that become publications, beside a loop that only selects and deletes them.
    Consumers(ConsumersOptions),
    /// A start on a large database.
    Reopen(Reopen),
    /// Clients that recover right after their server was killed and started again, from disk.
    Cold(Recovery),
    /// History of a warm channel while others wait for a database that takes a second, beside event loops that wait for
    /// it themselves.
    Slow(Slow),
    /// Bytes on the wire: publications as they are, compressed, and as changes to the one before.
    Bytes,
    /// A fan-out beside one client that sends 100,000 commands a second.
    Noisy(Noisy),
    /// Rows of statistics while publications go to many subscribers, beside the same without rows.
    Statistics(Statistics),
    /// Hooks: what a backend that is asked costs, slow, at once, by a crowd and dead, each beside its floor. One run
    /// takes some five minutes.
    Hooks(HooksOptions),
    /// Lifecycle events: a fan-out beside clients that come and go, with events and without; and how many arrive.
    Events(EventsOptions),
    /// Reactions of a crowd: what one costs beside a bare loop that counts them, that none is lost, and a fan-out
    /// beside them.
    Reactions(ReactionsOptions),
    /// Web servers: httperf's sweep of offered rates and a closed loop, beside other servers.
    Http(HttpOptions),
    /// Calls that wait for their answers, beside goroutines, promises and threads that wait.
    Waiting(WaitingOptions),
    /// The demo's pages and assets, beside the shortest answer of the same port.
    Assets(AssetsOptions),
    /// A walkie-talkie: the time from a speaker's send to each listener's receipt, beside the floor of the same sends.
    Walkie(Walkie),
    /// A killed node of a cluster is back, and so are its clients, with all that they missed.
    Restart(Restart),
    /// Publications on one of three servers joined by NATS to subscribers of each, beside one server alone.
    Across(Across),
    /// Pages of connections of several servers joined by NATS, and a fan-out beside them.
    Who(Who),
    /// Many channels with one subscriber each on each of three servers joined by NATS.
    Channels(ChannelsOptions),
    /// More and more connections, over as many server processes as they need, joined by NATS.
    Ladder(LadderOptions),
    /// Names on one node and on four, each a process that embeds the registry, joined by NATS; and names of clients on
    /// WebSocket.
    Registry(Registry),
}

/// How to measure, whatever it is.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Runs of everything; medians are printed.
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Print the results as JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Shards of the server under test; as many as cores without it.
    #[arg(long, global = true, value_name = "COUNT")]
    pub(crate) shards: Option<u16>,
    /// A server that runs already, instead of a fresh Touchline for each run.
    #[arg(long, global = true, value_name = "HOST:PORT", requires = "pid")]
    pub(crate) server: Option<SocketAddr>,
    /// Its HTTP API, where that has another address. It speaks TLS where subscribers come by it.
    #[arg(long, global = true, value_name = "HOST:PORT", requires = "server")]
    pub(crate) api: Option<SocketAddr>,
    /// Its process, for CPU time and memory.
    #[arg(long, global = true, value_name = "PID", requires = "server")]
    pub(crate) pid: Option<u32>,
    /// Its API key.
    #[arg(long, global = true, default_value = "lab")]
    pub(crate) key: String,
    /// The secret of its tokens; without it, clients of a running server come without a token.
    #[arg(long, global = true, value_name = "SECRET", requires = "server")]
    pub(crate) token_secret: Option<String>,
    /// Path of its WebSocket endpoint.
    #[arg(long, global = true, default_value = "/connection/websocket")]
    pub(crate) path: String,
    /// What it speaks: the Centrifugal protocol, or `raw` (a text frame with a channel's name subscribes, the first
    /// frame acknowledges).
    #[arg(long, global = true, value_enum, default_value_t = Dialect::Centrifugal)]
    pub(crate) dialect: Dialect,
    /// How subscribers come. A server that runs already has to be open for it at its address.
    #[arg(long = "way", value_name = "WAY", global = true, value_enum, default_value_t = ClientTransport::Websocket)]
    pub(crate) transport: ClientTransport,
    /// No progress line.
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
}

/// The fan-outs that have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// 10,000 subscribers of one channel, 10 publications a second, 100 in all.
    Steady,
    /// 5,000 subscribers of one channel, 60 publications, the next as soon as the last is answered.
    Burst,
    /// 10,000 subscribers over 1,000 channels, 1,000 publications a second, 5,000 in all.
    Sparse,
    /// 1,000 subscribers of one channel, 20 publications a second, 100 in all.
    Light,
}

/// A fan-out.
#[derive(Debug, Clone, Args)]
pub(crate) struct Fanout {
    /// A fan-out by name; the options below change it.
    #[arg(long, value_enum, default_value_t = Preset::Steady)]
    pub(crate) preset: Preset,
    /// Subscribers.
    #[arg(long, value_name = "COUNT")]
    pub(crate) connections: Option<usize>,
    /// Channels that they are spread over.
    #[arg(long, value_name = "COUNT")]
    pub(crate) channels: Option<usize>,
    /// Publications, of all channels together.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one)]
    pub(crate) messages: Option<usize>,
    /// Publications a second; 0 is as fast as one publisher can.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Bytes of a publication's data.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(64..=60_000))]
    pub(crate) size: u32,
    /// Of the floor: events in one send.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) coalesce: u32,
}

/// Connections that wait.
#[derive(Debug, Clone, Args)]
pub(crate) struct Idle {
    /// Connections, each with one subscription.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 18_000)]
    pub(crate) connections: usize,
    /// How long their CPU is measured, seconds; pings come every 25.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 50)]
    pub(crate) seconds: u64,
}

/// Connections that come.
#[derive(Debug, Clone, Args)]
pub(crate) struct OpeningOptions {
    /// Connections.
    #[arg(long, value_name = "COUNT")]
    pub(crate) connections: Option<usize>,
    /// Connections being opened at a time.
    #[arg(long, value_name = "COUNT")]
    pub(crate) concurrency: Option<usize>,
}

/// Connections beside bans.
#[derive(Debug, Clone, Args)]
pub(crate) struct BansOptions {
    /// Connections of each round, on each of the two servers.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 4_000)]
    pub(crate) connections: usize,
    /// Rounds that count; the servers take turns.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 8)]
    pub(crate) rounds: usize,
    /// Revoked tokens.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 100_000)]
    pub(crate) tokens: usize,
    /// Blocked users.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000)]
    pub(crate) users: usize,
}

/// Publishing.
#[derive(Debug, Clone, Args)]
pub(crate) struct PublishOptions {
    /// HTTP connections that publish, one request at a time each.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 16)]
    pub(crate) connections: usize,
    /// For how long.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 4)]
    pub(crate) seconds: u64,
}

/// Publishing over gRPC.
#[derive(Debug, Clone, Args)]
pub(crate) struct GrpcOptions {
    /// The bare service: the program that `cargo build --release` makes of crates/lab/rivals/tonic.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) bare: PathBuf,
    /// Calls of each round, on each of the two servers.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 100_000)]
    pub(crate) calls: u64,
    /// Calls at a time, over one connection.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 64)]
    pub(crate) concurrency: usize,
    /// Rounds; the servers take turns.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 5)]
    pub(crate) rounds: usize,
}

/// Safe publishing.
#[derive(Debug, Clone, Args)]
pub(crate) struct Durable {
    /// HTTP connections that publish, one request at a time each.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 64)]
    pub(crate) connections: usize,
    /// For how long, each time.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 4)]
    pub(crate) seconds: u64,
}

/// An outbox in PostgreSQL.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConsumersOptions {
    /// Rows, each time.
    #[arg(long, value_name = "COUNT", default_value_t = 200_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    pub(crate) rows: u32,
}

/// A slow database.
#[derive(Debug, Clone, Args)]
pub(crate) struct Slow {
    /// Requests at a time.
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "10,100,1000")]
    pub(crate) concurrency: Vec<usize>,
    /// One of so many takes a second.
    #[arg(long, value_delimiter = ',', value_name = "COUNT", default_value = "5,10,20,50,100")]
    pub(crate) one_in: Vec<u64>,
    /// How long each is measured.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 1)]
    pub(crate) seconds: u64,
}

/// A noisy client.
#[derive(Debug, Clone, Args)]
pub(crate) struct Noisy {
    /// Its neighbours: subscribers of one channel.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 500)]
    pub(crate) connections: usize,
    /// Publications that they get, a second.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, default_value_t = 50.0)]
    pub(crate) rate: f64,
    /// For how long, each time.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 6)]
    pub(crate) seconds: u64,
}

/// Statistics beside a fan-out.
#[derive(Debug, Clone, Args)]
pub(crate) struct Statistics {
    /// Subscribers of one channel, which gets ten publications a second.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 5_000)]
    pub(crate) connections: usize,
    /// Events that clients report, a second.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 55_000)]
    pub(crate) rows: usize,
    /// For how long, each time.
    #[arg(long, default_value_t = 10)]
    pub(crate) seconds: usize,
}

/// Lifecycle events.
#[derive(Debug, Clone, Args)]
pub(crate) struct EventsOptions {
    /// Subscribers of the fan-out.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000)]
    pub(crate) subscribers: usize,
    /// Publications of each fan-out, ten a second.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 100)]
    pub(crate) messages: usize,
    /// Clients that connect and leave in a second beside it.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 2_000)]
    pub(crate) rate: u64,
    /// Pairs of fan-outs, with events and without.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 4)]
    pub(crate) pairs: usize,
    /// Seconds for which events are made as fast as they can be.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 5)]
    pub(crate) seconds: u64,
    /// Only how many durable events arrive, by a PostgreSQL of its own.
    #[arg(long)]
    pub(crate) durable: bool,
}

/// Reactions.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReactionsOptions {
    /// Clients that react, and watch the totals.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000)]
    pub(crate) senders: usize,
    /// Reactions a second, of all of them.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..), default_value_t = 100_000)]
    pub(crate) rate: u64,
    /// Seconds for which they react.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 5)]
    pub(crate) seconds: u64,
    /// Pairs of a bare loop and a server.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 4)]
    pub(crate) pairs: usize,
    /// Subscribers of the fan-out. With the crowd they stay below the 20,000 open files of a process.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 9_000)]
    pub(crate) subscribers: usize,
    /// Publications of each fan-out, ten a second.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 100)]
    pub(crate) messages: usize,
}

/// A walkie-talkie.
#[derive(Debug, Clone, Args)]
pub(crate) struct Walkie {
    /// Listeners of the room.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 500)]
    pub(crate) listeners: usize,
    /// For how long one speaks, 50 frames a second.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 20)]
    pub(crate) seconds: u64,
}

/// Hooks.
#[derive(Debug, Clone, Args)]
pub(crate) struct HooksOptions {
    /// Measure these alone.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FIGURE")]
    pub(crate) only: Vec<HookFigure>,
    /// Small numbers, for some seconds: shows that it works, and not what it costs.
    #[arg(long)]
    pub(crate) quick: bool,
}

/// A figure of hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookFigure {
    /// A backend that takes five seconds for every tenth publication, beside a fan-out.
    Slow,
    /// Connections that a backend lets in, beside tokens and bare calls.
    Connect,
    /// Publications that a backend allows, beside others and bare calls.
    Publish,
    /// A crowd that returns at once, with answers that hold for a channel and without.
    Return,
    /// A backend that is dead for a minute, under load.
    Outage,
}

/// A large database.
#[derive(Debug, Clone, Args)]
pub(crate) struct Reopen {
    /// Publications in it.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000_000)]
    pub(crate) publications: usize,
    /// Channels that they are spread over.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000)]
    pub(crate) channels: usize,
}

/// Clients that return.
#[derive(Debug, Clone, Args)]
pub(crate) struct Recovery {
    /// Clients.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 5_000)]
    pub(crate) connections: usize,
    /// Publications that each of them has missed.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 50)]
    pub(crate) publications: usize,
}

/// Names.
#[derive(Debug, Clone, Args)]
pub(crate) struct Registry {
    /// Names.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1_000..=2_000_000)
    )]
    pub(crate) names: u32,
    /// Nodes.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) nodes: u32,
    /// Clients that register one name each on WebSocket.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 10_000)]
    pub(crate) connections: usize,
    /// The source of Syn 3: a folder with its `src`. The steps are run on it too, in turn, with the Erlang on the path.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) beside: Option<PathBuf>,
}

/// A node's second life.
#[derive(Debug, Clone, Args)]
pub(crate) struct Restart {
    /// Its clients.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Publications on another node while it is dead.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 50)]
    pub(crate) publications: usize,
}

/// Channels of three servers.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChannelsOptions {
    /// Channels.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 50_000)]
    pub(crate) channels: usize,
    /// Of those, how many get a publication.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 5_000)]
    pub(crate) messages: usize,
}

/// Subscribers of three servers.
#[derive(Debug, Clone, Args)]
pub(crate) struct Across {
    /// Subscribers of each server.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 5_000)]
    pub(crate) connections: usize,
    /// Publications, of one channel.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 60)]
    pub(crate) messages: usize,
    /// Publications a second.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, default_value_t = 5.0)]
    pub(crate) rate: f64,
}

/// Connections that are asked for.
#[derive(Debug, Clone, Args)]
pub(crate) struct Who {
    /// Servers.
    #[arg(long, value_name = "COUNT", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) nodes: u16,
    /// Connections of all servers together.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 90_000)]
    pub(crate) connections: usize,
    /// Pages of each kind that are timed.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 100)]
    pub(crate) pages: usize,
    /// Pages a second beside a fan-out.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, default_value_t = 1.0)]
    pub(crate) pages_per_second: f64,
    /// Pairs of fan-outs.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Publications of a fan-out.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 50)]
    pub(crate) messages: usize,
    /// Publications a second.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, default_value_t = 5.0)]
    pub(crate) rate: f64,
}
