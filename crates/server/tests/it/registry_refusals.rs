//! Bad requests to operations of the registry. Each refusal names the field, over HTTP and over gRPC.

use serde_json::{Value, json};

use super::connected::of_user;
use super::support::{TestServer, without_details};

/// Requests that are refused with 107, each with the field at fault. `client`: the id of a connected client.
fn cases(client: &str) -> Vec<(&'static str, Value, &'static str)> {
    let (control, long) = ("a\u{7}", "n".repeat(300));
    let (large, name) = (json!("x".repeat(5_000)), json!("bike"));
    let of = |field: &str, value: Value| {
        let mut body = json!({"scope": "devices", "name": name, "client": client});
        body[field] = value;
        body
    };
    let group = |field: &str, value: Value| {
        let mut body = json!({"scope": "devices", "group": "bikes", "client": client});
        body[field] = value;
        body
    };
    let mut version = of("version", json!("7"));
    version["meta"] = json!(1);
    let both = json!({"scope": "devices", "name": "a", "group": "b", "data": 1});
    vec![
        ("register", of("name", json!(control)), "name"),
        ("register", of("name", json!("")), "name"),
        ("register", of("name", json!(long)), "name"),
        ("register", of("meta", large.clone()), "meta"),
        ("register", of("policy", json!("latest")), "policy"),
        ("register", of("client", json!("nobody")), "client"),
        ("unregister", of("name", json!(control)), "name"),
        ("update_meta", json!({"scope": "devices", "name": "bike", "client": client}), "meta"),
        ("update_meta", version, "version"),
        ("lookup", json!({"scope": "devices", "name": control}), "name"),
        ("names", json!({"scope": "devices", "prefix": control}), "prefix"),
        ("names", json!({"scope": "devices", "after": control}), "after"),
        ("names", json!({"scope": "devices", "after": "a", "cursor": 1}), "cursor"),
        ("groups", json!({"scope": "devices", "prefix": control}), "prefix"),
        ("join", group("group", json!(control)), "group"),
        ("join", group("group", json!(long)), "group"),
        ("join", group("meta", large), "meta"),
        ("leave", group("group", json!(control)), "group"),
        ("members", json!({"scope": "devices", "group": control}), "group"),
        ("member", group("client", json!("nobody")), "client"),
        ("changes", json!({"scope": "devices", "offset": 1}), "epoch"),
        ("send", json!({"scope": "devices", "name": "bike"}), "data"),
        ("send", both.clone(), "group"),
        ("call", json!({"scope": "devices", "data": 1}), "name"),
        ("call", json!({"scope": "devices", "name": "bike"}), "data"),
        ("multi_call", both, "group"),
    ]
}

#[test]
fn a_bad_request_names_its_field() {
    let server = TestServer::with(|settings| {
        super::registry::devices(settings);
        #[cfg(feature = "grpc")]
        super::grpc::with_grpc(settings);
    });
    let (_client, client) = of_user(&server, json!({"sub": "ann"}), json!({}));
    let owned = server.api("register", json!({"scope": "devices", "name": "bike", "client": client}));
    assert!(owned["result"].is_object(), "{owned}");
    #[cfg(feature = "grpc")]
    let grpc = super::grpc::caller(&server);
    for (operation, body, field) in cases(&client) {
        let expected = json!({"code": 107, "message": "bad request", "field": field});
        let refused = without_details(server.api(operation, body.clone()));
        assert_eq!(refused["error"], expected, "{operation} {body}");
        #[cfg(feature = "grpc")]
        {
            let over_grpc = grpc.call(operation, body.clone()).expect("it is answered");
            assert_eq!(over_grpc["error"]["field"], field, "{operation} {body}: {over_grpc}");
        }
    }
    // A field of another type cannot be written in gRPC.
    for (operation, body, field) in [
        ("register", json!({"scope": "devices", "name": 1, "client": client}), "name"),
        ("names", json!({"scope": "devices", "limit": -1}), "limit"),
        ("names", json!({"scope": "devices", "after": 7}), "after"),
    ] {
        let error = server.api(operation, body.clone())["error"].clone();
        assert_eq!((&error["code"], &error["field"]), (&json!(107), &json!(field)), "{operation} {body}: {error}");
    }
}
