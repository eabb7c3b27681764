//! The publications that a channel keeps, newest last, bounded by count and age.
//!
//! `ring.rs` keeps them, `recovery.rs` reads them. No publication after the ring's floor is missing: everything that
//! was dropped is at or below the floor.

mod recovery;
mod ring;

pub(crate) use ring::HistoryRing;
