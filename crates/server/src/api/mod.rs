//! The server API.

pub(crate) mod operations;
