//! The thread that keeps the totals of reactions (`worker.rs`). It takes the counts of shards, agrees with the same
//! thread of other nodes, and sends changes to the homes of the channels. Where the namespace wants it, it stores
//! totals in the primary database (`keeping.rs`). Rounds that not all shards know yet are in `beginnings.rs`. Closed
//! channels are in `closings.rs` until their final result is published. Requests that wait are in `waiting.rs`.
//! `touchline_engine::reactions` decides what is counted and agreed.

mod beginnings;
mod closings;
mod keeping;
mod waiting;
mod worker;

pub(crate) use worker::{ReactionsStart, start};
