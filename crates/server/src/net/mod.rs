//! What the node knows of connections and requests before a shard serves them: addresses, header fields, limits.

pub(crate) mod admission;
pub(crate) mod agent;
pub(crate) mod forwarded;
pub(crate) mod glob;
pub(crate) mod headers;
pub(crate) mod host;
pub(crate) mod negotiated;
pub(crate) mod origin;
pub(crate) mod port;
pub(crate) mod proxies;
pub(crate) mod proxy_protocol;
pub(crate) mod remote;
pub(crate) mod socket;
pub(crate) mod transport;
