//! What the commands that are clients of a server have in common: its address, trust in its certificate, one request of
//! HTTP, and the server API.

pub(crate) mod api;
pub(crate) mod http;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod url;
