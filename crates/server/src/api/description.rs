//! The description of each operation in the table. The documentation and tests are made from it.

use schemars::{Schema, SchemaGenerator};
use touchline_protocol::Error;

/// On which nodes of a cluster an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationScope {
    /// On the node that receives the request. Every node can answer it, or the effect reaches the other nodes by
    /// itself.
    AnyNode,
    /// On every node, because each may have connections of the user. The answer is that of the node that receives the
    /// request.
    Broadcast,
    /// On every node; the answers are merged into one.
    Gather,
    /// On the node that has the client. If the node that receives the request does not have it, it asks the other
    /// nodes.
    ClientNode,
}

impl OperationScope {
    /// The name of the scope.
    pub fn name(self) -> &'static str {
        match self {
            OperationScope::AnyNode => "any_node",
            OperationScope::Broadcast => "broadcast",
            OperationScope::Gather => "gather",
            OperationScope::ClientNode => "client_node",
        }
    }

    /// Returns the scope as words of a sentence of the documentation.
    pub fn text(self) -> &'static str {
        match self {
            OperationScope::AnyNode => "the asked node",
            OperationScope::Broadcast => "every node",
            OperationScope::Gather => "every node, with merged answers",
            OperationScope::ClientNode => "the client's node",
        }
    }
}

/// An operation of the server API, as the documentation describes it.
#[derive(Debug)]
pub struct OperationDescription {
    /// The last part of the path: `POST /api/<name>`.
    pub name: &'static str,
    /// What the operation does, in one sentence without a period.
    pub summary: &'static str,
    /// Returns the names of the request's fields.
    pub request_fields: fn() -> Vec<&'static str>,
    /// The fields of the result, in Markdown; empty = the result is an empty object.
    pub result: &'static str,
    /// An example of a request, as JSON.
    pub example: &'static str,
    /// An example of a result, as JSON.
    pub reply_example: &'static str,
    /// Makes the JSON schema of the request.
    pub(super) request_schema: fn(&mut SchemaGenerator) -> Schema,
    /// Makes the JSON schema of the result.
    pub(super) reply_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The errors that the operation may return, in addition to [`COMMON_ERRORS`].
    pub errors: &'static [Error],
    /// On which nodes the operation runs.
    pub scope: OperationScope,
    /// Whether the same request sent twice leaves the same state as sent once.
    pub is_idempotent: bool,
}

/// The errors that every operation may return.
pub const COMMON_ERRORS: &[Error] = &[Error::INTERNAL, Error::BAD_REQUEST];
