//! The trait of an operation of the server API.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_engine::field_names;
use touchline_protocol::Error;

use super::description::OperationScope;
use super::json::WriteJson;
pub(crate) use super::operation_error::OperationError;
pub(crate) use super::request_node::RequestNode;
use crate::auth::NamedChannels;

/// The answers of the other nodes of a cluster.
#[derive(Debug, Default)]
pub(crate) struct OtherNodes<'a> {
    /// The JSON of each result with the id of its node; None = the node has an earlier version, which does not send its
    /// id.
    pub(crate) results: Vec<(Option<&'a str>, &'a RawValue)>,
    /// The ids of nodes without a result, in order: they did not answer in time, refused, or do not know the operation.
    pub(crate) missing: Vec<Box<str>>,
    /// The nodes of `missing` that answered that they have too many requests (111).
    pub(crate) busy: Vec<Box<str>>,
    /// At least one of the missing nodes may know the operation, and so may answer later.
    pub(crate) may_come_back: bool,
    /// This node is cut off from the cluster: it does not know which other nodes exist.
    pub(crate) is_cut_off: bool,
}

impl OtherNodes<'_> {
    /// Whether the answer may be incomplete, because a node did not answer or could not be asked.
    pub(crate) fn are_partial(&self) -> bool {
        self.is_cut_off || !self.missing.is_empty()
    }
}

/// One function of the server API. The table of operations makes from it what HTTP, batches, other nodes and the
/// documentation need.
pub(crate) trait Operation {
    /// The name: the last part of the path, and the method of a command.
    const NAME: &'static str;
    /// What the operation does, in one sentence without a period.
    const SUMMARY: &'static str;
    /// The fields of the result, in Markdown; empty = the result is an empty object.
    const RESULT: &'static str = "";
    /// An example of a request, as JSON, that a test can send.
    const EXAMPLE: &'static str;
    /// An example of a result, as JSON.
    const REPLY_EXAMPLE: &'static str = "{}";
    /// The errors that the operation may return, in addition to [`COMMON_ERRORS`](super::description::COMMON_ERRORS).
    const ERRORS: &'static [Error];
    /// On which nodes the operation runs.
    const SCOPE: OperationScope;
    /// Whether the same request sent twice leaves the same state as sent once.
    const IS_IDEMPOTENT: bool;
    /// The number that older libraries send instead of the name; None = the operation has no number.
    const NUMBER: Option<usize> = None;

    /// The first version of the server API in which the operation has this form.
    const SINCE: u16 = 1;

    /// The parameters. They may borrow from the body, so payloads are checked before they are copied.
    type Request<'a>: Deserialize<'a> + JsonSchema;
    /// The result of the operation.
    type Reply: WriteJson + JsonSchema;

    /// Returns the channels that a request names, because a key of the server API may be limited to some channels.
    fn channels<'r>(_request: &'r Self::Request<'_>) -> NamedChannels<'r> {
        NamedChannels::None
    }

    /// Runs the operation on this node.
    ///
    /// # Errors
    /// One of [`Self::ERRORS`], or one of the common errors.
    async fn run<'a>(node: RequestNode<'a>, request: Self::Request<'a>) -> Result<Self::Reply, OperationError>;

    /// Whether the answers of all nodes are merged, although [`Self::SCOPE`] does not say so.
    fn is_gathered(_request: &Self::Request<'_>) -> bool {
        false
    }

    /// Adds the answers of the other nodes to the result of this node. It is called only if the scope is
    /// [`OperationScope::Gather`] or the request is gathered.
    fn merge(_reply: &mut Self::Reply, _others: &OtherNodes<'_>) {}

    /// Does the work that is left for the asked node alone, after all nodes have run and their results are merged.
    ///
    /// # Errors
    /// The errors of [`Operation::run`].
    async fn conclude(_node: RequestNode<'_>, _reply: &mut Self::Reply) -> Result<(), OperationError> {
        Ok(())
    }

    /// Returns the names of the request's fields.
    fn request_fields() -> Vec<&'static str> {
        field_names::<Self::Request<'static>>().to_vec()
    }

    /// Returns the schema of the request.
    fn request_schema(generator: &mut SchemaGenerator) -> Schema {
        Self::Request::json_schema(generator)
    }
}

/// The place of an operation in the table, which the table assigns.
pub(crate) trait Placed {
    /// The place, counted from 0.
    const PLACE: usize;
}

/// How many publications, or operations of a batch, run between two pauses.
const IN_A_ROW: usize = 16;

/// Called after each of many steps in a row: yields to the thread's other tasks every [`IN_A_ROW`] steps, because a
/// step may finish without waiting.
pub(super) async fn yield_sometimes(index: usize) {
    if index % IN_A_ROW == IN_A_ROW - 1 {
        tokio::task::yield_now().await;
    }
}
