//! Requests of the node to other servers over HTTP/1.1 and HTTP/2: connections are kept, a redirect is never followed,
//! and an answer has a greatest size. The time limit is the caller's.

mod client;
mod tls;

pub(crate) use client::HttpClient;
