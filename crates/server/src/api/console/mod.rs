//! The console: its files, its sign-in, its operations, and its live connections.

mod files;
mod hidden;
mod live;
mod pages;
mod running;

pub(super) use pages::{answer, is_of_console};
