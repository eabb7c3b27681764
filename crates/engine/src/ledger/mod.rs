//! The ledger of lifecycle events, as a node keeps its side of it. Rows in the primary database say who holds which
//! channel and which user, and what was told of them; a [`LedgerBook`] says what this node has to write there next.
//!
//! A node writes in *lives*. A life begins when the database gives it an incarnation and a lease, and is over when the
//! lease is; then other nodes tell what the life has left behind, and the node begins a new life with all that it
//! holds.
//!
//! What is told to whom, nodes agree on by a [`WishList`].

mod book;
#[cfg(test)]
mod book_tests;
mod wish;

pub use book::{BookBatch, BookLimits, BookNote, KeyChange, LedgerBook};
pub use wish::{EndpointWish, EventRoute, WishDescription, WishList};
