//! The registry in the server API: `register`, `unregister`, `update_meta`, `join`, `leave` for a client id; `lookup`,
//! `names`, `count`, `members`, `groups`; `send`, `call` and `multi_call` to names and groups. The engine reads the
//! parameters, because clients send the same to it.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_engine::directory::{self, DirectoryRequest, RegistryMethod, Requester, client_from_text};
use touchline_engine::{FieldKind, Response, field_kinds, field_names};
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use crate::api::description::OperationScope;
use crate::api::json::WrittenJson;
use crate::api::operation::{Operation, OperationError};
use crate::node::Node;

#[derive(Deserialize, Default)]
#[serde(default)]
#[serde(expecting = "an object")]
struct ForClient {
    client: String,
}

/// Where a method of the registry runs.
const fn scope_of(method: RegistryMethod) -> OperationScope {
    if method.acts_for_client() { OperationScope::ClientNode } else { OperationScope::AnyNode }
}

/// The fields of a method's request: the engine's, and the client that the backend acts for.
fn fields_of(method: RegistryMethod) -> Vec<&'static str> {
    let client = method.acts_for_client().then(field_names::<ForClient>).unwrap_or_default();
    [directory::request_fields(method), client].concat()
}

/// What these fields take.
fn kinds_of(method: RegistryMethod) -> Vec<FieldKind> {
    let client = method.acts_for_client().then(field_kinds::<ForClient>).unwrap_or_default();
    [directory::request_kinds(method), client].concat()
}

/// Each line: the type, the engine's method, whether it may be repeated, the fields of the result, errors, an example,
/// and what it does.
macro_rules! registry_operations {
    ($($type:ident $method:ident $is_idempotent:literal $result:literal
        [$($error:ident)*] $example:literal $summary:literal;)*) => {
        $(
            #[doc = concat!("[`RegistryMethod::", stringify!($method), "`] as an operation.")]
            pub(crate) struct $type;

            impl Operation for $type {
                const NAME: &'static str = RegistryMethod::$method.name();
                const SUMMARY: &'static str = $summary;
                const RESULT: &'static str = $result;
                const EXAMPLE: &'static str = $example;
                const ERRORS: &'static [Error] =
                    &[$(Error::$error,)* Error::NO_SUCH_SCOPE, Error::CLUSTER_UNREACHABLE];
                const SCOPE: OperationScope = scope_of(RegistryMethod::$method);
                const IS_IDEMPOTENT: bool = $is_idempotent;

                type Request<'a> = &'a RawValue;
                type Reply = WrittenJson;

                fn request_fields() -> Vec<&'static str> {
                    fields_of(RegistryMethod::$method)
                }

                fn request_kinds() -> Vec<FieldKind> {
                    kinds_of(RegistryMethod::$method)
                }

                async fn run<'a>(node: &'a Node, request: &'a RawValue) -> Result<WrittenJson, OperationError> {
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
    RegisterOperation Register true
        "`name`, `client`, `node`, `meta`, `version`" [LIMIT_EXCEEDED NAME_TAKEN NOT_REGISTERED]
        r#"{"scope": "devices", "name": "bike-7", "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        "Gives a name to a client";
    UnregisterOperation Unregister true
        "" [NOT_REGISTERED]
        r#"{"scope": "devices", "name": "bike-7", "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        "Takes a name from a client";
    UpdateMetaOperation UpdateMeta true
        "as `register`" [NOT_REGISTERED CHANGED]
        r#"{"scope": "devices", "name": "bike-7", "meta": {}, "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        "Replaces the metadata of a name";
    LookupOperation Lookup true
        "as `register`" [NOT_REGISTERED]
        r#"{"scope": "devices", "name": "bike-7"}"#
        "Tells which client has a name";
    NamesOperation Names true
        "`names`, `cursor` (none: that was all)" []
        r#"{"scope": "devices"}"#
        "Lists the names of a scope";
    CountOperation Count true
        "`names`, `groups`, `members`, `nodes` with the `entries` of each" []
        r#"{"scope": "devices"}"#
        "Counts the entries of a scope";
    JoinOperation Join true
        "" [LIMIT_EXCEEDED NOT_REGISTERED]
        r#"{"scope": "devices", "group": "bikes", "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        "Puts a client into a group";
    LeaveOperation Leave true
        "" [NOT_REGISTERED]
        r#"{"scope": "devices", "group": "bikes", "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        "Takes a client out of a group";
    MembersOperation Members true
        "`members`, `count` (exact), `sample` (there are more than `members_limit`); of a page `cursor`"
        []
        r#"{"scope": "devices", "group": "bikes"}"#
        "Lists the members of a group";
    MemberOperation Member true
        "`client`, `node`, `meta`" [NOT_REGISTERED]
        r#"{"scope": "devices", "group": "bikes", "client": "5b23579a-9066-444b-bfc3-000100000000"}"#
        "Tells what a group knows of one member";
    GroupsOperation Groups true
        "`groups` with `count`, `cursor` (none: that was all)" []
        r#"{"scope": "devices"}"#
        "Lists the groups of a scope";
    ChangesOperation Changes true
        "`changes`, `offset`, `epoch`, `more`, or `list`" [NOT_AVAILABLE]
        r#"{"scope": "devices"}"#
        "Reads what has changed in a scope since a position";
    SendOperation Send false
        "`sent` (to how many); with `store_for`: `id`, `expires_at` (Unix milliseconds)"
        [NOT_AVAILABLE TOO_MANY_REQUESTS NOT_REGISTERED CALLEE_GONE STORE_UNAVAILABLE INBOX_FULL]
        r#"{"scope": "devices", "name": "bike-7", "data": {"unlock": true}}"#
        "Sends a message to a name or a group";
    CallOperation Call false
        "`data`, or the client's own `error`; of a group `replies`, `silent`"
        [NOT_REGISTERED CALL_TIMEOUT CALLEE_GONE TOO_MANY_CALLS]
        r#"{"scope": "devices", "name": "bike-7", "data": {"where": true}}"#
        "Calls a name or a group and waits for the answer";
    MultiCallOperation MultiCall false
        "as `call`"
        [NOT_REGISTERED CALL_TIMEOUT CALLEE_GONE TOO_MANY_CALLS]
        r#"{"scope": "devices", "group": "bikes", "data": {"where": true}}"#
        "Is another name of `call`";
}

/// How long a call may wait for its answer, milliseconds: shorter than the HTTP request's own timeout, so that the
/// caller gets the result in time.
fn longest_call_ms(request_timeout: Duration) -> u64 {
    (request_timeout - (request_timeout / 2).min(Duration::from_secs(1))).as_millis() as u64
}

/// Runs a method of the registry.
///
/// # Errors
/// Those of the operation; 4009 while the entries of other nodes have not arrived, when one of them may be the answer.
async fn run(node: &Node, method: RegistryMethod, params: &str) -> Result<WrittenJson, OperationError> {
    let is_unsettled = node.is_unsettled();
    if is_unsettled && method.reads_all_nodes() {
        return Err(Error::CLUSTER_UNREACHABLE.into());
    }
    let answer = run_directory(node, method, params).await;
    if is_unsettled && answer.as_ref().is_err_and(|error| *error == Error::NOT_REGISTERED) {
        return Err(Error::CLUSTER_UNREACHABLE.into());
    }
    Ok(answer?)
}

async fn run_directory(node: &Node, method: RegistryMethod, params: &str) -> Result<WrittenJson, Error> {
    let mut request = directory::read(method, params, &node.session.scopes)?;
    if let DirectoryRequest::Call { timeout_ms, .. } = &mut request {
        *timeout_ms = (*timeout_ms).min(longest_call_ms(node.settings.http_server.request_timeout));
    }
    if let Some(answer) = node.session.scopes.answer(&request) {
        return answer.map(|json| WrittenJson(json.into()));
    }
    let response = if method.acts_for_client() {
        let ForClient { client } = serde_json::from_str(params).map_err(|_| Error::BAD_REQUEST)?;
        let owner = client_from_text(&client).ok_or(Error::BAD_REQUEST)?;
        node.request_for_client(owner, request).await
    } else {
        let requester = Requester { owner: OwnerId([0; 16]), user: Box::default(), is_backend: true };
        node.request_directory(requester, request).await
    };
    match response {
        Response::Directory(reply) => Ok(WrittenJson(reply.json())),
        Response::Refused(error) => Err(error),
        _ => Err(Error::INTERNAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_that_backends_may_call_is_an_operation() {
        let expected: Vec<RegistryMethod> =
            RegistryMethod::ALL.iter().copied().filter(|method| method.is_operation()).collect();
        assert_eq!(METHODS, expected);
    }
}
