//! What answers requests: the router of HTTP, and the server API. Imports go one way: what an operation is
//! (`operation`), each operation (`operations`), the table of all (`table`), what serves them (`batch`, `serve`), the
//! router, and what a shard asks for (`services`).

mod batch;
mod cluster;
mod description;
mod json;
mod metrics_text;
mod operation;
mod operations;
mod params;
mod reply;
mod router;
mod scrape;
mod serve;
pub(crate) mod services;
mod table;

pub use description::{COMMON_ERRORS, OperationDescription, OperationScope};
pub use scrape::{MetricDescription, metrics};
pub use table::{BATCH, operations};
