//! The operation `rpc`. Applications define its methods, and this server has none yet.

use schemars::JsonSchema;
use serde::Deserialize;
use touchline_protocol::Error;

use crate::api::description::OperationScope;
use crate::api::json::EmptyReply;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{nullable, nullable_fields};

/// A request to call a method of the application.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["method"]), transform = nullable_fields)]
pub(crate) struct RpcRequest {
    /// The name of the method.
    #[serde(deserialize_with = "nullable")]
    method: String,
}

/// The operation `rpc`.
pub(crate) struct RpcOperation;

impl Operation for RpcOperation {
    const NAME: &'static str = "rpc";
    const SUMMARY: &'static str = "Calls a method of the application; this server has none, so the answer is 104";
    const EXAMPLE: &'static str = r#"{"method": "x"}"#;
    const ERRORS: &'static [Error] = &[Error::METHOD_NOT_FOUND];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;
    const NUMBER: Option<usize> = Some(10);

    type Request<'a> = RpcRequest;
    type Reply = EmptyReply;

    async fn run(_node: RequestNode<'_>, RpcRequest { method: _ }: RpcRequest) -> Result<EmptyReply, OperationError> {
        let detail = "the server has no methods of an application, so rpc always has this error";
        Err(OperationError { detail: Some(detail.into()), ..Error::METHOD_NOT_FOUND.into() })
    }
}
