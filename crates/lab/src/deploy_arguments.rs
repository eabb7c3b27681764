//! The command line of `touchline-lab deploy`.

use std::path::PathBuf;

use clap::Args;

use crate::numbers::{at_least_one, rate};

/// Options of `deploy`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeployOptions {
    /// Number of clients of the three nodes together, each with one subscription. A node holds up to three quarters of
    /// them when its turn comes.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 15_000)]
    pub(crate) connections: usize,
    /// Number of channels that the clients are spread over. Their history is in JetStream.
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, default_value_t = 100)]
    pub(crate) channels: usize,
    /// Publications per second, in all channels together.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, default_value_t = 100.0)]
    pub(crate) rate: f64,
    /// Time for which deliveries are measured before each restart, seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400), default_value_t = 10)]
    pub(crate) seconds: u64,
    /// Pause between the end of a restart and the measurement before the next one, seconds. The load continues.
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=86_400), default_value_t = 5)]
    pub(crate) rest: u64,
    /// Another touchline program. The nodes start with it, are upgraded one by one to this program, and then back.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) from: Option<PathBuf>,
}
