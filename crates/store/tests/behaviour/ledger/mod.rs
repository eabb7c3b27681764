//! The ledger of lifecycle events: its rules as a small model, and the same scripts on the databases.

mod crowd;
mod desk;
mod lanes;
mod model;
mod properties;
mod real;
mod wishes;
mod world;

/// The number of seeds for a test with real databases: a fifth of `full`, or all with TOUCHLINE_FULL.
fn seeds(full: u64) -> u64 {
    if std::env::var_os("TOUCHLINE_FULL").is_some() { full } else { full / 5 }
}
