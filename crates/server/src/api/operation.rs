//! What an operation of the server API is.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_engine::field_names;
use touchline_protocol::Error;

use super::description::OperationScope;
use super::json::WriteJson;
pub(crate) use super::operation_error::OperationError;
use crate::auth::NamedChannels;
use crate::node::Node;

/// What the other nodes of a cluster have answered.
#[derive(Debug, Default)]
pub(crate) struct OtherNodes<'a> {
    /// The JSON of each result with the id of its node; None = an earlier version, which does not tell it.
    pub(crate) results: Vec<(Option<&'a str>, &'a RawValue)>,
    /// The ids of nodes without a result, in order: they did not answer in time, refused, or do not know the operation.
    pub(crate) missing: Vec<Box<str>>,
    /// Those of them that have answered that too many requests are under way (111).
    pub(crate) busy: Vec<Box<str>>,
    /// Not all of these are of a version that does not know the operation.
    pub(crate) may_come_back: bool,
    /// This node is cut off from the cluster: it does not know which other nodes there are.
    pub(crate) is_cut_off: bool,
}

impl OtherNodes<'_> {
    /// Whether something may be left out of the answer, because a node has not answered, or could not be asked.
    pub(crate) fn are_partial(&self) -> bool {
        self.is_cut_off || !self.missing.is_empty()
    }
}

/// One function of the server API. The table of operations makes from it what HTTP, batches, other nodes and the
/// documentation need.
pub(crate) trait Operation {
    /// The last part of the path, and the method of a command.
    const NAME: &'static str;
    /// What it does, in one sentence without a period.
    const SUMMARY: &'static str;
    /// The fields of the result, in Markdown; empty = the result is an empty object.
    const RESULT: &'static str = "";
    /// A request, in JSON, that a test can send.
    const EXAMPLE: &'static str;
    /// A result, in JSON.
    const REPLY_EXAMPLE: &'static str = "{}";
    /// The errors that it answers with, beside [`COMMON_ERRORS`](super::description::COMMON_ERRORS).
    const ERRORS: &'static [Error];
    /// On which nodes it runs.
    const SCOPE: OperationScope;
    /// Whether the same request sent twice leaves the same state as sent once.
    const IS_IDEMPOTENT: bool;
    /// The number that older libraries send instead of the name; None = it has none.
    const NUMBER: Option<usize> = None;

    /// The first version of the server API in which the operation has this form.
    const SINCE: u16 = 1;

    /// The parameters. They may borrow from the body: payloads are not copied before they are checked.
    type Request<'a>: Deserialize<'a> + JsonSchema;
    /// The result.
    type Reply: WriteJson + JsonSchema;

    /// The channels that a request names: a key of the server API may be limited to some.
    fn channels<'r>(_request: &'r Self::Request<'_>) -> NamedChannels<'r> {
        NamedChannels::None
    }

    /// Runs the operation on this node.
    ///
    /// # Errors
    /// One of [`Self::ERRORS`], or of the common ones.
    async fn run<'a>(node: &'a Node, request: Self::Request<'a>) -> Result<Self::Reply, OperationError>;

    /// Whether the answers of all nodes become one, although [`Self::SCOPE`] does not say so.
    fn is_gathered(_request: &Self::Request<'_>) -> bool {
        false
    }

    /// Adds what the other nodes have answered to the result of this node. Only an operation whose scope is
    /// [`OperationScope::Gather`] is asked to, or one whose request is gathered.
    fn merge(_reply: &mut Self::Reply, _others: &OtherNodes<'_>) {}

    /// The names of the request's fields.
    fn request_fields() -> Vec<&'static str> {
        field_names::<Self::Request<'static>>().to_vec()
    }

    /// The schema of the request.
    fn request_schema(generator: &mut SchemaGenerator) -> Schema {
        Self::Request::json_schema(generator)
    }
}

/// The place of an operation in the table, which gives it.
pub(crate) trait Placed {
    /// The place, from 0.
    const PLACE: usize;
}

/// Publishes, or operations of a batch, between two pauses.
const IN_A_ROW: usize = 16;

/// Called after each of many steps in a row: yields to the thread's other tasks every [`IN_A_ROW`] steps, because a
/// step may finish without waiting.
pub(super) async fn yield_sometimes(index: usize) {
    if index % IN_A_ROW == IN_A_ROW - 1 {
        tokio::task::yield_now().await;
    }
}
