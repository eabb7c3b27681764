//! The operation `reload`: this node, or every node, reads its configuration again.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_protocol::Error;

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::nullable_fields;
use crate::runtime::reload::{ReloadRefusal, Reloaded};

/// A request without fields.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
pub(crate) struct ReloadRequest {}

/// The configuration after a reload.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ReloadReply {
    /// The number of the configuration that the node now uses; 1 = the one of the start.
    generation: u64,
    /// The keys whose values changed; empty = none.
    changed: Vec<String>,
}

/// The operation `reload`.
pub(crate) struct ReloadOperation;

impl Operation for ReloadOperation {
    const NAME: &'static str = "reload";
    const SUMMARY: &'static str =
        "Makes the asked node read its configuration again; when the answer comes, every event loop uses it";
    const RESULT: &'static str = "`generation`, `changed`";
    const EXAMPLE: &'static str = "{}";
    const REPLY_EXAMPLE: &'static str = r#"{"generation": 2, "changed": ["client.allowed_origins"]}"#;
    const ERRORS: &'static [Error] = &[Error::NOT_AVAILABLE, Error::TOO_MANY_REQUESTS, Error::CONFIGURATION_REFUSED];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = ReloadRequest;
    type Reply = ReloadReply;

    async fn run(node: RequestNode<'_>, _: ReloadRequest) -> Result<ReloadReply, OperationError> {
        let (reply, outcome) = oneshot::channel();
        let reload = Arc::clone(node.reload.get().ok_or(Error::NOT_AVAILABLE)?);
        // A reload reads files and fetches keys, so it must not run on the thread of a shard.
        let work = move || drop(reply.send(reload()));
        std::thread::Builder::new().name("reload".into()).spawn(work).map_err(|_| Error::INTERNAL)?;
        match outcome.await.unwrap_or(Err(ReloadRefusal::Stopping)) {
            Ok(Reloaded { generation, changed }) => Ok(ReloadReply { generation, changed }),
            Err(refusal @ ReloadRefusal::UnderWay) => Err(OperationError::under_way(refusal.to_string())),
            Err(ReloadRefusal::Stopping | ReloadRefusal::NoSource) => Err(Error::INTERNAL.into()),
            Err(refusal) => {
                tracing::error!("POST /api/reload: {refusal}");
                Err(OperationError::of_configuration(refusal.to_string()))
            }
        }
    }
}
