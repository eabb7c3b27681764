//! The server API. Imports go one way: what an operation is (`operation`), each operation (`operations`), the table of
//! all (`table`), and what serves them (`batch`, `serve`).

mod batch;
mod cluster;
mod description;
mod json;
mod operation;
mod operations;
mod params;
mod reply;
mod serve;
mod table;

pub use description::{COMMON_ERRORS, OperationDescription, OperationScope};
pub(crate) use operation::OperationError;
pub(crate) use operations::publish::is_publish;
pub(crate) use reply::ErrorMode;
pub(crate) use serve::{serve, serve_node};
pub use table::operations;
