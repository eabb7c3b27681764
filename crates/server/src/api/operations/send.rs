//! The operation `send`: a message to a name, to a group, or to connections.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use touchline_engine::directory::{self, RegistryMethod};
use touchline_engine::field_names;
use touchline_protocol::Error;
use touchline_protocol::data::checked_payload;

use super::registry;
use crate::api::description::OperationScope;
use crate::api::json::{WriteJson, WrittenJson};
use crate::api::operation::{Operation, OperationError, OtherNodes, RequestNode};
use crate::api::params::{nullable, nullable_fields, object};
use crate::api::shapes::SentShape;
use crate::api::targets::{CommandReply, Targets, USERS_MAX};
use crate::runtime::mailbox::ConnectionAction;
use crate::runtime::pacer::PACE_MAX;

/// The fields of a message to connections.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(transform = nullable_fields)]
struct ToConnections {
    /// The user whose connections get the message; empty = the anonymous user.
    user: Option<String>,
    /// Several users instead of `user`, 1,000 at most.
    #[schemars(extend("items" = {"type": "string"}, "minItems" = 1, "maxItems" = USERS_MAX))]
    users: Option<Vec<String>>,
    /// Only the connection with this client id; empty = not limited to a client.
    #[serde(deserialize_with = "nullable")]
    client: String,
    /// Only the connection with this session; empty = not limited to a session.
    #[serde(deserialize_with = "nullable")]
    session: String,
    /// Connections per second on each node; absent = all at once. With a rate, the reply comes before the work is done.
    #[schemars(range(min = 1, max = PACE_MAX))]
    rate: Option<u32>,
}

impl ToConnections {
    fn targets(&self) -> Targets<'_> {
        Targets {
            user: self.user.as_deref(),
            users: self.users.as_deref(),
            client: &self.client,
            session: &self.session,
            rate: self.rate,
        }
    }
}

/// The fields that a message to connections must not have.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ToName<'a> {
    scope: String,
    name: String,
    group: String,
    store_for: u64,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// Reads the fields that select connections; None = the message is for a name or a group.
///
/// # Errors
/// 107 with the field of the wrong type; with `rate` if no field selects connections; with `user` if no field selects a
/// receiver.
fn to_connections(params: &str) -> Result<Option<ToConnections>, OperationError> {
    let read: Result<ToConnections, _> = object(params.as_bytes());
    match read {
        Ok(to) if to.targets().is_any() => Ok(Some(to)),
        Ok(to) if to.rate.is_some() => Err(OperationError::bad("rate")),
        Ok(_) if is_for_nobody(params) => Err(OperationError::bad("user")),
        Ok(_) => Ok(None),
        Err(_) => {
            let members: BTreeMap<&str, &RawValue> = serde_json::from_str(params).unwrap_or_default();
            let is_bad = |name: &&&str| {
                let alone = members.get(**name).map(|value| serde_json::to_vec(&BTreeMap::from([(**name, value)])));
                alone.is_some_and(|alone| alone.is_ok_and(|alone| object::<ToConnections>(&alone).is_err()))
            };
            let field = field_names::<ToConnections>().iter().find(is_bad).copied();
            Err(OperationError { field, ..Error::BAD_REQUEST.into() })
        }
    }
}

/// Whether the request names neither a name nor a group.
fn is_for_nobody(params: &str) -> bool {
    object::<ToName<'_>>(params.as_bytes())
        .is_ok_and(|to| to.scope.is_empty() && to.name.is_empty() && to.group.is_empty())
}

/// The result of a message.
pub(crate) enum SendReply {
    /// The message was for a name or a group.
    Registry(WrittenJson<SentShape>),
    /// The message was for connections.
    Connections(SentToConnections),
}

/// The result of a message to connections.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SentToConnections {
    /// The number of connections on all nodes that answered. With a rate, these connections will get the message.
    sent: u64,
    /// The number of connections on each node that answered, by the name of the node.
    nodes: BTreeMap<String, u64>,
    /// The nodes that did not answer in time, refused, or are of an earlier version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_nodes: Vec<Box<str>>,
}

impl WriteJson for SendReply {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            SendReply::Registry(json) => json.write(out),
            SendReply::Connections(sent) => sent.write(out),
        }
    }
}

impl JsonSchema for SendReply {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        SentShape::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        SentShape::json_schema(generator)
    }
}

/// The operation `send`.
pub(crate) struct SendOperation;

impl Operation for SendOperation {
    const NAME: &'static str = RegistryMethod::Send.name();
    const SUMMARY: &'static str = "Sends a message to a name, a group, or the connections of users";
    const RESULT: &'static str = "`sent` (number of receivers); with `store_for`: `id`, `expires_at` (Unix \
        milliseconds); to connections also `nodes`, `missing_nodes`";
    const EXAMPLE: &'static str = r#"{"scope": "devices", "name": "bike-7", "data": {"unlock": true}}"#;
    const REPLY_EXAMPLE: &'static str = r#"{"sent": 1}"#;
    const ERRORS: &'static [Error] = &[
        Error::NOT_AVAILABLE,
        Error::TOO_MANY_REQUESTS,
        Error::NOT_REGISTERED,
        Error::CALLEE_GONE,
        Error::STORE_UNAVAILABLE,
        Error::INBOX_FULL,
        Error::NO_SUCH_SCOPE,
        Error::CLUSTER_UNREACHABLE,
    ];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = false;

    type Request<'a> = &'a RawValue;
    type Reply = SendReply;

    fn request_fields() -> Vec<&'static str> {
        [directory::request_fields(RegistryMethod::Send), field_names::<ToConnections>()].concat()
    }

    fn request_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = directory::request_schema(RegistryMethod::Send, generator);
        let connections = ToConnections::json_schema(generator);
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.extend(connections.get("properties").and_then(Value::as_object).cloned().unwrap_or_default());
        }
        let of_registry = [["scope", "name"], ["scope", "group"]].map(|required| json!({ "required": required }));
        let of_connections = ["user", "users", "client", "session"].map(|field| json!({ "required": [field] }));
        schema.insert("required".to_owned(), json!(["data"]));
        schema.insert("anyOf".to_owned(), of_registry.into_iter().chain(of_connections).collect());
        schema
    }

    fn is_gathered(request: &&RawValue) -> bool {
        to_connections(request.get()).is_ok_and(|to| to.is_some())
    }

    fn merge(reply: &mut SendReply, others: &OtherNodes<'_>) {
        #[derive(Deserialize)]
        struct OfNodes {
            nodes: BTreeMap<String, u64>,
        }
        if let SendReply::Connections(sent) = reply {
            let results = others.results.iter();
            let results = results.filter_map(|(_, result)| serde_json::from_str::<OfNodes>(result.get()).ok());
            sent.nodes.extend(results.flat_map(|other| other.nodes));
            sent.sent = sent.nodes.values().sum();
            sent.missing_nodes.clone_from(&others.missing);
        }
    }

    async fn run<'a>(node: RequestNode<'a>, request: &'a RawValue) -> Result<SendReply, OperationError> {
        let Some(to) = to_connections(request.get())? else {
            return registry::run(node, RegistryMethod::Send, request.get()).await.map(SendReply::Registry);
        };
        let other: ToName<'_> = object(request.get().as_bytes()).map_err(|_| Error::BAD_REQUEST)?;
        for (field, text) in [("scope", &other.scope), ("name", &other.name), ("group", &other.group)] {
            if !text.is_empty() {
                return Err(OperationError::bad(field));
            }
        }
        if other.store_for > 0 {
            return Err(OperationError::bad("store_for"));
        }
        let data = other.data.ok_or(OperationError::bad("data"))?;
        let data = checked_payload(data).map_err(|error| OperationError { field: Some("data"), ..error.into() })?;
        let CommandReply { connections, nodes, missing_nodes } =
            to.targets().check()?.counted(&node, ConnectionAction::Send(data)).await?;
        let sent = connections.unwrap_or_default();
        Ok(SendReply::Connections(SentToConnections { sent, nodes, missing_nodes }))
    }
}
