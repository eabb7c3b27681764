//! How clients and backends reach a node: HTTP, and the handshakes of the transports.

pub(crate) mod handshake;
pub(crate) mod http;
