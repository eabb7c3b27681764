//! The processes that the scenario of hooks has beside the server: the backend that answers hooks, and the bare loop
//! that asks it by the HTTP client of the server.

mod backend;
mod caller;

pub(crate) use backend::{BackendConduct, BackendCount, BackendOrder, CALL, serve};
pub(crate) use caller::{CallerDone, CallerTask, run};
