//! The list of bans, from the memory of a node and from its database.

use serde_json::{Value, json};
use touchline_server::Settings;
use touchline_testkit::until;

use super::bans::{Scratch, done, now_s};
use super::support::{TestServer, without_details};

/// Runs a test with bans in both places of a node without a cluster: in its memory, and in its database.
fn in_both(name: &str, test: impl Fn(&TestServer)) {
    test(&TestServer::start());
    let scratch = Scratch::new(name);
    let url = format!("sqlite:{}", scratch.0.join("primary.db").display());
    test(&TestServer::with(|settings: &mut Settings| {
        settings.security.use_primary = true;
        settings.store.primary.url = url;
    }));
}

fn listed(server: &TestServer, body: Value) -> (Vec<String>, Value) {
    let answer = server.api("bans", body.clone());
    let bans = answer["result"]["bans"].as_array().unwrap_or_else(|| panic!("{body}: {answer}"));
    let text = |ban: &Value| [&ban["kind"], &ban["name"]].map(|part| part.as_str().unwrap_or_default()).join(" ");
    (bans.iter().map(text).collect(), answer["result"]["cursor"].clone())
}

#[test]
fn bans_are_listed_by_kind_and_name() {
    in_both("bans-listed", |server| {
        assert_eq!(server.api("bans", json!({})), json!({"result": {"bans": []}}));
        let end_s = now_s() + 1_000;
        done(server, "block_user", json!({"user": "bob"}));
        done(server, "block_user", json!({"user": "ann", "expire_at": end_s}));
        done(server, "block_user", json!({"user": "eve"}));
        done(server, "revoke_token", json!({"uid": "a:b"}));
        done(server, "invalidate_user_tokens", json!({"user": "bob", "issued_before": 1_767_225_600}));
        done(server, "unblock_user", json!({"user": "eve"}));
        let all = json!({"result": {"bans": [
            {"kind": "token", "name": "a:b"},
            {"kind": "user", "name": "ann", "until_s": end_s},
            {"kind": "user", "name": "bob"},
            {"kind": "issued_before", "name": "bob", "issued_before_s": 1_767_225_600},
        ]}});
        assert_eq!(server.api("bans", json!({})), all);
        let (users, cursor) = listed(server, json!({"kind": "user"}));
        assert_eq!((users, cursor), (vec!["user ann".to_owned(), "user bob".to_owned()], Value::Null));
        let (mut cursor, mut seen) = (Value::Null, Vec::new());
        loop {
            let (page, next) = listed(server, json!({"limit": 1, "cursor": cursor}));
            assert!(page.len() <= 1);
            seen.extend(page);
            if next.is_null() {
                break;
            }
            cursor = next;
        }
        assert_eq!(seen, ["token a:b", "user ann", "user bob", "issued_before bob"]);
    });
}

#[test]
fn what_has_ended_is_not_listed_and_bad_requests_are_refused() {
    in_both("bans-ended", |server| {
        done(server, "block_user", json!({"user": "ann", "expire_at": now_s() + 2}));
        assert_eq!(listed(server, json!({})).0, ["user ann"]);
        until("the ban ends", || listed(server, json!({})).0.is_empty());
        let bad = |field: &str| json!({"error": {"code": 107, "message": "bad request", "field": field}});
        let refused = |request: Value| without_details(server.api("bans", request));
        assert_eq!(refused(json!({"kind": "group"})), bad("kind"));
        assert_eq!(refused(json!({"cursor": "x"})), bad("cursor"));
        assert_eq!(refused(json!({"kind": "token", "cursor": "user_block:ann"})), bad("cursor"));
    });
}
