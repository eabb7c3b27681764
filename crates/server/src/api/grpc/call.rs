//! A gRPC call with its caller.

use std::cell::Cell;

use crate::api::callers::log_refused_operation;
use crate::api::operation::{OperationError, RequestNode};
use crate::auth::ApiCaller;
use crate::transport::http::Origin;

/// A call of one of the API services, and its caller.
#[derive(Clone, Copy)]
pub(super) struct GrpcCall<'c> {
    pub(super) origin: &'c Origin,
    pub(super) node: RequestNode<'c>,
    pub(super) caller: &'c ApiCaller,
    /// The code of the error that the answer reports; 0 = no error.
    pub(super) refused: &'c Cell<u32>,
}

impl GrpcCall<'_> {
    /// Logs why an operation was refused, if the caller or the configuration is the cause.
    pub(super) fn log_refusal(&self, operation: &str, refusal: &OperationError) {
        self.refused.set(refusal.error.code);
        log_refused_operation(&self.origin.node, self.origin.remote, self.caller, "", operation, refusal);
    }
}
