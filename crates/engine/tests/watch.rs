//! The watchers of a scope get each change once while they keep up, and the same table in any case.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};
use touchline_engine::directory::{
    self, Directory, DirectoryEffect, DirectoryRequest, RegistryMethod, Requester, ScopeOptions, Scopes, client_text,
};
use touchline_protocol::Error;
use touchline_registry::{HashSeed, OwnerId, ReplicaTiming};

/// Reads the request of a method, by the method's name.
fn read(method: &str, params: &str, scopes: &Scopes) -> Result<DirectoryRequest, Error> {
    let method = RegistryMethod::from_name(method).ok_or(Error::METHOD_NOT_FOUND)?;
    Ok(directory::read(method, params, scopes)?)
}

const NOW: u64 = 1_000_000;

fn directory(watch_log_size: usize) -> Directory<u32> {
    let open = ScopeOptions {
        watch_log_size,
        client_entries_limit: 1_000_000,
        allow_watch_for_client: true,
        ..ScopeOptions::default()
    };
    let scopes =
        [ScopeOptions { name: "open".into(), ..open }, ScopeOptions { name: "mute".into(), ..ScopeOptions::default() }];
    Directory::new("here", &scopes, &ReplicaTiming::default(), 0xfeed, HashSeed::repeatable(7), false, NOW)
}

fn requester(number: u32) -> Requester {
    let mut owner = [0; 16];
    owner[..4].copy_from_slice(&number.to_be_bytes());
    Requester { owner: OwnerId(owner), user: "ann".into(), is_backend: false }
}

/// Executes a request for a client without a reply.
fn order(directory: &mut Directory<u32>, client: u32, method: &str, params: &Value, now_ms: u64) {
    let ask = read(method, &params.to_string(), &directory.scopes()).expect("a request");
    directory.execute(&requester(client), ask, None, now_ms);
}

/// Executes a request and returns its reply.
fn request_value(directory: &mut Directory<u32>, method: &str, params: &Value, now_ms: u64) -> Result<Value, Error> {
    let ask = read(method, &params.to_string(), &directory.scopes())?;
    directory.execute(&requester(1_000), ask, Some(1), now_ms);
    let answer = directory
        .effects()
        .find_map(|act| if let DirectoryEffect::Reply(1, answer) = act { Some(answer) } else { None });
    answer.expect("an answer").map(|answered| serde_json::from_slice(&answered.json()).expect("JSON"))
}

/// What the subscribers of the channel get for a batch of requests.
fn pushes(directory: &mut Directory<u32>) -> Vec<Value> {
    directory.flush();
    let watched = directory.effects().filter_map(|act| match act {
        DirectoryEffect::PublishChanges(channel, json) => {
            assert_eq!(&*channel, "$registry:open");
            Some(serde_json::from_slice(&json).expect("JSON"))
        }
        _ => None,
    });
    watched.collect()
}

/// A watcher as the documentation describes it.
#[derive(Default)]
struct Watcher {
    offset: u64,
    epoch: String,
    names: BTreeMap<String, String>,
    /// The offsets of the changes that it got since it last listed the scope.
    given: BTreeSet<u64>,
    lists: usize,
}

impl Watcher {
    fn start(&mut self, directory: &mut Directory<u32>, now_ms: u64) {
        let position = request_value(directory, "changes", &json!({"scope": "open"}), now_ms).expect("a position");
        self.place(&position);
        (self.names, self.given) = (BTreeMap::new(), BTreeSet::new());
        self.lists += 1;
        let mut cursor = 0;
        loop {
            let page =
                request_value(directory, "names", &json!({"scope": "open", "limit": 7, "cursor": cursor}), now_ms)
                    .expect("a page");
            for entry in page["names"].as_array().into_iter().flatten() {
                self.names.insert(text(&entry["name"]), text(&entry["client"]));
            }
            cursor = page["cursor"].as_u64().unwrap_or(0);
            if cursor == 0 {
                return;
            }
        }
    }

    fn place(&mut self, position: &Value) {
        (self.offset, self.epoch) = (position["offset"].as_u64().expect("a number"), text(&position["epoch"]));
    }

    fn push(&mut self, push: &Value, directory: &mut Directory<u32>, now_ms: u64) {
        let changes = push["changes"].as_array().cloned().unwrap_or_default();
        if push["epoch"] == self.epoch.as_str()
            && !changes.is_empty()
            && push["offset"] == self.offset + changes.len() as u64
        {
            self.apply(&changes);
        } else if push["offset"].as_u64() > Some(self.offset) {
            self.catch_up(directory, now_ms);
        }
    }

    fn apply(&mut self, changes: &[Value]) {
        for change in changes {
            self.offset += 1;
            assert!(self.given.insert(self.offset), "each change once");
            let client = text(&change["client"]);
            match (change["change"].as_str(), change["name"].as_str()) {
                (Some("registered" | "updated"), Some(name)) => drop(self.names.insert(name.into(), client)),
                (Some("unregistered"), Some(name)) if self.names.get(name) == Some(&client) => {
                    drop(self.names.remove(name))
                }
                (kind, name) => {
                    assert!(name.is_none() && change["group"].is_string() || kind == Some("unregistered"), "{change}")
                }
            }
        }
    }

    fn catch_up(&mut self, directory: &mut Directory<u32>, now_ms: u64) {
        loop {
            let missed = json!({"scope": "open", "offset": self.offset, "epoch": self.epoch});
            let missed = request_value(directory, "changes", &missed, now_ms).expect("changes");
            if missed["list"] == true {
                self.start(directory, now_ms);
                continue;
            }
            self.apply(missed["changes"].as_array().expect("a list"));
            assert_eq!(missed["offset"], self.offset);
            if missed["more"] != true {
                return;
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn a_watcher_that_follows_has_the_table(
        log_size in prop::sample::select(vec![2_000usize, 60_000, 16_000_000]),
        batches in prop::collection::vec(
            (prop::collection::vec((0..6u32, 0..6u8, 0..40usize, 1..900usize), 1..6), 0..400u64, any::<bool>()),
            1..40,
        ),
    ) {
        let mut directory = directory(log_size);
        let mut watcher = Watcher::default();
        watcher.start(&mut directory, NOW);
        let mut now_ms = NOW;
        for (orders, pause_ms, is_lost) in batches {
            now_ms += pause_ms;
            for (client, kind, name, many) in orders {
                let join = json!({"scope": "open", "group": format!("group-{name}")});
                let unregister = json!({"scope": "open", "name": format!("name-{name}")});
                match kind {
                    0 => directory.execute(&requester(client), DirectoryRequest::Close, None, now_ms),
                    1 => order(&mut directory, client, "join", &join, now_ms),
                    2 => order(&mut directory, client, "unregister", &unregister, now_ms),
                    _ => for number in 0..if kind == 3 { many } else { 1 } {
                        let name = format!("name-{}", name + number);
                        let register = json!({"scope": "open", "name": name, "policy": "newest"});
                        order(&mut directory, client, "register", &register, now_ms);
                    },
                }
            }
            let pushed = pushes(&mut directory);
            prop_assert!(pushed.len() <= 1, "one word a batch");
            for push in pushed.iter().filter(|_| !is_lost) {
                watcher.push(push, &mut directory, now_ms);
            }
        }
        // A pending mark is published when its time comes, without any other input.
        while directory.next_deadline_ms().is_some() {
            now_ms += 50;
            directory.tick(now_ms);
            for push in pushes(&mut directory) {
                watcher.push(&push, &mut directory, now_ms);
            }
        }
        // A watcher that missed the last mark loads the changes when it subscribes again.
        watcher.catch_up(&mut directory, now_ms);
        let mut truth = Watcher::default();
        truth.start(&mut directory, now_ms);
        prop_assert_eq!(&watcher.names, &truth.names);
        prop_assert!(watcher.lists == 1 || log_size < 16_000_000, "a watcher that keeps up never lists again");
    }
}

#[test]
fn a_mass_change_is_told_in_one_word_and_given_in_pieces() {
    const NAMES: u32 = 50_000;
    let mut directory = directory(16 * 1_024 * 1_024);
    let mut watcher = Watcher::default();
    for number in 0..NAMES {
        order(&mut directory, 1, "register", &json!({"scope": "open", "name": format!("name-{number}")}), NOW);
    }
    pushes(&mut directory);
    watcher.start(&mut directory, NOW);
    directory.execute(&requester(1), DirectoryRequest::Close, None, NOW + 10_000);
    let pushed = pushes(&mut directory);
    assert_eq!(pushed, [json!({"offset": 2 * NAMES, "epoch": "feed"})]);
    watcher.push(&pushed[0], &mut directory, NOW);
    assert_eq!((watcher.names.len(), watcher.given.len(), watcher.lists), (0, NAMES as usize, 1));
    let first =
        request_value(&mut directory, "changes", &json!({"scope": "open", "offset": NAMES, "epoch": "feed"}), NOW)
            .expect("changes");
    let changes = first["changes"].as_array().expect("a list");
    assert!((100..=512).contains(&changes.len()) && first.to_string().len() < 200_000);
    let client = client_text(requester(1).owner);
    let expected = json!({"change": "unregistered", "client": client, "node": "here", "reason": "closed"});
    let mut change = changes[0].clone();
    change.as_object_mut().expect("an object").remove("name");
    assert_eq!(change, expected);
}

#[test]
fn only_scopes_that_may_be_watched_publish_changes() {
    let mut directory = directory(1_000_000);
    assert_eq!(request_value(&mut directory, "changes", &json!({"scope": "mute"}), NOW), Err(Error::NOT_AVAILABLE));
    assert_eq!(
        request_value(&mut directory, "changes", &json!({"scope": "$presence"}), NOW),
        Err(Error::NO_SUCH_SCOPE)
    );
    for odd in [json!({"offset": 1}), json!({"epoch": "x".repeat(17)}), json!({"offset": -1})] {
        let mut params = odd.clone();
        params["scope"] = json!("open");
        assert_eq!(request_value(&mut directory, "changes", &params, NOW), Err(Error::BAD_REQUEST), "{odd}");
    }
    order(&mut directory, 1, "register", &json!({"scope": "mute", "name": "a"}), NOW);
    assert!(pushes(&mut directory).is_empty());
    for lost in [json!({"epoch": "beef", "offset": 0}), json!({"epoch": "feed", "offset": 9})] {
        let mut params = lost.clone();
        params["scope"] = json!("open");
        assert_eq!(
            request_value(&mut directory, "changes", &params, NOW),
            Ok(json!({"offset": 0, "epoch": "feed", "list": true})),
            "{lost}"
        );
    }
}
