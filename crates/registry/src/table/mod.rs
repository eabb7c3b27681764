//! The replica's table: what each authority says, and what counts of it. It only keeps and compares; it knows neither
//! time nor messages.

mod authorities;
mod claims;
mod members;
mod name_walk;
mod read;
mod state;
mod sweep;

pub(crate) use state::{SELF, Table};
