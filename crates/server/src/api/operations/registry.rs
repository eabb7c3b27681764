//! The operations of the registry.
//!
//! `register`, `unregister`, `update_meta`, `join` and `leave` act for a client id. `lookup`, `names`, `count`,
//! `members` and `groups` read. `call` and `multi_call` call names and groups. The engine reads the parameters, because
//! clients send the same ones to it.

use std::collections::BTreeMap;

use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use touchline_engine::directory::{self, DirectoryRequest, RegistryMethod, Requester, client_from_text};
use touchline_engine::{Response, field_names};
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use crate::api::description::OperationScope;
use crate::api::json::WrittenJson;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::shapes::{
    CallShape, ChangesShape, CountShape, EmptyShape, GroupsShape, MemberShape, MembersShape, NameShape, NamesShape,
};

/// The field that a backend sends in addition to the fields of a client.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
struct ForClient {
    /// The id of the client that the backend acts for.
    #[schemars(extend("format" = "uuid"))]
    client: String,
}

/// Returns the nodes on which a method of the registry runs.
const fn scope_of(method: RegistryMethod) -> OperationScope {
    if method.acts_for_client() { OperationScope::ClientNode } else { OperationScope::AnyNode }
}

/// Returns the fields of a method's request: those of the engine, and the client that the backend acts for.
fn fields_of(method: RegistryMethod) -> Vec<&'static str> {
    let client = method.acts_for_client().then(field_names::<ForClient>).unwrap_or_default();
    [directory::request_fields(method), client].concat()
}

/// Returns the schema of a method's request, with the same fields as [`fields_of`].
fn schema_of(method: RegistryMethod, generator: &mut SchemaGenerator) -> Schema {
    let mut schema = directory::request_schema(method, generator);
    if method.acts_for_client()
        && let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut)
    {
        let client = ForClient::json_schema(generator);
        properties.extend(client.get("properties").and_then(Value::as_object).cloned().unwrap_or_default());
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.push("client".into());
        }
    }
    schema
}

/// Makes the operations. Each entry has the type, the method of the engine, the shape of its result, whether it may be
/// repeated, and the fields of the result. The errors, an example of the request and of the result, and the summary
/// follow.
macro_rules! registry_operations {
    ($($type:ident $method:ident $shape:ident $is_idempotent:literal $result:literal
        [$($error:ident)*] $example:literal $reply_example:literal $summary:literal;)*) => {
        $(
            #[doc = concat!("[`RegistryMethod::", stringify!($method), "`] as an operation.")]
            pub(crate) struct $type;

            impl Operation for $type {
                const NAME: &'static str = RegistryMethod::$method.name();
                const SUMMARY: &'static str = $summary;
                const RESULT: &'static str = $result;
                const EXAMPLE: &'static str = $example;
                const REPLY_EXAMPLE: &'static str = $reply_example;
                const ERRORS: &'static [Error] =
                    &[$(Error::$error,)* Error::NO_SUCH_SCOPE, Error::CLUSTER_UNREACHABLE];
                const SCOPE: OperationScope = scope_of(RegistryMethod::$method);
                const IS_IDEMPOTENT: bool = $is_idempotent;

                type Request<'a> = &'a RawValue;
                type Reply = WrittenJson<$shape>;

                fn request_fields() -> Vec<&'static str> {
                    fields_of(RegistryMethod::$method)
                }

                fn request_schema(generator: &mut SchemaGenerator) -> Schema {
                    schema_of(RegistryMethod::$method, generator)
                }

                async fn run<'a>(node: RequestNode<'a>, request: &'a RawValue) -> Result<Self::Reply, OperationError> {
                    run(node, RegistryMethod::$method, request.get()).await
                }
            }
        )*

        /// The methods of the operations above.
        #[cfg(test)]
        const METHODS: &[RegistryMethod] = &[$(RegistryMethod::$method),*];
    };
}

registry_operations! {
    RegisterOperation Register NameShape true
        "`name`, `client`, `node`, `meta`, `version`" [LIMIT_EXCEEDED NAME_TAKEN NOT_REGISTERED]
        r#"{"scope": "devices", "name": "bike-7", "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        r#"{"name": "bike-7", "client": "5b23579a-9066-444b-bfc3-000100000000", "node": "a", "version": "17640.0"}"#
        "Registers a name for a client";
    UnregisterOperation Unregister EmptyShape true
        "" [NOT_REGISTERED]
        r#"{"scope": "devices", "name": "bike-7", "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        r#"{}"#
        "Removes a name from a client";
    UpdateMetaOperation UpdateMeta NameShape true
        "as `register`" [NOT_REGISTERED CHANGED]
        r#"{"scope": "devices", "name": "bike-7", "meta": {}, "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        r#"{"name": "bike-7", "client": "5b23579a-9066-444b-bfc3-000100000000", "node": "a", "version": "17640.0"}"#
        "Replaces the metadata of a name";
    LookupOperation Lookup NameShape true
        "as `register`" [NOT_REGISTERED]
        r#"{"scope": "devices", "name": "bike-7"}"#
        r#"{"name": "bike-7", "client": "5b23579a-9066-444b-bfc3-000100000000", "node": "a", "version": "17640.0"}"#
        "Returns the client that has a name";
    NamesOperation Names NamesShape true
        "`names`; `cursor`, or `last` with `after` (absent: last page)" []
        r#"{"scope": "devices"}"#
        r#"{"names": [{"name": "a",
            "client": "5b23579a-9066-444b-bfc3-000100000000", "node": "a", "version": "17640.0"}]}"#
        "Lists the names of a scope";
    CountOperation Count CountShape true
        "`names`, `groups`, `members`, `nodes` with the `entries` of each" []
        r#"{"scope": "devices"}"#
        r#"{"names": 1, "groups": 0, "members": 0, "nodes": [{"node": "a", "entries": 1}]}"#
        "Counts the entries of a scope";
    JoinOperation Join EmptyShape true
        "" [LIMIT_EXCEEDED NOT_REGISTERED]
        r#"{"scope": "devices", "group": "bikes", "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        r#"{}"#
        "Adds a client to a group";
    LeaveOperation Leave EmptyShape true
        "" [NOT_REGISTERED]
        r#"{"scope": "devices", "group": "bikes", "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        r#"{}"#
        "Removes a client from a group";
    MembersOperation Members MembersShape true
        "`members`, `count` (exact), `sample` (there are more than `members_limit`); for a page `cursor`"
        []
        r#"{"scope": "devices", "group": "bikes"}"#
        r#"{"members": [{"client": "5b23579a-9066-444b-bfc3-000100000000", "node": "a"}], "count": 1}"#
        "Lists the members of a group";
    MemberOperation Member MemberShape true
        "`client`, `node`, `meta`" [NOT_REGISTERED]
        r#"{"scope": "devices", "group": "bikes", "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        r#"{"client": "5b23579a-9066-444b-bfc3-000100000000", "node": "a"}"#
        "Returns one member of a group";
    GroupsOperation Groups GroupsShape true
        "`groups` with `count`, `cursor` (absent: last page)" []
        r#"{"scope": "devices"}"#
        r#"{"groups": [{"group": "bikes", "count": 2}]}"#
        "Lists the groups of a scope";
    ChangesOperation Changes ChangesShape true
        "`changes`, `offset`, `epoch`, `more`, or `list`" [NOT_AVAILABLE]
        r#"{"scope": "devices"}"#
        r#"{"offset": 0, "epoch": "4f1c0a7e", "changes": []}"#
        "Lists the changes in a scope since a position";
    CallOperation Call CallShape false
        "`data`, or the client's own `error`; of a group `replies`, `silent`"
        [NOT_REGISTERED CALL_TIMEOUT CALLEE_GONE TOO_MANY_CALLS]
        r#"{"scope": "devices", "name": "bike-7", "data": {"where": true}}"#
        r#"{"data": {"at": "depot"}}"#
        "Calls a name or a group and waits for the answer";
    MultiCallOperation MultiCall CallShape false
        "as `call`"
        [NOT_REGISTERED CALL_TIMEOUT CALLEE_GONE TOO_MANY_CALLS]
        r#"{"scope": "devices", "group": "bikes", "data": {"where": true}}"#
        r#"{"replies": [{"client": "5b23579a-9066-444b-bfc3-000100000000", "data": {"at": "depot"}}], "silent": []}"#
        "Another name of `call`";
}

/// Runs a method of the registry.
///
/// # Errors
/// The errors of the operation; 4009 while the entries of other nodes have not arrived and one of them may be the
/// answer.
pub(super) async fn run<S>(
    node: RequestNode<'_>,
    method: RegistryMethod,
    params: &str,
) -> Result<WrittenJson<S>, OperationError> {
    let is_unsettled = node.is_unsettled();
    if is_unsettled && method.reads_all_nodes() {
        return Err(Error::CLUSTER_UNREACHABLE.into());
    }
    let answer = run_directory(node, method, params).await;
    if is_unsettled && answer.as_ref().is_err_and(|refusal| refusal.error == Error::NOT_REGISTERED) {
        return Err(Error::CLUSTER_UNREACHABLE.into());
    }
    match answer {
        Ok(json) => Ok(WrittenJson::of(json)),
        Err(refusal) if refusal.error == Error::BAD_REQUEST => {
            Err(OperationError { field: refusal.field.or_else(|| misread(method, params)), ..refusal })
        }
        Err(refusal) => Err(refusal),
    }
}

/// Returns the one field of a request that has the wrong type; None = no single field is at fault.
fn misread(method: RegistryMethod, params: &str) -> Option<&'static str> {
    let members: BTreeMap<&str, &RawValue> = serde_json::from_str(params).unwrap_or_default();
    directory::request_fields(method).iter().copied().find(|name| {
        let alone = members.get(name).and_then(|value| serde_json::to_string(&BTreeMap::from([(name, value)])).ok());
        alone.is_some_and(|alone| !directory::is_readable(method, &alone))
    })
}

async fn run_directory(node: RequestNode<'_>, method: RegistryMethod, params: &str) -> Result<Bytes, OperationError> {
    let scopes = &node.generation().session.scopes;
    let read = directory::read(method, params, scopes);
    let mut request = read.map_err(|fault| OperationError { field: fault.field, ..fault.error.into() })?;
    let oversized = request.oversized_field(scopes);
    if let DirectoryRequest::Call { timeout_ms, .. } = &mut request {
        *timeout_ms = node.time().map_or(*timeout_ms, |limit| (*timeout_ms).min(limit.as_millis() as u64));
    }
    if let Some(answer) = scopes.answer(&request) {
        return Ok(Bytes::from(answer?));
    }
    let response = if method.acts_for_client() {
        let ForClient { client } = serde_json::from_str(params).map_err(|_| OperationError::bad("client"))?;
        let owner = client_from_text(&client).ok_or(OperationError::bad("client"))?;
        node.request_for_client(owner, request).await
    } else {
        let requester = Requester { owner: OwnerId([0; 16]), user: Box::default(), is_backend: true };
        node.request_directory(requester, request).await
    };
    match response {
        Response::Directory(reply) => Ok(reply.json()),
        // Parameters that could be read are refused only for their size.
        Response::Refused(Error::BAD_REQUEST) => Err(OperationError { field: oversized, ..Error::BAD_REQUEST.into() }),
        Response::Refused(error) => Err(error.into()),
        _ => Err(Error::INTERNAL.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_that_backends_may_call_is_an_operation() {
        let expected: Vec<RegistryMethod> =
            RegistryMethod::ALL.iter().copied().filter(|method| method.is_operation()).collect();
        // `send` has a file of its own.
        let expected: Vec<_> = expected.into_iter().filter(|method| *method != RegistryMethod::Send).collect();
        assert_eq!(METHODS, expected);
    }
}
