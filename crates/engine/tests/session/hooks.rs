//! Hooks: whatever the delays of the backend, of homes and of the socket, and however much waits, effects of one
//! connection on one channel keep their order, and nothing else waits.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::Value;
use touchline_engine::hook::{HookCall, HookError, HookKind, HookOutcome, HookRequest, parse_answer};
use touchline_engine::session::{Room, TransportMode};
use touchline_protocol::Disconnect;

use crate::story::{START_S, Settings, Story, with_history};
use crate::tokens::calm;

const CHANNELS: [&str; 3] = ["chat:a", "chat:b", "plain:c"];
/// The size of a large publication, bytes. Four of them are more than may wait for questions before reading stops.
const LARGE: usize = 20_000;
/// The index of ann: bob connects first.
const ANN: usize = 1;

#[derive(Debug, Clone)]
enum Step {
    /// Publishes with this number of bytes, approximately.
    Publish(usize, usize),
    Subscribe(usize),
    Unsubscribe(usize),
    History(usize),
    Presence(usize),
    Rpc,
    /// The socket has room for this many bytes of replies.
    Room(usize),
    /// The next response or delivery of a home arrives.
    Arrive,
    /// The backend answers one of its open questions, and permits the action or not.
    Answer(usize, bool),
    /// The server API publishes into a channel.
    Event(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let channel = || 0..CHANNELS.len();
    let step = prop_oneof![
        4 => (channel(), prop_oneof![Just(0), Just(LARGE)]).prop_map(|(channel, size)| Step::Publish(channel, size)),
        2 => channel().prop_map(Step::Subscribe),
        1 => channel().prop_map(Step::Unsubscribe),
        1 => channel().prop_map(Step::History),
        1 => channel().prop_map(Step::Presence),
        1 => prop_oneof![Just(0), Just(100), Just(usize::MAX)].prop_map(Step::Room),
        3 => Just(Step::Arrive),
        2 => Just(Step::Rpc),
        4 => (0..100_usize, any::<bool>()).prop_map(|(which, allows)| Step::Answer(which, allows)),
        1 => channel().prop_map(Step::Event),
    ];
    proptest::collection::vec(step, 1..80)
}

fn node(settings: &mut Settings) {
    calm(settings);
    settings.client.hook_calls_in_flight_max = 4;
    settings.deferred_max = 100 * LARGE;
    settings.namespace("chat", |options| {
        with_history(options);
        options.history_size = 1_000;
        options.allow_history_for_client = true;
        (options.presence, options.allow_presence_for_client) = (true, true);
        (options.subscribe_proxy_enabled, options.publish_proxy_enabled) = (true, true);
    });
    settings.namespace("plain", |options| {
        with_history(options);
        options.history_size = 1_000;
        (options.allow_history_for_client, options.allow_subscribe_for_client) = (true, true);
        (options.presence, options.allow_presence_for_client) = (true, true);
        options.allow_publish_for_client = true;
    });
}

fn story() -> Story {
    let mut story = Story::with(node);
    story.node.hooks.rpc.without_namespace.proxy_enabled = true;
    story.connect("bob", "{'sub':'bob'}");
    story.connect("ann", "{'sub':'ann'}");
    story
}

fn refused() -> HookOutcome {
    HookOutcome::Error(HookError { code: 403, message: "no".into(), temporary: false })
}

/// The channels of the questions, to check that questions about one channel do not overlap.
fn subjects(questions: &[(usize, HookCall)]) -> Vec<&str> {
    questions.iter().filter_map(|(_, call)| call.request.channel()).collect()
}

/// A publication with this number.
fn numbered(number: u32, size: usize) -> String {
    format!("[{number}{}]", ",0".repeat(size / 2))
}

/// The number of a publication.
fn number_of(data: &str) -> u32 {
    let data = data.trim_start_matches('[');
    data.split([',', ']']).next().unwrap_or_default().parse().expect("a number")
}

/// The numbers of the client's publications for each channel, in the order in which the homes got them.
fn published(story: &Story) -> BTreeMap<String, Vec<u32>> {
    let mut all: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (channel, request) in &story.requests {
        if let Some((_, rest)) = request.split_once("Publish(").and_then(|(_, rest)| rest.split_once("data: b\"")) {
            all.entry(channel.to_string()).or_default().push(number_of(rest));
        }
    }
    all
}

/// Plays the steps. Returns the publications that the backend allowed, or that need no backend, by their channel.
fn play(story: &mut Story, steps: &[Step], sent: &mut BTreeSet<u64>) -> BTreeMap<String, BTreeSet<u32>> {
    let mut allowed: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    let mut id = 1;
    for step in steps {
        id += 1;
        let command = |kind: &str, rest: &str| format!(r#"{{"id":{id},"{kind}":{{{rest}}}}}"#);
        let about = |channel: &usize| format!(r#""channel":"{}""#, CHANNELS[*channel]);
        let said = match step {
            Step::Publish(channel, size) => {
                if CHANNELS[*channel].starts_with("plain") {
                    allowed.entry(CHANNELS[*channel].into()).or_default().insert(id);
                }
                Some(command("publish", &format!(r#"{},"data":{}"#, about(channel), numbered(id, *size))))
            }
            Step::Subscribe(channel) => Some(command("subscribe", &about(channel))),
            Step::Unsubscribe(channel) => Some(command("unsubscribe", &about(channel))),
            Step::History(channel) => Some(command("history", &about(channel))),
            Step::Presence(channel) => Some(command("presence", &about(channel))),
            Step::Room(bytes) => {
                story.room = Room { bytes: *bytes, is_scarce: false };
                story.decide("ann", |_, _| {});
                None
            }
            Step::Arrive => {
                if story.under_way() > 0 {
                    story.arrive();
                }
                None
            }
            Step::Rpc => Some(command("rpc", r#""method":"x""#)),
            Step::Answer(which, allows) => {
                if !story.questions.is_empty() {
                    answer(story, which % story.questions.len(), *allows, &mut allowed);
                }
                None
            }
            Step::Event(channel) => {
                let before = story.session("ann").is_busy(&story.node.client);
                story.publish(CHANNELS[*channel], "0");
                assert_eq!(story.session("ann").is_busy(&story.node.client), before, "an event is no command");
                None
            }
        };
        if let Some(command) = said {
            story.say("ann", &command);
            sent.insert(id.into());
        }
        let asked = subjects(&story.questions);
        let distinct: BTreeSet<_> = asked.iter().collect();
        assert_eq!(asked.len(), distinct.len(), "one question at a time about a channel: {asked:?}");
        assert!(story.questions.len() <= 4, "client.hook_calls_in_flight_max");
    }
    allowed
}

fn answer(story: &mut Story, number: usize, allows: bool, allowed: &mut BTreeMap<String, BTreeSet<u32>>) {
    if let (true, HookRequest::Publish { channel, data, .. }) = (allows, &story.questions[number].1.request) {
        let number = number_of(std::str::from_utf8(data).expect("a number"));
        allowed.entry(channel.to_string()).or_default().insert(number);
    }
    story.answer_question(number, if allows { HookOutcome::Empty } else { refused() });
}

/// The ids of the replies. Each occurs once.
fn answered(story: &mut Story) -> BTreeSet<u64> {
    let mut ids = BTreeSet::new();
    for message in story.received("ann") {
        let id = serde_json::from_str::<Value>(&message).expect("JSON")["id"].as_u64();
        assert!(id.is_none_or(|id| ids.insert(id)), "two replies: {message}");
    }
    ids
}

proptest! {
    #[test]
    fn effects_on_a_channel_keep_their_order_whatever_the_delays(
        steps in steps(), is_slow in any::<bool>(), order in any::<u64>()
    ) {
        let (mut story, mut sent) = (story(), BTreeSet::new());
        story.is_slow = is_slow;
        let mut allowed = play(&mut story, &steps, &mut sent);
        // In the end the socket accepts everything, and homes and the backend answer everything, in some order.
        story.room = Room::ANY;
        story.decide("ann", |_, _| {});
        let mut order = order;
        loop {
            while story.under_way() > 0 {
                story.arrive();
            }
            if story.questions.is_empty() {
                break;
            }
            let number = (order % story.questions.len() as u64) as usize;
            order = order.rotate_right(7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            answer(&mut story, number, order & 1 == 0, &mut allowed);
        }
        let session = story.session("ann");
        prop_assert!(!session.owes_answers() && !session.is_deferring());
        prop_assert_eq!(session.buffered_bytes(), 0);
        prop_assert_eq!(answered(&mut story), sent, "each command has one reply");
        let published = published(&story);
        for channel in CHANNELS {
            let order = published.get(channel).cloned().unwrap_or_default();
            // The publications arrive in the order of the commands: each one once, and no others.
            let expected: Vec<u32> = allowed.get(channel).into_iter().flatten().copied().collect();
            prop_assert_eq!(order, expected, "{}", channel);
        }
    }

    #[test]
    fn a_connection_that_ends_leaves_nothing_behind(steps in steps(), answers in any::<u64>()) {
        let (mut story, mut sent) = (story(), BTreeSet::new());
        play(&mut story, &steps, &mut sent);
        let asked: Vec<u32> = story.questions.iter().map(|(_, call)| call.serial).collect();
        story.decide("ann", |session, context| session.close(context));
        prop_assert!(story.questions.is_empty(), "every question is cancelled");
        let before = (story.requests.len(), story.asks.len());
        for serial in asked {
            let outcome = if answers >> (serial % 64) & 1 == 0 { HookOutcome::Empty } else { refused() };
            story.answer_serial(ANN, serial, outcome);
        }
        prop_assert_eq!((story.requests.len(), story.asks.len()), before, "an answer that comes late does nothing");
    }
}

proptest! {
    #[test]
    fn what_a_one_way_client_names_is_asked_about_a_few_at_a_time(
        wishes in 0..40_usize, at_once in 1..6_usize, channel_limit in 1..30_usize, answers in any::<u64>()
    ) {
        let mut story = Story::with(|settings| {
            node(settings);
            settings.client.hook_calls_in_flight_max = at_once;
            settings.client.channel_limit = channel_limit;
        });
        story.open("tv", TransportMode::OneWay);
        let subs: Vec<_> = (0..wishes).map(|number| format!(r#""chat:{number}":{{}}"#)).collect();
        story.say("tv", &format!(r#"{{"token":"{{'sub':'tv'}}","subs":{{{}}}}}"#, subs.join(",")));
        let (mut asked, mut allowed, mut answers) = (0, 0, answers);
        while !story.questions.is_empty() {
            prop_assert!(story.questions.len() <= at_once, "client.hook_calls_in_flight_max");
            prop_assert!(!story.session("tv").is_connected());
            // However long the backend takes, it has a deadline, and the client has done its part.
            story.at(story.deadline("tv"));
            prop_assert!(!story.questions.is_empty(), "the client is not taken for stale");
            (asked, answers) = (asked + 1, answers.rotate_right(5).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let allows = answers & 1 == 0;
            allowed += usize::from(allows);
            let number = (answers >> 8) as usize % story.questions.len();
            story.answer_question(number, if allows { HookOutcome::Empty } else { refused() });
        }
        prop_assert!(story.session("tv").is_connected());
        prop_assert_eq!(asked, wishes.min(channel_limit), "nobody is asked about more than there may be");
        prop_assert_eq!(story.session("tv").subscription_count(), allowed);
        prop_assert_eq!(story.session("tv").buffered_bytes(), 0);
    }
}

#[test]
fn a_client_keeps_no_subscription_by_commands() {
    let mut story = Story::with(|settings| {
        node(settings);
        let chat = settings.channel.namespaces.iter_mut().find(|namespace| namespace.name == "chat");
        chat.expect("it is there").options.sub_refresh_proxy_enabled = true;
    });
    story.connect("ann", "{'sub':'ann'}");
    story.say("ann", r#"{"id":2,"subscribe":{"channel":"chat:a"}}"#);
    let answer = format!(r#"{{"result":{{"expire_at":{}}}}}"#, START_S + 5);
    let kind = story.questions[0].1.request.kind();
    story.answer_question(0, parse_answer(kind, answer.as_bytes(), &Default::default()).expect("an answer"));
    let publish = |id: u32| format!(r#"{{"id":{id},"publish":{{"channel":"chat:a","data":1}}}}"#);
    (3..6).for_each(|id| story.say("ann", &publish(id)));
    story.at(11_000);
    assert_eq!(story.questions.len(), 1, "one question at a time about a channel");
    story.answer_question(0, HookOutcome::Empty);
    let kinds: Vec<_> = story.questions.iter().map(|(_, call)| call.request.kind()).collect();
    assert_eq!(kinds, [HookKind::SubRefresh], "before the publications that wait");
    story.answer_question(0, HookOutcome::Empty);
    assert_eq!(story.session("ann").subscription_count(), 0);
    while !story.questions.is_empty() {
        story.answer_question(0, HookOutcome::Empty);
    }
}

#[test]
fn the_log_has_every_refusal_of_a_backend_with_its_hook_and_its_code() {
    let refusals = || [refused(), HookOutcome::Disconnect(Disconnect { code: 4_501, reason: "out".into() })];
    let cases = [
        (r#"{"id":2,"subscribe":{"channel":"chat:a"}}"#, "the backend of the subscribe hook has refused the subscribe"),
        (
            r#"{"id":2,"publish":{"channel":"chat:a","data":1}}"#,
            "the backend of the publish hook has refused the publication",
        ),
        (r#"{"id":2,"rpc":{"method":"x"}}"#, "the backend of the rpc hook has answered with an error"),
        (r#"{"id":1,"connect":{}}"#, "the backend of the connect hook has refused the client"),
    ];
    for (command, cause) in cases {
        for (outcome, code) in refusals().into_iter().zip([403, 4_501]) {
            let mut story = story();
            story.node.client.proxy.connect.enabled = true;
            // The client gets the backend's text, whether or not the node sends causes of its own refusals.
            story.node.client.tell_refusal_cause = true;
            if command.contains("connect") {
                story.open("cid", TransportMode::Duplex);
            } else {
                story.connect("cid", "{'sub':'cid'}");
            }
            story.say("cid", command);
            story.answer_question(0, outcome);
            let heard = story.received("cid").join("");
            assert!(heard.contains(r#""message":"no""#) || heard == "disconnect 4501 out", "{heard}");
            let found: Vec<_> = story.refused("cid").iter().map(|report| (report.code, report.cause)).collect();
            assert_eq!(found, [(code, cause)], "{command}");
        }
    }
}

#[test]
fn a_connect_that_nobody_decides_has_one_cause() {
    let mut story = story();
    story.node.client.proxy.connect.enabled = true;
    story.node.client.allow_anonymous_connect_without_token = false;
    story.open("cid", TransportMode::Duplex);
    story.say("cid", r#"{"id":1,"connect":{}}"#);
    story.answer_question(0, HookOutcome::Empty);
    let found: Vec<_> = story.refused("cid").iter().map(|report| report.cause).collect();
    assert_eq!(found, ["the connect hook answered `{}`: it named no user, and anonymous clients are not accepted"]);
}

#[test]
fn a_client_that_its_hook_does_not_connect_has_and_gets_nothing() {
    let caps = Default::default();
    for (channels, code) in [(r#"["plain:a","nowhere:b"]"#, 102), (r#"["plain:a","plain:b","plain:c"]"#, 106)] {
        let mut story = Story::with(|settings| {
            node(settings);
            settings.client.channel_limit = 2;
            settings.client.proxy.connect.enabled = true;
            settings.scope("devices", |_| {});
        });
        story.open("ann", TransportMode::Duplex);
        story.say("ann", r#"{"id":1,"connect":{}}"#);
        let names = r#"[{"scope":"devices","name":"door"}]"#;
        let json = format!(r#"{{"result":{{"user":"ann","channels":{channels},"names":{names}}}}}"#);
        let kind = story.questions[0].1.request.kind();
        story.answer_question(0, parse_answer(kind, json.as_bytes(), &caps).expect("it can be read"));
        let received = story.received("ann");
        assert!(received[0].starts_with(&format!(r#"{{"id":1,"error":{{"code":{code},"#)), "{received:?}");
        assert!(story.requests.is_empty() && story.asks.is_empty(), "{:?} {:?}", story.requests, story.asks);
        story.publish("plain:a", "1");
        assert_eq!(story.received("ann"), Vec::<String>::new(), "a refused client is told nothing more");
    }
}

#[test]
fn a_command_without_a_channel_waits_for_no_rpc() {
    let mut story = story();
    story.say("ann", r#"{"id":2,"rpc":{"method":"x"}}"#);
    assert_eq!(story.code("ann", r#"{"id":3,"history":{"channel":""}}"#), 3501);
}

#[test]
fn however_much_waits_behind_a_question_it_goes_on_with_the_answer() {
    for (count, size) in [(4, 30_000), (70, 1_000), (200, 10)] {
        let mut story = story();
        let text = "x".repeat(size);
        for id in 2..2 + count {
            let publish = format!(r#"{{"id":{id},"publish":{{"channel":"chat:a","data":"{text}"}}}}"#);
            story.say("ann", &publish);
        }
        while !story.questions.is_empty() {
            story.answer_question(0, HookOutcome::Empty);
        }
        assert_eq!(answered(&mut story).len(), count, "of {size} bytes");
        assert_eq!(story.code("ann", r#"{"id":900,"history":{"channel":"plain:c"}}"#), 0);
    }
}

#[test]
fn an_unsubscribe_waits_for_nothing_and_is_the_last_word() {
    for before in [&["publish"][..], &["subscribe"], &["subscribe", "subscribe"], &["publish", "subscribe", "publish"]]
    {
        let mut story = story();
        let mut id = 1;
        let mut say = |story: &mut Story, kind: &str| {
            id += 1;
            story.say("ann", &format!(r#"{{"id":{id},"{kind}":{{"channel":"chat:a","data":{id}}}}}"#));
        };
        before.iter().for_each(|kind| say(&mut story, kind));
        say(&mut story, "unsubscribe");
        let received = story.received("ann");
        assert!(received.last().is_some_and(|last| last.contains(r#""unsubscribe":{}"#)), "{before:?}: {received:?}");
        while !story.questions.is_empty() {
            story.answer_question(0, HookOutcome::Empty);
        }
        assert_eq!(story.session("ann").subscription_count(), 0, "{before:?}");
    }
}

#[test]
fn what_is_taken_back_counts_until_the_backend_has_answered() {
    let mut story = story();
    for id in 0..100_u32 {
        let channel = format!("chat:{id}");
        story.say("ann", &format!(r#"{{"id":{},"subscribe":{{"channel":"{channel}"}}}}"#, 2 * id + 2));
        story.say("ann", &format!(r#"{{"id":{},"unsubscribe":{{"channel":"{channel}"}}}}"#, 2 * id + 3));
    }
    assert_eq!(story.questions.len(), 4, "client.hook_calls_in_flight_max");
    while !story.questions.is_empty() {
        story.answer_question(0, HookOutcome::Empty);
    }
    assert_eq!(answered(&mut story).len(), 200);
    assert_eq!(story.session("ann").subscription_count(), 0);
}

#[test]
fn the_server_ends_what_a_one_way_client_waits_for() {
    let mut story = story();
    story.open("tv", TransportMode::OneWay);
    story.say("tv", r#"{"token":"{'sub':'tv'}","subs":{"chat:a":{},"chat:b":{}}}"#);
    assert_eq!(story.questions.len(), 2);
    story.decide("tv", |session, context| session.server_unsubscribe("chat:a", context));
    assert_eq!(subjects(&story.questions), ["chat:b"], "the other one is cancelled");
    story.answer_question(0, HookOutcome::Empty);
    story.publish("chat:a", "1");
    story.publish("chat:b", "2");
    let received = story.received("tv").join("\n");
    assert!(received.contains(r#""data":2"#) && !received.contains(r#""data":1"#), "{received}");
}
