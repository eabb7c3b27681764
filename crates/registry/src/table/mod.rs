//! The replica's table: the entries of each authority, and which of them win. It only stores and compares. It knows
//! neither time nor messages.

mod authorities;
mod claims;
mod members;
#[cfg(test)]
mod memory_tests;
mod name_walk;
mod read;
mod state;
mod sweep;

pub(crate) use state::{SELF, Table};
