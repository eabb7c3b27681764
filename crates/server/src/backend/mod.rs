//! The log backends of a node, NATS and the databases: how the node opens them, and how it handles their events.

pub(crate) mod activity;
pub(crate) mod fact_changes;
pub(crate) mod facts;
pub(crate) mod nats;
pub(crate) mod seen;
pub(crate) mod store;
