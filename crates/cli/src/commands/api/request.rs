//! Builds the body of a request from the arguments. Pure.

use serde_json::{Map, Value as Json};
use touchline_config::nearest;
use touchline_server::{FieldKind, OperationDescription};

use crate::api_arguments::kind_text;

/// Builds the body of a request. `whole` is the JSON of a whole request, which is sent unchanged if there are no
/// `words`. `words` are fields; they override those of `whole`.
///
/// # Errors
/// What is wrong with the arguments, for an operator.
pub(super) fn body(
    operation: &OperationDescription,
    whole: Option<String>,
    words: &[String],
) -> Result<Vec<u8>, String> {
    let mut typed = Map::new();
    for word in words {
        let (name, value) = field(operation, word)?;
        if typed.insert(name.to_owned(), value).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    let Some(whole) = whole else { return Ok(Json::Object(typed).to_string().into_bytes()) };
    let mut request: Map<String, Json> =
        serde_json::from_str(&whole).map_err(|error| format!("--data must be a JSON object: {error}"))?;
    if typed.is_empty() {
        return Ok(whole.into_bytes());
    }
    request.extend(typed);
    Ok(Json::Object(request).to_string().into_bytes())
}

/// Parses one word into the name of a field and its value.
fn field(operation: &OperationDescription, word: &str) -> Result<(&'static str, Json), String> {
    let Some((name, value)) = word.split_once('=') else {
        return Err(format!("{word:?} has no value: write FIELD=VALUE or FIELD:=JSON"));
    };
    let (name, is_json) = name.strip_suffix(':').map_or((name, false), |name| (name, true));
    let (name, kind) = known(operation, name)?;
    if kind == FieldKind::Text && !is_json {
        return Ok((name, Json::from(value)));
    }
    let read: Option<Json> = serde_json::from_str(value).ok();
    match read.filter(|value| is_json || is_of(kind, value)) {
        Some(value) => Ok((name, value)),
        None if is_json => Err(format!("{name}:= takes JSON, but its value is not JSON")),
        None if kind == FieldKind::Json => {
            Err(format!("{name} takes JSON, but its value is not JSON (put text in quotes: '{name}=\"…\"')"))
        }
        None => Err(format!("{name} takes {}, but its value has another kind", kind_text(kind))),
    }
}

/// The field of an operation with this name, or a text with a hint.
fn known(operation: &OperationDescription, name: &str) -> Result<(&'static str, FieldKind), String> {
    let fields = operation.fields();
    if let Some(field) = fields.iter().find(|(known, _)| *known == name) {
        return Ok(*field);
    }
    let names = || fields.iter().map(|(known, _)| *known);
    let hint = match nearest(name, names()) {
        Some(near) => format!("did you mean {near}?"),
        None if fields.is_empty() => "it takes no fields".to_owned(),
        None => format!("it takes {}", names().collect::<Vec<_>>().join(", ")),
    };
    Err(format!("{} has no field {name:?}: {hint}", operation.name))
}

fn is_of(kind: FieldKind, value: &Json) -> bool {
    value.is_null()
        || match kind {
            FieldKind::Text => value.is_string(),
            FieldKind::Integer => value.is_i64() || value.is_u64(),
            FieldKind::Number => value.is_number(),
            FieldKind::Boolean => value.is_boolean(),
            FieldKind::List => value.is_array(),
            FieldKind::Object => value.is_object(),
            FieldKind::Json => true,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use touchline_server::operations;

    use super::*;
    use crate::api_arguments::example;

    fn of(operation: &str, whole: Option<&str>, words: &[&str]) -> Result<Json, String> {
        let operation = operations().find(|known| known.name == operation).expect("it is an operation");
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        body(operation, whole.map(str::to_owned), &words).map(|body| serde_json::from_slice(&body).expect("JSON"))
    }

    #[test]
    fn a_value_is_what_its_field_takes() {
        for (operation, words, expected) in [
            ("disconnect", &["user=42"][..], json!({"user": "42"})),
            ("disconnect", &["user=true", "client="], json!({"user": "true", "client": ""})),
            ("disconnect", &["user=a=b"], json!({"user": "a=b"})),
            ("disconnect", &["user:=42"], json!({"user": 42})),
            ("disconnect", &["user=\"42\""], json!({"user": "\"42\""})),
            (
                "history",
                &["channel=7", "limit=10", "reverse=true"],
                json!({"channel": "7", "limit": 10, "reverse": true}),
            ),
            ("history", &["channel=a", r#"since={"offset": 3}"#], json!({"channel": "a", "since": {"offset": 3}})),
            ("publish", &["channel=a", "data=42"], json!({"channel": "a", "data": 42})),
            ("publish", &["channel=a", r#"data="text""#], json!({"channel": "a", "data": "text"})),
            ("publish", &["channel=a", "data=null", "tags=null"], json!({"channel": "a", "data": null, "tags": null})),
            ("broadcast", &[r#"channels=["a", "b"]"#], json!({"channels": ["a", "b"]})),
            ("lookup", &["scope=devices", "name=7"], json!({"scope": "devices", "name": "7"})),
            ("info", &[], json!({})),
        ] {
            assert_eq!(of(operation, None, words), Ok(expected), "{operation} {words:?}");
        }
    }

    #[test]
    fn what_is_typed_wrongly_is_told_with_what_was_meant() {
        for (operation, words, expected) in [
            ("publish", &["chanel=a"][..], "publish has no field \"chanel\": did you mean channel?"),
            ("publish", &["chanel:=1"], "did you mean channel?"),
            ("publish", &["=a"], "it takes channel, data, b64data"),
            ("info", &["x=1"], "it takes no fields"),
            ("publish", &["channel"], "\"channel\" has no value"),
            ("publish", &["channel=a", "channel=b"], "channel is given twice"),
            ("publish", &["data=hello"], "data takes JSON, but its value is not JSON (put text in quotes"),
            ("publish", &["data:=hello"], "data:= takes JSON"),
            ("publish", &["skip_history=yes"], "skip_history takes true or false"),
            ("publish", &["tags=[]"], "tags takes an object"),
            ("history", &["limit=ten"], "limit takes a whole number"),
            ("history", &["limit=\"10\""], "limit takes a whole number"),
            ("broadcast", &["channels=a"], "channels takes a list"),
        ] {
            let said = of(operation, None, words).expect_err(expected);
            assert!(said.contains(expected), "{words:?}: {said}");
        }
        for whole in ["", "[]", "7", "{", "{} {}"] {
            assert!(of("publish", Some(whole), &[]).is_err_and(|said| said.contains("--data")), "{whole}");
        }
    }

    #[test]
    fn a_whole_request_is_sent_as_it_is_and_typed_fields_win() {
        let whole = Some(r#"{"channel": "a", "later": 1}"#);
        assert_eq!(of("publish", whole, &[]), Ok(json!({"channel": "a", "later": 1})));
        assert_eq!(of("publish", whole, &["channel=b"]), Ok(json!({"channel": "b", "later": 1})));
        let operation = operations().next().expect("there are operations");
        let exact = r#"{ "version":18446744073709551616.000 }"#;
        assert_eq!(body(operation, Some(exact.to_owned()), &[]), Ok(exact.as_bytes().to_vec()));
    }

    #[test]
    fn every_example_of_the_help_is_the_example_of_the_table() {
        for operation in operations() {
            let line = example(operation);
            let words = shlex::split(&line).expect("a line of a shell");
            assert_eq!(words[..3], ["touchline", "api", operation.name]);
            let found = body(operation, None, &words[3..]).expect("it is typed well");
            let found: Json = serde_json::from_slice(&found).expect("JSON");
            assert_eq!(found, serde_json::from_str::<Json>(operation.example).expect("JSON"), "{line}");
        }
    }
}
