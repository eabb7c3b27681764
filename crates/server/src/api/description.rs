//! What the table of operations says of each operation. Documentation and tests are made from it.

use schemars::{Schema, SchemaGenerator};
use touchline_protocol::Error;

/// On which nodes of a cluster an operation runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationScope {
    /// On the node that is asked: what it answers from is the same on every node, or reaches the others by itself.
    AnyNode,
    /// On every node, because connections of the user may be on each. The answer is that of the node that is asked.
    Broadcast,
    /// On every node; the answers become one.
    Gather,
    /// On the node that holds the client. If that is not the node that is asked, the others are asked.
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

    /// The scope in a sentence of the documentation.
    pub fn text(self) -> &'static str {
        match self {
            OperationScope::AnyNode => "the asked node",
            OperationScope::Broadcast => "every node",
            OperationScope::Gather => "every node, answers joined",
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
    /// The fields of the request.
    pub request_fields: fn() -> Vec<&'static str>,
    /// The fields of the result, in Markdown; empty = the result is an empty object.
    pub result: &'static str,
    /// A request, in JSON.
    pub example: &'static str,
    /// A result, in JSON.
    pub reply_example: &'static str,
    /// The schema of the request.
    pub(super) request_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The schema of the result.
    pub(super) reply_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The errors that the operation answers with, beside [`COMMON_ERRORS`].
    pub errors: &'static [Error],
    /// On which nodes it runs.
    pub scope: OperationScope,
    /// Whether the same request sent twice leaves the same state as sent once.
    pub is_idempotent: bool,
}

/// The errors that every operation may answer with.
pub const COMMON_ERRORS: &[Error] = &[Error::INTERNAL, Error::BAD_REQUEST];
