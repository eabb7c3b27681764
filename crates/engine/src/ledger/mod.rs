//! The ledger of lifecycle events: a node's side of it. Rows in the primary database record who holds which channel and
//! which user, and what was reported about them. A [`LedgerBook`] determines what this node has to write there next.
//!
//! A node writes in *lives*. A life begins when the database gives the node an incarnation and a lease, and ends with
//! the lease. Then other nodes report what the life has left behind, and the node begins a new life with everything
//! that it holds.
//!
//! Nodes use a [`WishList`] to agree which events each endpoint gets.

mod book;
#[cfg(test)]
mod book_tests;
mod wish;

pub use book::{BookBatch, BookLimits, BookNote, KeyChange, LedgerBook};
pub use wish::{EndpointWish, EventRoute, WishDescription, WishList};
