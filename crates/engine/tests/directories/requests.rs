//! The request of each method, as clients and backends write it.

use serde_json::{Value, json};
use touchline_engine::directory::Scopes;
use touchline_protocol::Error;

use crate::world::{World, devices, read};

fn scopes() -> Scopes {
    World::alone(devices()).node("a").scopes()
}

/// Reads a request and shows it as text.
fn asked(method: &str, params: &Value, scopes: &Scopes) -> Result<String, Error> {
    read(method, &params.to_string(), scopes).map(|ask| format!("{ask:?}"))
}

#[test]
fn names_come_in_order_behind_a_name_that_is_given() {
    let scopes = scopes();
    let listing = "Listing { scope: ScopeId(1), prefix: \"\", cursor: 0, limit: 50 }";
    for (after, expected) in [
        (Value::Null, format!("Names({listing})")),
        (json!(""), format!("NamesAfter {{ after: \"\", listing: {listing} }}")),
        (json!("b"), format!("NamesAfter {{ after: \"b\", listing: {listing} }}")),
    ] {
        let params = json!({"scope": "robots", "after": after, "limit": 50});
        assert_eq!(asked("names", &params, &scopes), Ok(expected), "{params}");
    }
}

#[test]
fn each_method_asks_for_what_it_says() {
    let scopes = scopes();
    let name = json!({"name": "bike", "meta": 1, "data": 2, "group": "", "scope": "devices"});
    let group = json!({"group": "all", "meta": 1, "data": 2, "scope": "robots"});
    let page = json!({"scope": "robots", "prefix": "b", "group": "all", "cursor": 7, "limit": 50});
    let cases: &[(&str, &Value, &str)] = &[
        ("register", &name, r#"Register { scope: ScopeId(0), name: "bike", meta: b"1", take_over: false }"#),
        ("unregister", &name, r#"Unregister { scope: ScopeId(0), name: "bike" }"#),
        ("update_meta", &name, r#"UpdateMeta { scope: ScopeId(0), name: "bike", meta: b"1", expected: None }"#),
        ("lookup", &name, r#"Lookup { scope: ScopeId(0), name: "bike" }"#),
        ("join", &group, r#"Join { scope: ScopeId(1), group: "all", meta: b"1" }"#),
        ("leave", &group, r#"Leave { scope: ScopeId(1), group: "all" }"#),
        ("member", &group, r#"Member { scope: ScopeId(1), group: "all", client: None }"#),
        ("members", &group, r#"Members { scope: ScopeId(1), group: "all" }"#),
        ("names", &page, r#"Names(Listing { scope: ScopeId(1), prefix: "b", cursor: 7, limit: 50 })"#),
        ("groups", &page, r#"Groups(Listing { scope: ScopeId(1), prefix: "b", cursor: 7, limit: 50 })"#),
        (
            "members",
            &page,
            r#"MemberPage { group: "all", listing: Listing { scope: ScopeId(1), prefix: "", cursor: 7, limit: 50 } }"#,
        ),
        ("count", &group, "Count { scope: ScopeId(1) }"),
        ("changes", &group, "Changes { scope: ScopeId(1), position: None }"),
        (
            "send",
            &name,
            concat!(
                r#"Send { target: Target { scope: ScopeId(0), key: "bike", is_group: false }, "#,
                r#"data: b"2", store_for_ms: 0 }"#
            ),
        ),
        (
            "send",
            &group,
            r#"Send { target: Target { scope: ScopeId(1), key: "all", is_group: true }, data: b"2", store_for_ms: 0 }"#,
        ),
        (
            "call",
            &name,
            concat!(
                r#"Call { target: Target { scope: ScopeId(0), key: "bike", is_group: false }, "#,
                r#"data: b"2", timeout_ms: 5000 }"#
            ),
        ),
        (
            "multi_call",
            &group,
            concat!(
                r#"Call { target: Target { scope: ScopeId(1), key: "all", is_group: true }, "#,
                r#"data: b"2", timeout_ms: 5000 }"#
            ),
        ),
    ];
    for (method, params, expected) in cases {
        assert_eq!(asked(method, params, &scopes).as_deref(), Ok(*expected), "{method} {params}");
    }
    assert_eq!(asked("rename", &name, &scopes), Err(Error::METHOD_NOT_FOUND));
    assert_eq!(asked("register", &json!({"name": "bike"}), &scopes), Err(Error::BAD_REQUEST));
    assert_eq!(asked("register", &json!({"scope": "nowhere", "name": "bike"}), &scopes), Err(Error::NO_SUCH_SCOPE));
    for odd in ["", "1", "{\"name\":1}", "{\"scope\":\"devices\",\"meta\":"] {
        assert_eq!(read("register", odd, &scopes).err(), Some(Error::BAD_REQUEST), "{odd}");
    }
    for odd in ["{\"cursor\":-1}", "{\"cursor\":4294967296}"] {
        assert_eq!(read("names", odd, &scopes).err(), Some(Error::BAD_REQUEST), "{odd}");
    }
}

#[test]
fn each_field_is_read_with_its_limits() {
    let scopes = scopes();
    let of = |method: &str, key: &str, value: Value| {
        let mut params = json!({"scope": "devices", "data": 2, "meta": 1});
        let target = match method {
            "changes" => "prefix",
            "members" | "join" | "leave" | "member" => "group",
            _ => "name",
        };
        params[target] = json!("bike");
        params[key] = value;
        asked(method, &params, &scopes)
    };
    let bad = Err(Error::BAD_REQUEST);
    let ends = |asked: Result<String, Error>, end: &str| {
        assert!(asked.as_ref().is_ok_and(|asked| asked.ends_with(end)), "{asked:?} {end}")
    };
    for (policy, take_over) in [("", false), ("oldest", false), ("reject", false), ("newest", true)] {
        ends(of("register", "policy", json!(policy)), &format!("take_over: {take_over} }}"));
    }
    assert_eq!(of("register", "policy", json!("latest")), bad);
    ends(of("register", "meta", Value::Null), r#"meta: b"", take_over: false }"#);
    ends(of("update_meta", "version", json!("7.2")), "expected: Some((Stamp(7), 2)) }");
    ends(of("update_meta", "version", json!("")), "expected: None }");
    for odd in ["7", "7.", ".2", "7.2.3", "-7.2", "18446744073709551616.0", "0.4294967296"] {
        assert_eq!(of("update_meta", "version", json!(odd)), bad, "{odd}");
    }
    for (limit, read) in [(0, 100), (1, 1), (999, 999), (1_000, 1_000), (1_001, 1_000)] {
        ends(of("names", "limit", json!(limit)), &format!("cursor: 0, limit: {read} }})"));
    }
    // A page of members is requested if a cursor or a limit is given.
    ends(of("members", "cursor", json!(1)), "cursor: 1, limit: 100 } }");
    ends(of("members", "limit", json!(1)), "cursor: 0, limit: 1 } }");
    ends(of("call", "timeout_ms", json!(1)), "timeout_ms: 1 }");
    ends(of("send", "store_for", json!(2)), "store_for_ms: 2000 }");
    ends(of("send", "store_for", json!(u64::MAX)), &format!("store_for_ms: {} }}", u64::MAX));
    // A call or a message has either a name or a group.
    for method in ["send", "call", "multi_call"] {
        assert_eq!(of(method, "group", json!("all")), bad, "{method} to both");
        assert_eq!(of(method, "name", json!("")), bad, "{method} to nobody");
    }
    let id = "01010101-0101-0101-0101-010101010101";
    ends(
        of("member", "client", json!(id)),
        "client: Some(OwnerId([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])) }",
    );
    assert_eq!(of("member", "client", json!("x")), bad);
}

#[test]
fn positions_have_an_epoch_and_an_offset() {
    let scopes = scopes();
    let of = |epoch: &str, offset: u64| {
        asked("changes", &json!({"scope": "devices", "epoch": epoch, "offset": offset}), &scopes)
    };
    let position = |epoch: &str, offset: u64| {
        Ok(format!(
            r#"Changes {{ scope: ScopeId(0), position: Some(WatchPosition {{ epoch: "{epoch}", offset: {offset} }}) }}"#
        ))
    };
    assert_eq!(of("", 0), Ok("Changes { scope: ScopeId(0), position: None }".into()));
    assert_eq!((of("e", 0), of("0123456789abcdef", 9)), (position("e", 0), position("0123456789abcdef", 9)));
    assert_eq!((of("", 1), of("0123456789abcdef0", 9)), (Err(Error::BAD_REQUEST), Err(Error::BAD_REQUEST)));
}

#[test]
fn replies_to_calls_and_acknowledgements_need_no_scope() {
    let scopes = scopes();
    let reply = |params: Value| asked("reply", &params, &scopes);
    assert_eq!(reply(json!({"call": 5, "data": [1]})), Ok(r#"Reply { call: 5, outcome: Ok(b"[1]") }"#.into()));
    assert_eq!(reply(json!({"call": 5})), Ok(r#"Reply { call: 5, outcome: Ok(b"null") }"#.into()));
    assert_eq!(
        reply(json!({"call": 5, "data": 1, "error": "no"})),
        Ok(r#"Reply { call: 5, outcome: Err(b"\"no\"") }"#.into())
    );
    let acknowledge = |params: Value| asked("inbox.ack", &params, &scopes);
    assert_eq!(acknowledge(json!({})), Ok("Acknowledge { ids: [] }".into()));
    assert_eq!(acknowledge(json!({"ids": ["3", "4"], "id": "5"})), Ok("Acknowledge { ids: [3, 4, 5] }".into()));
    assert_eq!(acknowledge(json!({"ids": ["3", "x"]})), Err(Error::BAD_REQUEST));
    assert!(acknowledge(json!({"ids": vec!["1"; 1_000]})).is_ok());
    assert_eq!(acknowledge(json!({"ids": vec!["1"; 1_001]})), Err(Error::BAD_REQUEST));
}
