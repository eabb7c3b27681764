//! The kinds of values that the fields of requests take. They come from the schemas; a command line makes JSON from its
//! arguments by them.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::description::OperationDescription;

/// The kind of value that a field of a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A text, which becomes a JSON string.
    Text,
    /// A whole number.
    Integer,
    /// A number, which may have a fraction.
    Number,
    /// The value `true` or `false`.
    Boolean,
    /// A JSON list.
    List,
    /// A JSON object.
    Object,
    /// Any JSON value.
    Json,
}

impl OperationDescription {
    /// Returns the fields of the request, each with its kind.
    pub fn fields(&self) -> Vec<(&'static str, FieldKind)> {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let schema = (self.request_schema)(&mut generator);
        let definitions = generator.take_definitions(true);
        let properties = resolved(schema.as_value(), &definitions).get("properties").unwrap_or(&Value::Null);
        let kind_of = |name: &'static str| (name, kind(&properties[name], &definitions));
        (self.request_fields)().into_iter().map(kind_of).collect()
    }
}

/// Returns what a schema allows besides `null`. A schema that allows several types takes any JSON.
fn kind(schema: &Value, definitions: &Map<String, Value>) -> FieldKind {
    let schema = resolved(schema, definitions);
    if let Some(forms) = schema.get("anyOf").and_then(Value::as_array) {
        let mut other = forms.iter().filter(|form| form["type"] != "null");
        return match (other.next(), other.next()) {
            (Some(form), None) => kind(form, definitions),
            _ => FieldKind::Json,
        };
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect(),
        one => one.as_str().into_iter().collect::<Vec<_>>(),
    };
    match types[..] {
        ["string"] => FieldKind::Text,
        ["integer"] => FieldKind::Integer,
        ["number"] => FieldKind::Number,
        ["boolean"] => FieldKind::Boolean,
        ["array"] => FieldKind::List,
        ["object"] => FieldKind::Object,
        _ => FieldKind::Json,
    }
}

/// Returns the schema that a reference points to, or the schema itself if it is not a reference.
fn resolved<'s>(schema: &'s Value, definitions: &'s Map<String, Value>) -> &'s Value {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    name.and_then(|name| definitions.get(name)).unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use schemars::{JsonSchema, Schema};

    use super::*;
    use crate::api::operations;

    #[derive(JsonSchema)]
    #[expect(dead_code)]
    struct Inner {
        a: u32,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code)]
    struct Request {
        text: String,
        maybe: Option<String>,
        whole: u64,
        ratio: Option<f64>,
        switch: bool,
        list: Option<Vec<String>>,
        object: Option<Inner>,
        any: Value,
    }

    #[test]
    fn each_field_tells_what_it_takes() {
        use FieldKind::{Boolean, Integer, Json, List, Number, Object, Text};
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let schema: Schema = Request::json_schema(&mut generator);
        let definitions = generator.take_definitions(true);
        let expected = [
            ("text", Text),
            ("maybe", Text),
            ("whole", Integer),
            ("ratio", Number),
            ("switch", Boolean),
            ("list", List),
            ("object", Object),
            ("any", Json),
        ];
        for (name, wanted) in expected {
            assert_eq!(kind(&schema.as_value()["properties"][name], &definitions), wanted, "{name}");
        }
    }

    #[test]
    fn every_field_of_every_operation_is_in_its_schema() {
        for operation in operations() {
            let mut generator = SchemaSettings::draft2020_12().into_generator();
            let schema = (operation.request_schema)(&mut generator);
            let definitions = generator.take_definitions(true);
            let schema = resolved(schema.as_value(), &definitions);
            for name in (operation.request_fields)() {
                assert!(schema["properties"].get(name).is_some(), "{}: {name} in {schema}", operation.name);
            }
        }
    }
}
