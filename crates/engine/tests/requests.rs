//! The directory's requests as clients and backends write them: what they mean, how large they may be, and how calls
//! end.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use touchline_engine::directory::{
    self, Directory, DirectoryEffect, DirectoryReply, DirectoryRequest, RegistryMethod, Requester, ScopeOptions,
    Scopes, client_text, numbered,
};
use touchline_protocol::Error;
use touchline_registry::{HashSeed, OwnerId, ReplicaTiming};

/// Reads the request of a method, by the method's name.
fn read(method: &str, params: &str, scopes: &Scopes) -> Result<DirectoryRequest, Error> {
    let method = RegistryMethod::from_name(method).ok_or(Error::METHOD_NOT_FOUND)?;
    Ok(directory::read(method, params, scopes)?)
}

const NOW: u64 = 1_000_000;

/// Nodes that receive each other's messages, and the time.
struct Nodes(Vec<(&'static str, Directory<u32>)>, u64);

/// The messages that clients get, and the replies that requesters get.
#[derive(Default)]
struct Received {
    answers: Vec<(u32, Result<Value, Error>)>,
    messages: Vec<(OwnerId, Value)>,
    /// The size of the largest message between nodes, bytes.
    largest: usize,
}

impl Received {
    fn answer(mut self) -> Result<Value, Error> {
        assert_eq!(self.answers.len(), 1, "one answer: {:?}", self.answers);
        self.answers.remove(0).1
    }
}

impl Nodes {
    fn new(names: &[&'static str], change: impl Fn(&mut ScopeOptions)) -> Self {
        let mut options = ScopeOptions {
            name: "devices".into(),
            meta_max_size: 1_000_000,
            members_limit: 100_000,
            ..ScopeOptions::default()
        };
        options.call_members_limit = 100_000;
        options.client_calls_limit = 100_000;
        change(&mut options);
        let node = |(birth, name): (u64, &&'static str)| {
            (
                *name,
                Directory::new(
                    name,
                    &[options.clone()],
                    &ReplicaTiming::default(),
                    birth,
                    HashSeed::repeatable(7),
                    true,
                    NOW,
                ),
            )
        };
        let mut nodes = Nodes((1..).zip(names).map(node).collect(), NOW);
        (0..8).for_each(|_| drop(nodes.settle()));
        nodes
    }

    /// Carries out all effects until none is left.
    fn settle(&mut self) -> Received {
        let mut received = Received::default();
        for round in 0..20 {
            self.1 += 1;
            let now_ms = self.1;
            let mut acts: Vec<(&'static str, DirectoryEffect<u32>)> = Vec::new();
            for (name, node) in &mut self.0 {
                if round % 4 == 0 {
                    node.tick(now_ms);
                }
                node.flush();
                acts.extend(node.effects().map(|act| (*name, act)));
            }
            for (from, act) in acts {
                match act {
                    DirectoryEffect::Reply(asker, answer) => received.answers.push((asker, answer.map(value))),
                    DirectoryEffect::Push(client, message) => {
                        received.messages.push((client, serde_json::from_slice(&message).expect("JSON")))
                    }
                    DirectoryEffect::PushMany(clients, push) => {
                        let push: Value = serde_json::from_slice(push.json()).expect("JSON");
                        received.messages.extend(
                            clients.into_iter().map(|client| (client, push["push"]["message"]["data"].clone())),
                        );
                    }
                    DirectoryEffect::Call(client, call, message) => {
                        received
                            .messages
                            .push((client, serde_json::from_slice(&numbered(call, &message)).expect("JSON")));
                    }
                    DirectoryEffect::SendToScope { scope, to, message } => {
                        let others = self
                            .0
                            .iter_mut()
                            .filter(|(name, _)| to.as_ref().map_or(*name != from, |to| **to == **name));
                        others.for_each(|(_, node)| node.receive(&scope, &message, now_ms));
                    }
                    DirectoryEffect::Node(to, message) => {
                        received.largest = received.largest.max(message.len());
                        let other = self.0.iter_mut().find(|(name, _)| *name == &*to).map(|(_, node)| node);
                        other.expect("a node").receive_from_node(from, &message, now_ms);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        received
    }

    fn node(&mut self, name: &str) -> &mut Directory<u32> {
        self.0.iter_mut().find(|(known, _)| *known == name).map(|(_, node)| node).expect("a node")
    }

    /// Executes a request of a client. Returns everything that it causes.
    fn ask(&mut self, node: &str, client: u32, method: &str, params: &Value) -> Received {
        let now_ms = self.1;
        let node = self.node(node);
        match read(method, &params.to_string(), &node.scopes()) {
            Ok(ask) => node.execute(&requester(client), ask, Some(client), now_ms),
            Err(error) => return Received { answers: vec![(client, Err(error))], ..Received::default() },
        }
        self.settle()
    }
}

fn value(answered: DirectoryReply) -> Value {
    serde_json::from_slice(&answered.json()).expect("answers are JSON")
}

fn owner(number: u32) -> OwnerId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    OwnerId(id)
}

fn requester(number: u32) -> Requester {
    Requester { owner: owner(number), user: format!("user-{number}").into(), is_backend: false }
}

fn named(name: &str, data: Value) -> Value {
    json!({"scope": "devices", "name": name, "data": data})
}

#[test]
fn null_is_a_message_and_an_answer() {
    let mut nodes = Nodes::new(&["here", "there"], |_| {});
    for (home, name) in [("here", "near"), ("there", "far")] {
        nodes.ask(home, 1, "register", &named(name, Value::Null)).answer().expect("a free name");
        let received = nodes.ask("here", 2, "send", &named(name, Value::Null));
        assert_eq!((received.messages.len(), &received.messages[0].1["data"]), (1, &Value::Null));
        for reply in [
            json!({"data": null}),
            json!({}),
            json!({"data": null, "error": null}),
            json!({"data": 0}),
            json!({"error": "no"}),
        ] {
            let received = nodes.ask("here", 2, "call", &named(name, Value::Null));
            assert!(
                received.answers.is_empty() && received.messages[0].1.get("data") == Some(&Value::Null),
                "{:?}",
                received.messages
            );
            let mut answer = reply.clone();
            answer["call"] = received.messages[0].1["call"].clone();
            let received = nodes.ask(home, 1, "reply", &answer);
            let [answered] = &received.answers.iter().filter(|(asker, _)| *asker == 2).collect::<Vec<_>>()[..] else {
                panic!("{name} {reply}")
            };
            let expected =
                if reply["error"].is_null() { json!({"data": reply["data"]}) } else { json!({"error": "no"}) };
            assert_eq!(answered.1, Ok(expected), "{name} {reply}");
        }
        nodes.ask(home, 1, "join", &json!({"scope": "devices", "group": "all"})).answer().expect("a member");
    }
    let received = nodes.ask("here", 2, "multi_call", &json!({"scope": "devices", "group": "all", "data": null}));
    assert_eq!(received.messages.len(), 2);
    for method in ["send", "call", "multi_call"] {
        let nothing = json!({"scope": "devices", "name": "near"});
        assert_eq!(
            nodes.ask("here", 2, method, &nothing).answer(),
            Err(Error::BAD_REQUEST),
            "{method} of nothing at all"
        );
    }
}

#[test]
fn metadata_is_cleared_on_purpose_only() {
    let mut nodes = Nodes::new(&["here"], |_| {});
    let named = |meta: Value| json!({"scope": "devices", "name": "a", "meta": meta});
    nodes.ask("here", 1, "register", &named(json!({"a": 1}))).answer().expect("a free name");
    let without = json!({"scope": "devices", "name": "a"});
    assert_eq!(nodes.ask("here", 1, "update_meta", &without).answer(), Err(Error::BAD_REQUEST));
    assert_eq!(
        nodes.ask("here", 1, "update_meta", &named(json!(2))).answer().map(|entry| entry["meta"].clone()),
        Ok(json!(2))
    );
    assert_eq!(
        nodes.ask("here", 1, "update_meta", &named(Value::Null)).answer().map(|entry| entry["meta"].clone()),
        Ok(Value::Null)
    );
}

#[test]
fn nothing_is_accepted_that_other_nodes_cannot_be_told() {
    for most in [64 * 1_024, 1_024 * 1_024] {
        let mut nodes = Nodes::new(&["here", "there"], |_| {});
        nodes.0.iter_mut().for_each(|(_, node)| node.set_message_max(most));
        for (home, client, name) in [("here", 1, "near"), ("there", 2, "far")] {
            nodes.ask(home, client, "register", &named(name, Value::Null)).answer().expect("a free name");
            nodes.ask(home, client, "join", &json!({"scope": "devices", "group": "all"})).answer().expect("a member");
        }
        for (size, is_accepted) in [(most - 1_024, true), (most, false), (3 * most, false)] {
            let text = json!("x".repeat(size));
            for target in [json!({"name": "near"}), json!({"name": "far"}), json!({"group": "all"})] {
                for method in ["send", "call"] {
                    let mut params = target.clone();
                    (params["scope"], params["data"]) = (json!("devices"), text.clone());
                    let received = nodes.ask("here", 3, method, &params);
                    assert!(received.largest <= most, "{} bytes to another node", received.largest);
                    let refused: Vec<_> =
                        received.answers.iter().filter_map(|(_, answer)| answer.clone().err()).collect();
                    if is_accepted {
                        assert!(refused.is_empty() && !received.messages.is_empty(), "{method} {target} {size}");
                    } else {
                        assert_eq!(
                            (refused, received.messages.len()),
                            (vec![Error::BAD_REQUEST], 0),
                            "{method} {target} {size}"
                        );
                    }
                }
            }
            for (method, key) in [("register", "name"), ("update_meta", "name"), ("join", "group")] {
                let params = json!({"scope": "devices", key: "near", "meta": "x".repeat(size.min(990_000))});
                let answer = nodes.ask("here", 1, method, &params).answer();
                assert_eq!(
                    answer.err(),
                    (!is_accepted).then_some(Error::BAD_REQUEST).filter(|_| size <= 990_000 || most <= 990_000),
                    "{method} {size}"
                );
            }
            let received = nodes.ask("here", 3, "call", &named("far", json!(1)));
            let call = received.messages[0].1["call"].clone();
            let received = nodes.ask("there", 2, "reply", &json!({"call": call, "data": text}));
            assert!(received.largest <= most, "{} bytes to another node", received.largest);
            let of = |client: u32| {
                received.answers.iter().find(|(asker, _)| *asker == client).map(|(_, answer)| answer.clone())
            };
            if is_accepted {
                assert!(of(3).is_some_and(|answer| answer.is_ok()));
            } else {
                assert_eq!((of(2), of(3)), (Some(Err(Error::BAD_REQUEST)), None), "the called client may answer less");
                let received = nodes.ask("there", 2, "reply", &json!({"call": call, "error": "too much"}));
                assert!(received.answers.contains(&(3, Ok(json!({"error": "too much"})))));
            }
        }
    }
}

#[test]
fn many_members_of_another_node_are_told_in_messages_that_fit() {
    let mut nodes = Nodes::new(&["here", "there"], |_| {});
    nodes.0.iter_mut().for_each(|(_, node)| node.set_message_max(64 * 1_024));
    for client in 10..3_010 {
        let ask =
            read("join", r#"{"scope": "devices", "group": "all"}"#, &nodes.node("there").scopes()).expect("a request");
        nodes.node("there").execute(&requester(client), ask, None, NOW);
    }
    nodes.settle();
    for method in ["send", "multi_call"] {
        let params = json!({"scope": "devices", "group": "all", "data": "x".repeat(60_000)});
        let received = nodes.ask("here", 3, method, &params);
        assert!(received.largest <= 64 * 1_024, "{} bytes", received.largest);
        assert_eq!(received.messages.len(), 3_000, "{method}");
    }
}

#[test]
fn calls_at_other_nodes_end_with_their_caller() {
    let mut nodes = Nodes::new(&["here", "there"], |_| {});
    nodes.ask("there", 1, "register", &named("far", Value::Null)).answer().expect("a free name");
    nodes.ask("there", 1, "join", &json!({"scope": "devices", "group": "all"})).answer().expect("a member");
    let one = nodes.ask("here", 2, "call", &named("far", json!(1)));
    nodes.ask("here", 2, "multi_call", &json!({"scope": "devices", "group": "all", "data": 1}));
    let other = nodes.ask("here", 3, "call", &named("far", json!(1)));
    assert_eq!((nodes.node("here").calls_waiting(), nodes.node("there").calls_waiting()), (3, 3));
    nodes.node("here").execute(&requester(2), DirectoryRequest::Close, None, NOW);
    nodes.settle();
    assert_eq!(
        (nodes.node("here").calls_waiting(), nodes.node("there").calls_waiting()),
        (1, 1),
        "the other caller's is left"
    );
    let answer = |call: &Received| json!({"call": call.messages[0].1["call"], "data": 1});
    assert_eq!(
        nodes.ask("there", 1, "reply", &answer(&one)).answer(),
        Err(Error::NO_SUCH_CALL),
        "no caller waits for that"
    );
    assert_eq!(nodes.ask("there", 1, "reply", &answer(&other)).answers.len(), 2);
}

#[test]
fn a_called_client_learns_that_its_caller_is_gone() {
    let mut nodes = Nodes::new(&["here"], |_| {});
    nodes.ask("here", 1, "register", &named("near", Value::Null)).answer().expect("a free name");
    let received = nodes.ask("here", 2, "call", &named("near", json!(1)));
    nodes.node("here").execute(&requester(2), DirectoryRequest::Close, None, NOW);
    let answer = json!({"call": received.messages[0].1["call"], "data": 1});
    assert_eq!(nodes.ask("here", 1, "reply", &answer).answer(), Err(Error::NO_SUCH_CALL));
}

#[test]
fn a_member_is_found_wherever_it_lives() {
    let mut nodes = Nodes::new(&["here", "there"], |_| {});
    let of = |client: Option<u32>| {
        let client = client.map(|c| client_text(owner(c))).unwrap_or_default();
        json!({"scope": "devices", "group": "all", "meta": {"a": 1}, "client": client})
    };
    nodes.ask("here", 1, "join", &of(None)).answer().expect("a member");
    nodes.ask("there", 2, "join", &of(None)).answer().expect("a member");
    for (asker, client, node) in [
        (1, None, Some("here")),
        (1, Some(1), Some("here")),
        (1, Some(2), Some("there")),
        (3, None, None),
        (1, Some(3), None),
    ] {
        let found = nodes.ask("here", asker, "member", &of(client)).answer();
        let id = client_text(owner(client.unwrap_or(asker)));
        let expected =
            node.map(|node| json!({"client": id, "node": node, "meta": {"a": 1}})).ok_or(Error::NOT_REGISTERED);
        assert_eq!(found, expected, "{client:?}");
    }
    let odd = json!({"scope": "devices", "group": "all", "client": "nobody"});
    assert_eq!(nodes.ask("here", 1, "member", &odd).answer(), Err(Error::BAD_REQUEST));
}

/// A field that a method reads is refused if it has another type. A field that the method does not read is ignored.
#[test]
fn a_method_reads_its_own_fields_and_no_others() {
    let nodes = Nodes::new(&["here"], |_| {});
    let scopes = nodes.0[0].1.scopes();
    let fields = |method: &RegistryMethod| directory::request_fields(*method);
    let all: BTreeSet<&str> = RegistryMethod::ALL.iter().flat_map(fields).copied().collect();
    assert!(all.contains("store_for") && all.contains("ids"), "{all:?}");
    for method in RegistryMethod::ALL {
        let own = fields(method);
        let target = if own.contains(&"name") { "name" } else { "group" };
        let good = json!({"scope": "devices", target: "a", "data": 1, "meta": 1});
        assert!(directory::read(*method, &good.to_string(), &scopes).is_ok(), "{method:?}");
        for field in &all {
            let mut params = good.clone();
            params[field] = json!([[]]);
            let is_any_json = ["data", "error", "meta"].contains(field);
            let expected = (own.contains(field) && !is_any_json).then_some(Error::BAD_REQUEST);
            let refused = directory::read(*method, &params.to_string(), &scopes).err().map(Error::from);
            assert_eq!(refused, expected, "{method:?} {field}");
        }
    }
}

#[test]
fn no_request_reaches_the_servers_own_scopes() {
    let nodes = Nodes::new(&["here"], |_| {});
    let scopes = nodes.0[0].1.scopes();
    for method in RegistryMethod::ALL.iter().filter(|method| method.is_operation()) {
        for scope in ["$presence", "$registry", "$", "$anything"] {
            let refused = ["name", "group", "prefix"].map(|key| {
                let params =
                    json!({"scope": scope, key: "a", "data": 1, "meta": 1, "client": client_text(owner(1)), "limit": 1})
                        .to_string();
                directory::read(*method, &params, &scopes).err().map(Error::from)
            });
            // A method that has no such parameter lacks its own one.
            let errors = [Some(Error::NO_SUCH_SCOPE), Some(Error::BAD_REQUEST)];
            assert!(refused.iter().all(|refused| errors.contains(refused)), "{method:?} {scope}: {refused:?}");
            assert!(refused.contains(&errors[0]), "{method:?} {scope}: {refused:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Reads the pages of a group while other clients join and leave.
    #[test]
    fn a_client_that_stays_a_member_is_listed_once(
        size in 1..400u32,
        limit in 1..120usize,
        deeds in prop::collection::vec((any::<bool>(), 0..400u32, any::<bool>()), 0..60),
    ) {
        let mut nodes = Nodes::new(&["here"], |_| {});
        let node = nodes.node("here");
        let join = |node: &mut Directory<u32>, client: u32, group: &str| {
            let body = json!({"scope": "devices", "group": group}).to_string();
            let ask = read("join", &body, &node.scopes()).expect("a request");
            node.execute(&requester(client), ask, None, NOW);
        };
        for client in 0..size {
            join(node, client, "other");
            join(node, client, "all");
        }
        let mut staying: std::collections::BTreeSet<u32> = (0..size).collect();
        let (mut listed, mut cursor, mut deeds) = (Vec::new(), 0, deeds.into_iter());
        loop {
            let params = json!({"scope": "devices", "group": "all", "limit": limit, "cursor": cursor});
            let ask = read("members", &params.to_string(), &node.scopes()).expect("a request");
            node.execute(&requester(9), ask, Some(9), NOW);
            let reply = node.effects().find(|act| matches!(act, DirectoryEffect::Reply(..)));
            let Some(DirectoryEffect::Reply(9, Ok(answered))) = reply else { panic!("an answer") };
            let page = value(answered);
            let members = page["members"].as_array().expect("a list");
            prop_assert!(members.len() <= limit);
            listed.extend(members.iter().map(|member| member["client"].as_str().expect("a text").to_owned()));
            cursor = page["cursor"].as_u64().unwrap_or(0);
            if cursor == 0 {
                break;
            }
            for (is_leaving, client, is_new) in deeds.by_ref().take(5) {
                if is_leaving {
                    staying.remove(&client);
                    node.execute(&requester(client), DirectoryRequest::Close, None, NOW);
                } else if is_new || !staying.contains(&client) {
                    join(node, client + 1_000, "all");
                }
            }
            node.effects().for_each(drop);
        }
        for client in staying {
            let id = client_text(owner(client));
            prop_assert_eq!(listed.iter().filter(|listed| **listed == id).count(), 1);
        }
    }
}

#[test]
fn a_reply_is_one_even_if_it_is_large() {
    let mut nodes = Nodes::new(&["here"], |_| {});
    nodes.ask("here", 1, "register", &named("near", Value::Null)).answer().expect("a free name");
    let received = nodes.ask("here", 2, "call", &named("near", Value::Null));
    let call = received.messages[0].1["call"].as_u64().expect("a number");
    let outcome = Ok(Bytes::from(format!("\"{}\"", "x".repeat(4_000_000))));
    nodes.node("here").execute(&requester(1), DirectoryRequest::Reply { call, outcome }, Some(1), NOW);
    assert_eq!(nodes.settle().answers.len(), 2, "a node that is not told otherwise has no bound");
}
