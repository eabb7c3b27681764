//! Simulations: the reading of one stream, and whole clusters.

pub(crate) mod simulation;
mod stream_reading;
