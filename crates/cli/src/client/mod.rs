//! What the commands that are clients of a server have in common.

pub(crate) mod api;
pub(crate) mod http;
