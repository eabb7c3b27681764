//! The thread that keeps the totals of reactions (`worker.rs`): it takes what shards have counted, agrees with the same
//! thread of other nodes, shows the homes of the channels what has changed, and keeps totals in the primary database
//! (`keeping.rs`) where the namespace wants that. Rounds that not all shards know are in `beginnings.rs`, closed
//! channels are in `closings.rs` until they are published for the last time, requests that wait in `waiting.rs`. What
//! is counted and agreed, `touchline_engine::reactions` decides.

mod beginnings;
mod closings;
mod keeping;
mod waiting;
mod worker;

pub(crate) use worker::{ReactionsStart, start};
