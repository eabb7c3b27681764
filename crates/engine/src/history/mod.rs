//! The publications that a channel keeps, newest last, bounded by count and age.
//!
//! `ring.rs` keeps them, `recovery.rs` reads them. A publication behind the ring's floor is never missing: what was
//! dropped is at or below it.

mod recovery;
mod ring;

pub(crate) use ring::HistoryRing;
