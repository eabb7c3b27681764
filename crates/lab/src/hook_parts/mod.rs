//! The helper processes of the hooks scenario: the backend that answers hooks, and the bare loop that calls it with the
//! server's HTTP client.

mod backend;
mod caller;

pub(crate) use backend::{BackendConduct, BackendCount, BackendOrder, CALL, serve};
pub(crate) use caller::{CallerDone, CallerTask, run};
