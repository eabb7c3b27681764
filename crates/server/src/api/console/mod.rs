//! The console: its files, who may use it, its operations, and what is live in it.

mod files;
mod hidden;
mod live;
mod pages;
mod running;

pub(super) use pages::{answer, is_of_console};
