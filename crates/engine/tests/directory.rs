//! The directory: the content and the cost of each reply, and that no client gets more than it may.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use touchline_engine::Response;
use touchline_engine::directory::{
    self, ConflictPolicy, Directory, DirectoryEffect, DirectoryReply, DirectoryRequest, Listing, Registration,
    RegistryMethod, Requester, ScopeId, ScopeOptions, Scopes, Target, Walk, client_text,
};
use touchline_engine::request::Subscribed;
use touchline_protocol::publication::Content;
use touchline_protocol::stream::StreamPosition;
use touchline_protocol::{ClientInfo, Error, Publication};
use touchline_registry::{ConflictPolicyKind, HashSeed, OwnerId, Replica, ReplicaTiming};

/// Reads the request of a method, by the method's name.
fn read(method: &str, params: &str, scopes: &Scopes) -> Result<DirectoryRequest, Error> {
    let method = RegistryMethod::from_name(method).ok_or(Error::METHOD_NOT_FOUND)?;
    Ok(directory::read(method, params, scopes)?)
}

type Asked = u32;

const NOW: u64 = 1_000_000;

fn directory_with(change: impl FnOnce(&mut ScopeOptions)) -> Directory<Asked> {
    let mut options = ScopeOptions { name: "devices".into(), ..ScopeOptions::default() };
    change(&mut options);
    Directory::new("here", &[options], &ReplicaTiming::default(), 7, HashSeed::repeatable(7), true, NOW)
}

fn owner(number: u32) -> OwnerId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    OwnerId(id)
}

fn requester(number: u32) -> Requester {
    Requester { owner: owner(number), user: format!("user-{number}").into(), is_backend: false }
}

fn target(group: &str) -> Target {
    Target { scope: ScopeId(0), key: group.into(), is_group: true }
}

fn join(directory: &mut Directory<Asked>, number: u32, group: &str) {
    directory.execute(
        &requester(number),
        DirectoryRequest::Join { scope: ScopeId(0), group: group.into(), meta: Bytes::new() },
        None,
        NOW,
    );
    directory.effects().for_each(drop);
}

fn enter(directory: &mut Directory<Asked>, number: u32, user: &str, is_shown: bool) {
    let info =
        ClientInfo { user: user.into(), client: client_text(owner(number)).into(), conn_info: None, chan_info: None };
    let ask = DirectoryRequest::Enter { channel: "room".into(), info: Arc::new(info), is_shown, is_announced: false };
    directory.execute(&requester(number), ask, None, NOW);
}

/// Returns the reply to a request, with its other effects.
fn ask(
    directory: &mut Directory<Asked>,
    number: u32,
    ask: DirectoryRequest,
) -> (Option<Result<DirectoryReply, Error>>, Vec<DirectoryEffect<Asked>>) {
    directory.execute(&requester(number), ask, Some(number), NOW);
    let (mut answer, mut others) = (None, Vec::new());
    for act in directory.effects() {
        match act {
            DirectoryEffect::Reply(asked, answered) => {
                assert_eq!(asked, number);
                assert!(answer.replace(answered).is_none(), "one answer");
            }
            other => others.push(other),
        }
    }
    (answer, others)
}

fn json(answered: DirectoryReply) -> serde_json::Value {
    serde_json::from_slice(&answered.json()).expect("answers are JSON")
}

fn answer_of(directory: &mut Directory<Asked>, number: u32, asked: DirectoryRequest) -> serde_json::Value {
    let (answer, _) = ask(directory, number, asked);
    json(answer.expect("an answer").expect("no refusal"))
}

fn call(group: &str, timeout_ms: u64) -> DirectoryRequest {
    DirectoryRequest::Call { target: target(group), data: Bytes::from_static(b"1"), timeout_ms }
}

proptest! {
    #[test]
    fn counts_of_presence_are_those_of_the_list(deeds in prop::collection::vec((0..30u32, 0..4u8, 0..5u8), 1..120)) {
        let mut directory = directory_with(|_| {});
        for (number, user, deed) in deeds {
            match deed {
                0 => {
                    let exit = DirectoryRequest::Exit { channel: "room".into() };
                    directory.execute(&requester(number), exit, None, NOW)
                }
                1 => directory.execute(&requester(number), DirectoryRequest::Close, None, NOW),
                // The same client may enter again with another user, or hidden.
                deed => enter(&mut directory, number, &format!("{}", user.saturating_sub(1)), deed != 2),
            }
            let presence = DirectoryRequest::Presence { channel: "room".into(), limit: 1_000 };
            let list = answer_of(&mut directory, 99, presence);
            let list = list["presence"].as_object().expect("an object").clone();
            let users: std::collections::BTreeSet<_> = list.values().map(|info| info["user"].to_string()).collect();
            let stats = answer_of(&mut directory, 99, DirectoryRequest::PresenceStats { channel: "room".into() });
            prop_assert_eq!(stats["num_clients"].as_u64(), Some(list.len() as u64));
            prop_assert_eq!(stats["num_users"].as_u64(), Some(users.len() as u64));
        }
    }
}

/// Everything that a directory shows: the owners of names and the members of groups.
fn state(directory: &mut Directory<Asked>) -> serde_json::Value {
    let list = |scope, prefix: &str| Listing { scope: ScopeId(scope), prefix: prefix.into(), cursor: 0, limit: 1_000 };
    let mut shown = Vec::new();
    for scope in 0..2 {
        shown.push(answer_of(directory, 99, DirectoryRequest::Names(list(scope, "")))["names"].clone());
        for group in ["a", "b", "c", "d"] {
            let members = DirectoryRequest::Members { scope: ScopeId(scope), group: group.into() };
            shown.push(answer_of(directory, 99, members)["members"].clone());
        }
    }
    shown.into()
}

proptest! {
    #[test]
    fn a_token_gets_all_of_its_names_and_groups_or_nothing_changes(
        tokens in prop::collection::vec(
            (0..5u32, prop::collection::vec((0..2u16, 0..5usize, 0..12usize, any::<bool>()), 1..8)),
            1..30,
        ),
    ) {
        let scope = |name: &str, conflict_policy| ScopeOptions {
            name: name.into(),
            conflict_policy,
            meta_max_size: 10,
            client_entries_limit: 5,
            allow_watch_for_client: true,
            ..ScopeOptions::default()
        };
        let scopes = [scope("newest", ConflictPolicy::Newest), scope("reject", ConflictPolicy::Reject)];
        let seed = HashSeed::repeatable(7);
        let mut directory = Directory::new("here", &scopes, &ReplicaTiming::default(), 7, seed, false, NOW);
        for (number, entries) in tokens {
            let claims: Vec<Registration> = entries.iter().map(|(scope, key, meta, is_group)| Registration {
                scope: ScopeId(*scope),
                key: ["a", "b", "c", "d", ""][*key].into(),
                meta: format!("\"{}\"", "x".repeat(*meta)).into(),
                is_group: *is_group,
            }).collect();
            let before = state(&mut directory);
            let (answer, acts) = ask(&mut directory, number, DirectoryRequest::RegisterAll(claims.clone().into()));
            match answer.expect("an answer") {
                Err(_) => {
                    prop_assert!(acts.is_empty(), "no other client gets it: {:?}", acts);
                    prop_assert_eq!(state(&mut directory), before);
                }
                Ok(_) => {
                    let mine = client_text(owner(number));
                    for Registration { scope, key, is_group, .. } in claims {
                        let has = |list: &serde_json::Value, field: &str| list.as_array().into_iter().flatten()
                            .any(|entry| entry["client"] == mine.as_str() && (is_group || entry[field] == *key));
                        let listing = Listing { scope, prefix: "".into(), cursor: 0, limit: 1_000 };
                        let asked = if is_group {
                            DirectoryRequest::Members { scope, group: key.clone() }
                        } else {
                            DirectoryRequest::Names(listing)
                        };
                        let shown = answer_of(&mut directory, 99, asked);
                        let list = &shown[if is_group { "members" } else { "names" }];
                        prop_assert!(has(list, "name"), "{} of {}", key, shown);
                    }
                }
            }
            if number == 4 {
                directory.execute(&requester(4), DirectoryRequest::Close, None, NOW);
                directory.effects().for_each(drop);
            }
        }
    }

    /// The check before a registration agrees with what the registry then does.
    #[test]
    fn a_registration_that_may_be_made_is_made(
        deeds in prop::collection::vec((0..4u32, 0..4usize, any::<bool>(), any::<bool>()), 1..80),
    ) {
        for policy in [ConflictPolicyKind::Newest, ConflictPolicyKind::Oldest, ConflictPolicyKind::Reject] {
            let settings = touchline_registry::ReplicaSettings { policy, ..Default::default() };
            let mut replica = Replica::new("here", 7, settings, HashSeed::repeatable(7), NOW);
            for (number, name, take_over, is_group) in &deeds {
                let (owner, name) = (owner(*number), ["", "a", "b", "c"][*name]);
                let before = replica.entries_of(owner);
                let (may, is_done) = if *is_group {
                    (replica.may_join(owner, name, b"1"), replica.join(owner, name, b"1", NOW).map(drop))
                } else {
                    let may = replica.may_register(owner, name, b"1", *take_over);
                    (may, replica.register(owner, name, b"1", *take_over, NOW).map(drop))
                };
                prop_assert_eq!(may.clone().map(drop), is_done);
                prop_assert_eq!(replica.entries_of(owner) - before, usize::from(may == Ok(true)));
            }
        }
    }
}

#[test]
fn a_large_channel_is_shown_in_part_and_touched_in_part() {
    let mut directory = directory_with(|_| {});
    (0..3_000).for_each(|number| enter(&mut directory, number, &format!("u{}", number % 1_000), true));
    let (answer, _) = ask(&mut directory, 1, DirectoryRequest::Presence { channel: "room".into(), limit: 10 });
    let answered = answer.expect("an answer").expect("no refusal");
    assert!(answered.work() < 10, "{} units for ten members", answered.work());
    let shown = json(answered);
    assert_eq!(
        (shown["presence"].as_object().map(|shown| shown.len()), &shown["num_clients"]),
        (Some(10), &serde_json::json!(3_000))
    );
    let (answer, _) = ask(&mut directory, 1, DirectoryRequest::Presence { channel: "room".into(), limit: 10_000 });
    let answered = answer.expect("an answer").expect("no refusal");
    assert!(answered.work() >= 3_000 / 8, "{} units for three thousand members", answered.work());
    assert_eq!(json(answered)["presence"].as_object().map(|shown| shown.len()), Some(3_000));
    let stats = answer_of(&mut directory, 1, DirectoryRequest::PresenceStats { channel: "room".into() });
    assert_eq!(stats, serde_json::json!({"num_clients": 3_000, "num_users": 1_000}));
}

#[test]
fn a_walk_is_made_in_steps_and_members_may_go_between_them() {
    let mut directory = directory_with(|options| options.members_limit = 5_000);
    (0..2_000).for_each(|number| join(&mut directory, number, "all"));
    let members = DirectoryRequest::Members { scope: ScopeId(0), group: "all".into() };
    let mut walk: Option<Walk<Asked>> = directory.begin(requester(1), members, Some(1), NOW);
    let mut steps = 0;
    while let Some(begun) = walk {
        steps += 1;
        assert!(directory.effects().next().is_none(), "no answer before the end");
        directory.execute(&requester(2_000 - steps), DirectoryRequest::Close, None, NOW);
        walk = directory.step(begun, NOW);
    }
    assert!(steps >= 3, "{steps} steps");
    let Some(DirectoryEffect::Reply(1, Ok(answered))) =
        directory.effects().find(|act| matches!(act, DirectoryEffect::Reply(..)))
    else {
        panic!("an answer")
    };
    let answer = json(answered);
    let shown = answer["members"].as_array().map(Vec::len).expect("a list");
    assert!((2_000 - steps as usize..=2_000).contains(&shown), "{shown} members");
    assert_eq!(answer["count"], 2_000 - steps);
}

#[test]
fn a_group_shares_one_message_and_the_sender_is_charged_for_each_member() {
    let mut directory = directory_with(|_| {});
    (0..1_500).for_each(|number| join(&mut directory, number, "all"));
    let data = Bytes::from(format!("\"{}\"", "x".repeat(60_000)));
    let (answer, acts) =
        ask(&mut directory, 7, DirectoryRequest::Send { target: target("all"), data, store_for_ms: 0 });
    let answered = answer.expect("an answer").expect("no refusal");
    assert_eq!(Response::Directory(answered).work(), 1_500);
    let mut pushes: Vec<*const u8> = Vec::new();
    let mut reached = 0;
    for act in acts {
        let DirectoryEffect::PushMany(clients, push) = act else { panic!("{act:?}") };
        reached += clients.len();
        pushes.push(push.json().as_ptr());
    }
    pushes.dedup();
    assert_eq!((reached, pushes.len()), (1_500, 1), "all share one push");
}

#[test]
fn another_node_gets_one_message_for_all_its_members() {
    let options = ScopeOptions { name: "devices".into(), ..ScopeOptions::default() };
    let mut here = directory_with(|_| {});
    let mut there =
        Directory::<Asked>::new("there", &[options], &ReplicaTiming::default(), 8, HashSeed::repeatable(8), true, NOW);
    (0..1_500).for_each(|number| join(&mut there, number, "all"));
    for _ in 0..3 {
        there.tick(NOW);
        there.flush();
        for act in there.effects() {
            if let DirectoryEffect::SendToScope { scope, message, .. } = act {
                here.receive(&scope, &message, NOW);
            }
        }
        for act in here.effects() {
            if let DirectoryEffect::SendToScope { scope, message, .. } = act {
                there.receive(&scope, &message, NOW);
            }
        }
    }
    let data = Bytes::from(format!("\"{}\"", "x".repeat(60_000)));
    let (answer, acts) = ask(&mut here, 7, DirectoryRequest::Send { target: target("all"), data, store_for_ms: 0 });
    assert_eq!(json(answer.expect("an answer").expect("no refusal")), serde_json::json!({"sent": 1_500}));
    let messages: Vec<Vec<u8>> = acts
        .into_iter()
        .map(|act| if let DirectoryEffect::Node(_, message) = act { message } else { panic!("{act:?}") })
        .collect();
    assert!(
        messages.len() <= 2 && messages.iter().map(Vec::len).sum::<usize>() < 200_000,
        "{} messages",
        messages.len()
    );
    messages.iter().for_each(|message| there.receive_from_node("here", message, NOW));
    let reached: usize = there
        .effects()
        .map(|act| if let DirectoryEffect::PushMany(clients, _) = act { clients.len() } else { 0 })
        .sum();
    assert_eq!(reached, 1_500);
    let (_, acts) = ask(
        &mut here,
        7,
        DirectoryRequest::Call { target: target("all"), data: Bytes::from_static(b"1"), timeout_ms: 1 },
    );
    assert!(acts.is_empty(), "a call of so many is refused");
}

#[test]
fn nodes_of_an_earlier_version_are_understood() {
    let mut directory = directory_with(|_| {});
    let id = client_text(owner(5));
    directory.receive_from_node(
        "old",
        format!("{{\"client\":\"{id}\",\"message\":{{\"from\":{{}},\"data\":1}}}}").as_bytes(),
        NOW,
    );
    let acts: Vec<DirectoryEffect<Asked>> = directory.effects().collect();
    let [DirectoryEffect::PushMany(clients, push)] = &acts[..] else { panic!("{acts:?}") };
    assert_eq!(
        (&clients[..], push.json()),
        (&[owner(5)][..], &br#"{"push":{"message":{"data":{"from":{},"data":1}}}}"#[..])
    );
    let call =
        format!("{{\"client\":\"{id}\",\"call\":9,\"timeout_ms\":18446744073709551615,\"message\":{{\"from\":{{}}}}}}");
    directory.receive_from_node("old", call.as_bytes(), NOW);
    let acts: Vec<DirectoryEffect<Asked>> = directory.effects().collect();
    let [DirectoryEffect::Call(client, call, message)] = &acts[..] else { panic!("{acts:?}") };
    assert_eq!(*client, owner(5));
    let given = directory::numbered(*call, message);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&given).expect("JSON")["call"], *call);
    directory.tick(NOW + 60_000);
    assert_eq!(directory.calls_waiting(), 0, "no node decides how long a call is kept");
}

#[test]
fn calls_of_other_nodes_have_a_limit() {
    let mut directory = directory_with(|options| options.calls_limit = 1);
    let mut directory_limit = 0;
    for call in 1..20_000u32 {
        let message = format!(
            "{{\"client\":\"{}\",\"call\":{call},\"timeout_ms\":1000,\"message\":{{}}}}",
            client_text(owner(5))
        );
        directory.receive_from_node("there", message.as_bytes(), NOW);
        directory_limit = directory_limit.max(directory.calls_waiting());
    }
    // The most generous scope determines the limit, and presence has the default.
    assert_eq!(directory_limit, 10_000);
    let refused = directory
        .effects()
        .filter(|act| matches!(act, DirectoryEffect::Node(_, message) if message.ends_with(b"\"code\":4007}")))
        .count();
    assert_eq!(refused, 19_999 - 10_000);
}

#[test]
fn a_callers_calls_are_bounded_and_end_with_it() {
    let mut directory = directory_with(|options| options.client_calls_limit = 10);
    (0..8).for_each(|number| join(&mut directory, number, "all"));
    (0..12).for_each(|number| join(&mut directory, number, "more"));
    let (answer, acts) = ask(&mut directory, 50, call("all", 5_000));
    assert!(answer.is_none() && acts.len() == 8, "eight are called");
    assert_eq!(ask(&mut directory, 50, call("all", 5_000)).0.and_then(Result::err), Some(Error::TOO_MANY_CALLS));
    assert_eq!(ask(&mut directory, 51, call("more", 5_000)).0.and_then(Result::err), Some(Error::TOO_MANY_CALLS));
    assert!(ask(&mut directory, 51, call("all", 5_000)).0.is_none(), "another caller has its own");
    assert_eq!(directory.calls_waiting(), 16);
    directory.execute(&requester(50), DirectoryRequest::Close, None, NOW);
    assert_eq!(directory.calls_waiting(), 8, "nothing is kept for a client that is gone");
    directory.execute(&requester(51), DirectoryRequest::Close, None, NOW);
    assert_eq!(directory.calls_waiting(), 0);
    directory.effects().for_each(drop);
    directory.tick(NOW + Duration::from_secs(60).as_millis() as u64);
    assert!(!directory.effects().any(|act| matches!(act, DirectoryEffect::Reply(..))), "no requester gets a reply");
    assert!(ask(&mut directory, 50, call("all", 5_000)).0.is_none(), "and nothing counts against a new one");
}

#[test]
fn the_servers_own_scopes_and_odd_names_are_out_of_reach() {
    let directory = directory_with(|_| {});
    let scopes = directory.scopes();
    for method in RegistryMethod::ALL.iter().filter(|method| method.is_operation()) {
        let fields = directory::request_fields(*method);
        let key = if fields.contains(&"name") { "name" } else { "group" };
        let refused = |params: &str| directory::read(*method, params, &scopes).err();
        let unknown = refused(&format!(r#"{{"scope":"$presence","{key}":"a","data":1}}"#));
        assert_eq!(unknown.map(Error::from), Some(Error::NO_SUCH_SCOPE), "{method:?}");
        let without_scope = refused(&format!(r#"{{"{key}":"a","data":1}}"#));
        assert_eq!(without_scope.map(|fault| fault.field), Some(Some("scope")), "{method:?}");
    }
    for odd in ["a\\u0000", "a\\nb", "\\u007f", "\\u0085", "\\u009f"] {
        for (method, key) in
            [("register", "name"), ("join", "group"), ("send", "name"), ("members", "group"), ("names", "prefix")]
        {
            let params = format!(r#"{{"scope":"devices","{key}":"{odd}","data":1}}"#);
            assert_eq!(read(method, &params, &scopes).err(), Some(Error::BAD_REQUEST), "{method} {odd}");
        }
    }
    assert!(read("register", r#"{"scope":"devices","name":"héllo/wörld \u00a0"}"#, &scopes).is_ok());
}

#[test]
fn publications_cost_by_their_number_and_their_bytes() {
    let publications = |count: usize, size: usize| {
        let content = Content { data: Bytes::from(format!("\"{}\"", "x".repeat(size))), ..Content::default() };
        let publication = Arc::new(Publication::encode("room", &content, None));
        std::iter::repeat_n(publication, count).collect::<Vec<_>>()
    };
    let history = |publications| Response::History { publications, position: StreamPosition::default() }.work();
    let bytes = |size| publications(1, size)[0].size() as u32;
    assert!((20_000..20_100).contains(&bytes(20_000)));
    assert_eq!((history(publications(7, 10)), history(publications(300, 10))), (0, 300 / 8 + 300 * bytes(10) / 4_096));
    assert_eq!(history(publications(300, 20_000)), 300 / 8 + 300 * bytes(20_000) / 4_096);
    let recovered = |missed| Response::Subscribed(Subscribed { recovered: missed, ..Subscribed::default() }).work();
    assert_eq!(
        (recovered(None), recovered(Some(None)), recovered(Some(Some(publications(80, 10))))),
        (0, 0, 80 / 8 + 80 * bytes(10) / 4_096)
    );
    assert_eq!(Response::Published(None).work() + Response::Refused(Error::INTERNAL).work(), 0);
}
