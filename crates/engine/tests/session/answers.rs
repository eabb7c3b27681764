//! Answers of backends: `null` counts as absent in every field, and a fault names its field without its value.

use std::sync::Arc;

use serde_json::{Value, json};
use touchline_engine::caps::CapsCache;
use touchline_engine::hook::{HookKind, parse_answer};

/// Answers in which every field is set.
fn answers() -> Vec<(HookKind, Value)> {
    let overrides = json!({
        "presence": {"value": true}, "join_leave": {"value": true}, "force_push_join_leave": {"value": true},
        "force_positioning": {"value": true}, "force_recovery": {"value": true}
    });
    let caps = json!([{"channels": ["a"], "match": "wildcard", "allow": ["sub"]}]);
    let entry = json!([{"scope": "devices", "name": "door", "meta": {"floor": 2}}]);
    let payloads = json!({"info": 1, "b64info": "Mg==", "data": 3, "b64data": "NA=="});
    let with = |mut fields: Value| {
        fields.as_object_mut().expect("an object").extend(payloads.as_object().expect("an object").clone());
        fields
    };
    let of_result = |kind, result| (kind, json!({ "result": result }));
    vec![
        of_result(
            HookKind::Connect,
            with(json!({
                "user": "ann", "expire_at": 5, "channels": ["a"], "meta": {}, "caps": caps, "labels": {"a": "b"},
                "subs": {"b": with(json!({"override": overrides}))},
                "names": entry, "groups": entry, "register": {"devices": ["door*"]}
            })),
        ),
        of_result(HookKind::Refresh, with(json!({"expired": true, "expire_at": 5, "meta": {}, "caps": caps}))),
        of_result(
            HookKind::Subscribe,
            with(json!({
                "expire_at": 5, "override": overrides, "allow": ["pub"], "cache_for": 5, "cache_scope": "channel"
            })),
        ),
        of_result(
            HookKind::Publish,
            with(json!({
                "skip_publish": true, "skip_history": true, "tags": {"a": "b"}, "idempotency_key": "k", "version": 4,
                "version_epoch": "e"
            })),
        ),
        of_result(HookKind::Rpc, with(json!({}))),
        of_result(HookKind::SubRefresh, with(json!({"expired": true, "expire_at": 5}))),
        of_result(HookKind::Conflict, json!({"keep": "ann"})),
        (HookKind::Publish, json!({"error": {"code": 403, "message": "no", "temporary": true}})),
        (HookKind::Publish, json!({"disconnect": {"code": 4501, "reason": "out"}})),
    ]
}

/// The paths of all fields in a value, except those whose names the backend chooses: channels, labels, scopes, tags,
/// and the contents of `meta`.
fn fields(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            let is_named_by_backend =
                ["subs", "labels", "register", "tags", "meta"].iter().any(|name| path.ends_with(name));
            for (name, value) in object {
                let path = format!("{path}/{name}");
                if !is_named_by_backend {
                    found.push(path.clone());
                }
                fields(value, &path, found);
            }
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| fields(value, &format!("{path}/{index}"), found));
        }
        _ => {}
    }
}

/// The meaning of an answer, as text that is the same for two equal answers.
fn meaning(kind: HookKind, answer: &Value) -> String {
    match parse_answer(kind, answer.to_string().as_bytes(), &Arc::<CapsCache>::default()) {
        Ok(outcome) => format!("{outcome:?}"),
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn null_is_no_field_in_every_field_of_every_answer() {
    let mut count = 0;
    for (kind, answer) in answers() {
        let (mut paths, whole) = (Vec::new(), meaning(kind, &answer));
        fields(&answer, "", &mut paths);
        for path in paths {
            let (mut with_null, mut without) = (answer.clone(), answer.clone());
            *with_null.pointer_mut(&path).expect("it is there") = Value::Null;
            let (parent, name) = path.rsplit_once('/').expect("a path");
            without.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object").remove(name);
            assert_eq!(meaning(kind, &with_null), meaning(kind, &without), "{path}");
            count += usize::from(meaning(kind, &without) != whole);
        }
    }
    assert!(count > 60, "most fields mean something: {count}");
}

#[test]
fn a_fault_names_its_field_and_never_its_value() {
    let cases = [
        (HookKind::Connect, r#"{"result":{"user":56}}"#, "result.user: expected text, found a number"),
        (HookKind::Connect, r#"{"result":{"labels":{"a":7}}}"#, "result.labels.a: expected text, found a number"),
        (
            HookKind::Connect,
            r#"{"result":{"channels":["a",{"s":1}]}}"#,
            "result.channels[1]: expected text, found an object",
        ),
        (HookKind::Connect, r#"{"result":["secret"]}"#, "result: expected an object, found a list"),
        (HookKind::Connect, r#"{"result":{"b64data":"%"}}"#, "result.b64data: it has a value that it cannot have"),
        (
            HookKind::Subscribe,
            r#"{"result":{"cache_for":"secret"}}"#,
            "result.cache_for: expected a whole number, found text",
        ),
        (
            HookKind::Subscribe,
            r#"{"result":{"override":{"presence":{"value":"secret"}}}}"#,
            "result.override.presence.value: expected true or false, found text",
        ),
        (HookKind::Publish, r#"{"error":{"code":"403"}}"#, "error.code: expected a whole number, found text"),
        (
            HookKind::Connect,
            r#"{"result":{"expire_at":1790000000000}}"#,
            "result.expire_at: expected Unix seconds of at most 4294967295, found a later time (milliseconds?)",
        ),
    ];
    for (kind, answer, fault) in cases {
        assert_eq!(meaning(kind, &serde_json::from_str(answer).expect("JSON")), fault, "{answer}");
    }
}
