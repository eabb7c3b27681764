//! What the node knows of connections and requests before a shard serves them: addresses, header fields, limits.

pub(crate) mod admission;
pub(crate) mod agent;
pub(crate) mod glob;
pub(crate) mod host;
pub(crate) mod origin;
pub(crate) mod proxies;
pub(crate) mod proxy_protocol;
pub(crate) mod socket;
pub(crate) mod transport;
