//! Answers requests: the router of HTTP, and the server API.
//!
//! Imports go in one direction: what an operation is (`operation`), each operation (`operations`), the table of all
//! (`table`), the code that serves them (`batch`, `serve`), the router, and the services for shards (`services`).

mod batch;
mod batch_time;
mod callers;
mod catalogue;
mod cluster;
mod connection_cursor;
mod connection_page;
mod console;
mod description;
mod documents;
mod endpoint;
mod field_kind;
#[cfg(feature = "grpc")]
mod grpc;
mod held_entries;
mod json;
#[cfg(test)]
mod later;
mod malformed;
mod metrics_text;
mod openapi;
mod operation;
mod operation_error;
mod operations;
mod params;
mod program;
mod readiness;
mod remedy;
mod reply;
mod request_id;
mod request_node;
mod router;
mod scrape;
mod sequence;
mod serve;
pub(crate) mod services;
mod shapes;
mod steps;
mod table;
mod targets;
mod trace_stream;
mod version;
mod watching;

use std::pin::Pin;
use std::sync::Arc;

use serde::Deserialize;
use touchline_engine::directory::client_text;
use touchline_registry::OwnerId;

use crate::auth::ApiRights;
use crate::node::Node;

pub use description::{COMMON_ERRORS, OperationDescription, OperationScope};
pub use documents::DOCUMENTS;
pub use field_kind::FieldKind;
pub(crate) use readiness::turns;
pub(crate) use router::is_own_path;
pub use scrape::{MetricDescription, metrics};
pub(crate) use sequence::{CallFailure, OperationCall, durable_publication, run_in_order};
pub(crate) use table::operations_named;
pub use table::{BATCH, operation_groups, operations};
pub(crate) use watching::start_watching;

/// Whether the node can serve, as the readiness probe reports.
pub(crate) fn is_ready(node: &Node) -> bool {
    readiness::health(node).status().is_success()
}

/// Returns the metrics of a node as OpenMetrics; None = a part cannot be written.
pub(crate) fn open_metrics(node: &Node) -> Option<String> {
    scrape::Scrape::of(node).open_metrics().ok()
}

/// Finds the user of a client on any node; None = no node reported the client.
pub(crate) fn user_of(node: Arc<Node>, client: OwnerId) -> Pin<Box<dyn Future<Output = Option<Box<str>>>>> {
    #[derive(Deserialize)]
    struct Answer {
        result: UserResult,
    }
    #[derive(Deserialize)]
    struct UserResult {
        user: Box<str>,
    }
    Box::pin(async move {
        let params = serde_json::json!({ "client": client_text(client) }).to_string();
        let generation = node.generation();
        let node = operation::RequestNode::new(&node, &generation);
        let reply =
            serve::serve(node, &ApiRights::ALL, "client_user", params.as_bytes(), version::NEWEST.number).await.ok()?;
        serde_json::from_slice::<Answer>(&reply.into_body(reply::ErrorMode::Inside))
            .ok()
            .map(|answer| answer.result.user)
    })
}
