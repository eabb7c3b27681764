//! Shared code of the commands that are clients of a server: its address, trust in its certificate, one HTTP request,
//! and the server API.

pub(crate) mod api;
pub(crate) mod http;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod url;
