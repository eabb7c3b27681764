//! The operation `events_resume`: sends events to an endpoint again.

use schemars::JsonSchema;
use serde::Deserialize;
use touchline_protocol::Error;

use crate::api::description::OperationScope;
use crate::api::json::EmptyReply;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{nullable, nullable_fields};
use crate::runtime::event_mailbox::EventMessage;

/// A request to send events to an endpoint again.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["endpoint"]), transform = nullable_fields)]
pub(crate) struct EventsResumeRequest {
    /// The name of the endpoint in the configuration section `events`.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1))]
    endpoint: String,
}

/// The operation `events_resume`.
pub(crate) struct EventsResumeOperation;

impl Operation for EventsResumeOperation {
    const NAME: &'static str = "events_resume";
    const SUMMARY: &'static str =
        "Sends events again to an endpoint that has answered 410; for other endpoints it is not an error";
    const EXAMPLE: &'static str = r#"{"endpoint": "billing"}"#;
    const ERRORS: &'static [Error] = &[Error::NOT_AVAILABLE];
    const SCOPE: OperationScope = OperationScope::Broadcast;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = EventsResumeRequest;
    type Reply = EmptyReply;

    async fn run(node: RequestNode<'_>, request: EventsResumeRequest) -> Result<EmptyReply, OperationError> {
        let events = node.events.get().ok_or(Error::NOT_AVAILABLE)?;
        if !node.generation().settings.events.iter().any(|events| events.name == request.endpoint) {
            return Err(OperationError::bad("endpoint"));
        }
        events.command(EventMessage::Resume(request.endpoint.into()));
        Ok(EmptyReply {})
    }
}
