//! What answers requests: the router of HTTP, and the server API.

mod metrics_text;
mod operations;
mod router;
pub(crate) mod services;
