//! The server API as an OpenAPI 3.1 document, made from the table of operations.
//!
//! Source: <https://spec.openapis.org/oas/v3.1.1>.

use std::collections::{BTreeMap, BTreeSet};

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use touchline_protocol::Error;

use super::batch::COMMANDS_MAX;
use super::catalogue::Catalogue;
use super::description::{COMMON_ERRORS, OperationDescription};
use super::json::ErrorJson;
use super::request_id::REQUEST_ID_LEN_MAX;
use super::table::{BATCH, numbers, operations_of};
use super::version;
use crate::transport::http::respond::JSON;

/// The refusals of requests that never reach an operation, besides 400: the status, the error and the reason.
const TURNED_AWAY: &[(u16, Error, &str)] = &[
    (401, Error::UNAUTHORIZED, "The request has no key of the server API, or a wrong one."),
    (403, Error::PERMISSION_DENIED, "The key may not use the operation, or not in this channel."),
    (406, Error::NO_SUCH_VERSION, "`Accept` names no version that the server supports; the text lists them."),
    (413, Error::BAD_REQUEST, "The body is larger than `http_api.body_size_limit`."),
    (503, Error::INTERNAL, "The keys of `http_api.jwks` are not available now."),
];

/// Returns the document of a version.
pub(super) fn document(version: u16) -> Value {
    let mut assembler = Assembler::new(version);
    let mut paths = Map::new();
    for operation in operations_of(version) {
        assembler.add_schemas(operation);
        paths.insert(format!("/api/{}", operation.name), json!({ "post": assembler.operation(operation) }));
    }
    paths.insert(format!("/api/{BATCH}"), json!({ "post": assembler.batch() }));
    paths.insert("/api".to_owned(), json!({ "post": assembler.command() }));
    paths.insert("/api/errors".to_owned(), json!({ "get": assembler.errors() }));
    paths.insert("/api/openapi.json".to_owned(), json!({ "get": assembler.itself() }));
    let responses = std::mem::take(&mut assembler.refusals);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Touchline server API",
            "version": version.to_string(),
            "license": { "name": "Apache 2.0", "identifier": "Apache-2.0" },
            "description": "The body of an answer contains an error as `{\"error\": {…}}` with status 200. \
                With the header `X-Centrifugo-Error-Mode: transport` the body is the error alone, `{…}`, with its own \
                status.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ "header": [] }, { "apikey": [] }, { "bearer": [] }, { "query": [] }],
        "paths": paths,
        "components": {
            "schemas": assembler.into_schemas(),
            "responses": responses,
            "parameters": parameters(),
            "headers": { "X-Request-ID": request_id("The id of the request: the caller's, or a new one.") },
            "securitySchemes": security_schemes(),
        },
    })
}

fn security_schemes() -> Value {
    let key = "`http_api.key`, or one of `http_api.keys`";
    json!({
        "header": { "type": "apiKey", "in": "header", "name": "X-API-Key", "description": key },
        "apikey": {
            "type": "apiKey", "in": "header", "name": "Authorization",
            "description": format!("`apikey ` and then {key}"),
        },
        "bearer": {
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "description": "A token of the issuer of `http_api.jwks`",
        },
        "query": { "type": "apiKey", "in": "query", "name": "api_key", "description": key },
    })
}

fn request_id(description: &str) -> Value {
    let schema =
        json!({ "type": "string", "minLength": 1, "maxLength": REQUEST_ID_LEN_MAX, "pattern": "^[\\x21-\\x7e]+$" });
    json!({ "description": description, "schema": schema })
}

fn parameters() -> Value {
    let mut id =
        request_id("An id for the request, which the answer and the log repeat; an id of another form is replaced.");
    id["schema"] = json!({ "type": "string" });
    id["name"] = "X-Request-ID".into();
    id["in"] = "header".into();
    json!({
        "RequestId": id,
        "ErrorMode": {
            "name": "X-Centrifugo-Error-Mode", "in": "header",
            "description": "`transport`: an error becomes the status of the answer.",
            "schema": { "type": "string", "enum": ["transport"] },
        },
    })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Writes an operation such as `publish_stats` as `PublishStats`.
fn type_name(operation: &str) -> String {
    let word = |word: &str| format!("{}{}", word[..1].to_ascii_uppercase(), &word[1..]);
    operation.split('_').map(word).collect()
}

/// Removes defaults that say nothing: those of required fields, and `null`.
fn without_needless_defaults(schema: &mut Value) {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in properties {
        let Some(property) = property.as_object_mut() else { continue };
        if property.get("default") == Some(&Value::Null) || required.contains(&name.as_str().into()) {
            property.remove("default");
        }
    }
}

/// The schema of an error with one of these numbers.
fn error_of(codes: &BTreeSet<u32>) -> Value {
    json!({ "allOf": [reference("Error"), { "properties": { "code": { "enum": codes } } }] })
}

/// The schema of an error in the body of an answer with status 200.
fn inside(error: &Value) -> Value {
    json!({ "type": "object", "properties": { "error": error }, "required": ["error"] })
}

/// Assembles the document of one version.
struct Assembler {
    content_types: [&'static str; 2],
    requests: SchemaGenerator,
    replies: SchemaGenerator,
    schemas: Map<String, Value>,
    /// The answers that report errors, by status and errors.
    refusals: Map<String, Value>,
    /// The operations that were added so far.
    names: Vec<&'static str>,
}

impl Assembler {
    fn new(version: u16) -> Self {
        let mut settings = SchemaSettings::draft2020_12();
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
        let (requests, replies) = (settings.clone().for_deserialize(), settings.for_serialize());
        let mut replies = replies.into_generator();
        let _ = replies.subschema_for::<ErrorJson>();
        Assembler {
            content_types: [JSON, version::known(version).map_or(JSON, |version| version.media_type)],
            requests: requests.into_generator(),
            replies,
            schemas: Map::new(),
            refusals: Map::new(),
            names: Vec::new(),
        }
    }

    fn add_schemas(&mut self, operation: &OperationDescription) {
        let name = type_name(operation.name);
        let with_example = |mut schema: Schema, example: &str| {
            let example: Value = serde_json::from_str(example).unwrap_or_default();
            schema.insert("examples".into(), json!([example]));
            schema.to_value()
        };
        let request = with_example((operation.request_schema)(&mut self.requests), operation.example);
        let reply = with_example((operation.reply_schema)(&mut self.replies), operation.reply_example);
        let mut request = request;
        without_needless_defaults(&mut request);
        self.schemas.insert(format!("{name}Request"), request);
        self.schemas.insert(format!("{name}Reply"), reply);
        self.names.push(operation.name);
    }

    fn into_schemas(mut self) -> Map<String, Value> {
        let mut all = self.requests.take_definitions(true);
        all.values_mut().for_each(without_needless_defaults);
        all.extend(self.replies.take_definitions(true));
        all.extend(self.schemas);
        all
    }

    /// The content of an answer, in each of its forms.
    fn content(&self, schema: &Value) -> Value {
        self.content_types.iter().map(|form| ((*form).to_owned(), json!({ "schema": schema }))).collect()
    }

    fn response(&self, description: &str, schema: &Value) -> Value {
        let id = json!({ "$ref": "#/components/headers/X-Request-ID" });
        json!({ "description": description, "headers": { "X-Request-ID": id }, "content": self.content(schema) })
    }

    /// The answers to a request: one with status 200 and this schema, and one for each status of an error. `common`:
    /// errors that no operation declares.
    fn responses(&mut self, good: &Value, errors: &[Error], common: &[Error]) -> Value {
        let mut by_status: BTreeMap<u16, (Vec<String>, BTreeSet<u32>)> = BTreeMap::new();
        let of_operation = common
            .iter()
            .chain(errors)
            .map(|error| (error.http_status, *error, format!("{}: {}.", error.code, error.message)));
        let of_gate = TURNED_AWAY.iter().map(|(status, error, why)| (*status, *error, (*why).to_owned()));
        for (status, error, why) in of_operation.chain(of_gate) {
            let (texts, codes) = by_status.entry(status).or_default();
            texts.push(why);
            codes.insert(error.code);
        }
        let codes = common.iter().chain(errors).map(|error| error.code).collect();
        let in_body = json!({ "anyOf": [good, inside(&error_of(&codes))] });
        let mut responses = Map::new();
        responses.insert("200".to_owned(), self.response("The result, or an error.", &in_body));
        for (status, (texts, codes)) in by_status {
            let name = codes.iter().fold(status.to_string(), |name, code| format!("{name}_{code}"));
            responses.insert(status.to_string(), json!({ "$ref": format!("#/components/responses/{name}") }));
            if !self.refusals.contains_key(&name) {
                let error = error_of(&codes);
                let either = json!({ "anyOf": [error, inside(&error)] });
                let refusal = self.response(&texts.join(" "), &either);
                self.refusals.insert(name, refusal);
            }
        }
        Value::Object(responses)
    }

    fn operation(&mut self, operation: &OperationDescription) -> Value {
        let name = type_name(operation.name);
        let result = json!({
            "type": "object", "required": ["result"], "properties": { "result": reference(&format!("{name}Reply")) },
        });
        let again = if operation.is_idempotent {
            "can be sent again"
        } else {
            "must not be sent again without a check, because it may have been carried out"
        };
        let errors: Vec<u32> = COMMON_ERRORS.iter().chain(operation.errors).map(|error| error.code).collect();
        let responses = self.responses(&result, operation.errors, COMMON_ERRORS);
        json!({
            "operationId": operation.name,
            "summary": operation.summary,
            "description": format!("Runs on {}. A request that got no answer {again}.", operation.scope.text()),
            "parameters": self.parameters(),
            "requestBody": self.body(&reference(&format!("{name}Request")), operation.example),
            "responses": responses,
            "x-touchline-scope": operation.scope.name(),
            "x-touchline-idempotent": operation.is_idempotent,
            "x-touchline-errors": errors,
        })
    }

    fn parameters(&self) -> Value {
        json!([{ "$ref": "#/components/parameters/RequestId" }, { "$ref": "#/components/parameters/ErrorMode" }])
    }

    fn body(&self, schema: &Value, example: &str) -> Value {
        let example: Value = serde_json::from_str(example).unwrap_or_default();
        // A request without a body stands for an empty object.
        let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
        let own = name.and_then(|name| self.schemas.get(name)).unwrap_or(schema);
        let is_required = own.get("required").is_some();
        json!({ "required": is_required, "content": { JSON: { "schema": schema, "example": example } } })
    }

    /// The path `POST /api/batch`.
    fn batch(&mut self) -> Value {
        let each = |suffix: &str| -> Map<String, Value> {
            self.names
                .iter()
                .map(|name| ((*name).to_owned(), reference(&format!("{}{suffix}", type_name(name)))))
                .collect()
        };
        let mut replies = each("Reply");
        replies.insert("error".to_owned(), reference("Error"));
        let one_of = |members: Map<String, Value>| {
            let mut one = json!({ "type": "object", "minProperties": 1, "maxProperties": 1 });
            one["properties"] = Value::Object(members);
            one
        };
        let request = json!({
            "type": "object",
            "properties": {
                "commands": { "type": "array", "maxItems": COMMANDS_MAX, "items": one_of(each("Request")) },
                "parallel": {
                    "type": "boolean",
                    "description": "Whether several commands run at a time. The replies keep the order of the commands."
                },
            },
        });
        let reply = json!({
            "type": "object", "required": ["replies"],
            "properties": { "replies": { "type": "array", "items": one_of(replies) } },
        });
        let responses = self.responses(&reply, &[], &[Error::BAD_REQUEST]);
        json!({
            "operationId": BATCH,
            "summary": "Runs several operations in their order",
            "description": "All commands are decoded before the first is run. Each is checked and refused on its own.",
            "parameters": self.parameters(),
            "requestBody": self.body(&request, r#"{"commands": [{"info": {}}, {"channels": {}}]}"#),
            "responses": responses,
        })
    }

    /// The path `POST /api`.
    fn command(&mut self) -> Value {
        let methods =
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer", "minimum": 0, "maximum": numbers() - 1 }] });
        let request = json!({
            "type": "object", "required": ["method"],
            "properties": {
                "id": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
                "method": methods,
                "params": { "type": ["object", "null"] },
            },
        });
        let id = json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX });
        let reply = json!({
            "type": "object", "properties": { "id": id, "result": { "type": "object" } },
        });
        let responses = self.responses(&reply, Error::ALL, &[]);
        json!({
            "operationId": "command",
            "summary": "Runs the operation that the body names; the form of older libraries",
            "description": "The body may contain several commands, one a line. The answer has one line for each.",
            "parameters": self.parameters(),
            "requestBody": self.body(&request, r#"{"method": "publish", "params": {"channel": "news", "data": 1}}"#),
            "responses": responses,
        })
    }

    /// The path `GET /api/errors`.
    fn errors(&mut self) -> Value {
        let schema = self.replies.subschema_for::<Catalogue>().to_value();
        self.read("errors", "Lists every error, and the codes of disconnects and unsubscribes", &schema)
    }

    /// The path `GET /api/openapi.json`.
    fn itself(&mut self) -> Value {
        let schema = json!({ "type": "object", "required": ["openapi", "info", "paths", "components"] });
        self.read("openapi", "Reads this document", &schema)
    }

    fn read(&mut self, id: &str, summary: &str, schema: &Value) -> Value {
        let responses = self.responses(schema, &[], &[]);
        json!({
            "operationId": id,
            "summary": summary,
            "description": "Any key may read it.",
            "parameters": [{ "$ref": "#/components/parameters/RequestId" }],
            "responses": responses,
            "x-touchline-idempotent": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the values of a key at any depth.
    fn under<'v>(key: &str, value: &'v Value, found: &mut Vec<&'v Value>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, value)| {
                if name == key {
                    found.push(value);
                }
                under(key, value, found);
            }),
            Value::Array(values) => values.iter().for_each(|value| under(key, value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_to_something() {
        let document = document(1);
        let mut references = Vec::new();
        under("$ref", &document, &mut references);
        assert!(references.len() > 200);
        for reference in references.iter().filter_map(|reference| reference.as_str()) {
            let pointer = reference.strip_prefix('#').expect("it is in the document");
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    #[test]
    fn every_field_of_a_request_is_in_its_schema_and_has_a_description() {
        let document = document(1);
        for operation in operations_of(1) {
            let schema = &document["components"]["schemas"][format!("{}Request", type_name(operation.name))];
            let no_fields = Map::new();
            let properties = schema["properties"].as_object().unwrap_or(&no_fields);
            let fields: BTreeSet<&str> = (operation.request_fields)().into_iter().collect();
            assert_eq!(properties.keys().map(String::as_str).collect::<BTreeSet<_>>(), fields, "{}", operation.name);
            for (name, property) in properties {
                assert!(property["description"].is_string(), "{}.{name}: {property}", operation.name);
            }
        }
    }

    #[test]
    fn a_type_has_one_schema_whether_it_is_asked_for_or_answered() {
        let mut assembler = Assembler::new(1);
        operations_of(1).for_each(|operation| assembler.add_schemas(operation));
        let (requests, replies) = (assembler.requests.take_definitions(true), assembler.replies.take_definitions(true));
        for (name, schema) in requests.iter().chain(&replies).chain(&assembler.schemas) {
            let all = [requests.get(name), replies.get(name)];
            assert!(all.iter().flatten().all(|other| *other == schema || is_example_more(other, schema)), "{name}");
        }
    }

    /// Whether two schemas are equal except for an example.
    fn is_example_more(one: &Value, other: &Value) -> bool {
        let without = |schema: &Value| {
            let mut schema = schema.clone();
            schema.as_object_mut().map(|members| members.remove("examples"));
            schema
        };
        without(one) == without(other)
    }
}
