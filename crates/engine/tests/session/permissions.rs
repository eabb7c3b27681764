//! Permissions: every option that allows something, with and without it, for a user and for an anonymous client, as a
//! subscriber or not.

use touchline_engine::directory::ScopeOptions;
use touchline_engine::session::TransportMode;
use touchline_engine::{ChannelOptions, PersonalChannel, SlowConsumer};

use crate::story::{Settings, Story, with_history};

const OK: u64 = 0;
const DENIED: u64 = 103;

/// The results for a user, a user that subscribes, an anonymous client, and an anonymous client that subscribes.
type Who = [u64; 4];

/// What clients may do in a channel, by the options for clients, subscribers and anonymous clients.
const IN_A_CHANNEL: [([bool; 3], Who); 8] = [
    ([false, false, false], [DENIED, DENIED, DENIED, DENIED]),
    ([true, false, false], [OK, OK, DENIED, DENIED]),
    ([false, true, false], [DENIED, OK, DENIED, DENIED]),
    ([false, false, true], [DENIED, DENIED, DENIED, DENIED]),
    ([true, true, false], [OK, OK, DENIED, DENIED]),
    ([true, false, true], [OK, OK, OK, OK]),
    ([false, true, true], [DENIED, OK, DENIED, OK]),
    ([true, true, true], [OK, OK, OK, OK]),
];

/// A rule's change to the options of a namespace.
type Change = fn(&mut ChannelOptions);
type Grants = fn(&mut ChannelOptions, [bool; 3]);

fn grant_publish(o: &mut ChannelOptions, [client, subscriber, anonymous]: [bool; 3]) {
    (o.allow_publish_for_client, o.allow_publish_for_subscriber, o.allow_publish_for_anonymous) =
        (client, subscriber, anonymous);
}

fn grant_history(o: &mut ChannelOptions, [client, subscriber, anonymous]: [bool; 3]) {
    (o.allow_history_for_client, o.allow_history_for_subscriber, o.allow_history_for_anonymous) =
        (client, subscriber, anonymous);
}

fn grant_presence(o: &mut ChannelOptions, [client, subscriber, anonymous]: [bool; 3]) {
    (o.allow_presence_for_client, o.allow_presence_for_subscriber, o.allow_presence_for_anonymous) =
        (client, subscriber, anonymous);
}

#[test]
fn what_a_client_may_do_in_a_channel() {
    const ACTIONS: [(&str, Grants); 4] = [
        (r#"{"id":9,"publish":{"channel":"news:a","data":1}}"#, grant_publish),
        (r#"{"id":9,"history":{"channel":"news:a"}}"#, grant_history),
        (r#"{"id":9,"presence":{"channel":"news:a"}}"#, grant_presence),
        (r#"{"id":9,"presence_stats":{"channel":"news:a"}}"#, grant_presence),
    ];
    for (command, grant) in ACTIONS {
        for (granted, expected) in IN_A_CHANNEL {
            // The options of all other actions are on, or all are off. They make no difference.
            for others in [false, true] {
                let node = |settings: &mut Settings| {
                    settings.namespace("news", |options| {
                        with_history(options);
                        options.presence = true;
                        [grant_publish, grant_history, grant_presence]
                            .iter()
                            .for_each(|grant| grant(options, [others; 3]));
                        grant(options, granted);
                    });
                };
                for (index, (user, subscribes)) in
                    [("ann", false), ("ann", true), ("", false), ("", true)].into_iter().enumerate()
                {
                    let mut story = Story::with(node);
                    story.connect("client", &format!("{{'sub':'{user}'}}"));
                    if subscribes {
                        subscribe_by_token(&mut story, user, "news:a");
                    }
                    let what =
                        format!("{command} with {granted:?}, others {others}, user {user:?}, subscribes: {subscribes}");
                    assert_eq!(story.code("client", command), expected[index], "{what}");
                }
            }
        }
    }
}

fn subscribe_by_token(story: &mut Story, user: &str, channel: &str) {
    let token = format!("{{'sub':'{user}','channel':'{channel}'}}");
    let command = format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}","token":"{token}"}}}}"#);
    assert_eq!(story.code("client", &command), OK, "a subscription token opens {channel}");
}

/// The results for these channels, for a user named ann, then for an anonymous client.
const SUBSCRIBED: [&str; 7] =
    ["news:a", "news:a#ann", "news:a#bob,ann", "news:a#bob", "news:a#", "$news:a", "$news:a#ann"];

#[test]
fn which_channels_a_client_may_subscribe_to_without_a_token() {
    const NONE: [u64; 7] = [DENIED; 7];
    const USER: [u64; 7] = [OK, OK, OK, DENIED, DENIED, DENIED, DENIED];
    // Without `allow_user_limited_channels`, no client can subscribe to a channel that is limited to users.
    const ANYBODY: [u64; 7] = [OK, DENIED, DENIED, DENIED, DENIED, DENIED, DENIED];
    const LISTED: [u64; 7] = [DENIED, OK, OK, DENIED, DENIED, DENIED, DENIED];
    // The options: for clients, for anonymous clients, for channels limited to users.
    let rules = [
        ([false, false, false], NONE, NONE),
        ([true, false, false], ANYBODY, NONE),
        ([false, true, false], NONE, NONE),
        ([true, true, false], ANYBODY, ANYBODY),
        ([false, false, true], LISTED, NONE),
        ([true, false, true], USER, NONE),
        ([false, true, true], LISTED, NONE),
        ([true, true, true], USER, ANYBODY),
    ];
    for ([client, anonymous, users], of_ann, of_nobody) in rules {
        let node = |settings: &mut Settings| {
            settings.namespace("news", |options| {
                options.allow_subscribe_for_client = client;
                options.allow_subscribe_for_anonymous = anonymous;
                options.allow_user_limited_channels = users;
            });
        };
        for (user, expected) in [("ann", of_ann), ("", of_nobody)] {
            for (channel, expected) in SUBSCRIBED.iter().zip(expected) {
                let mut story = Story::with(node);
                story.connect("client", &format!("{{'sub':'{user}'}}"));
                let subscribe = format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}"}}}}"#);
                let what = format!("{channel} for {user:?} with {client} {anonymous} {users}");
                assert_eq!(story.code("client", &subscribe), expected, "{what}");
                subscribe_after(&mut story, user, channel, expected);
            }
        }
    }
}

/// A token permits what is not permitted without it.
fn subscribe_after(story: &mut Story, user: &str, channel: &str, code: u64) {
    if code == DENIED {
        subscribe_by_token(story, user, channel);
    }
}

#[test]
fn changes_of_a_scope_are_for_clients_that_may_watch_it() {
    // The options: watching, anonymous clients. The codes: for a user, for an anonymous client.
    let rules = [
        ([false, false], [DENIED, DENIED]),
        ([true, false], [OK, DENIED]),
        ([false, true], [DENIED, DENIED]),
        ([true, true], [OK, OK]),
    ];
    for ([watch, anonymous], expected) in rules {
        for (user, expected) in ["ann", ""].into_iter().zip(expected) {
            let mut story = Story::with(|settings| {
                settings.scope("devices", |options| {
                    options.allow_watch_for_client = watch;
                    options.allow_for_anonymous = anonymous;
                });
                // Neither another scope's option nor the channels' options permit it.
                settings.scope("others", |options| {
                    (options.allow_watch_for_client, options.allow_for_anonymous) = (true, true)
                });
                settings.namespace("registry", |options| {
                    (options.allow_subscribe_for_client, options.allow_subscribe_for_anonymous) = (true, true);
                });
            });
            story.connect("client", &format!("{{'sub':'{user}'}}"));
            let subscribe = r#"{"id":2,"subscribe":{"channel":"$registry:devices"}}"#;
            assert_eq!(story.code("client", subscribe), expected, "{watch} {anonymous} {user:?}");
            let changes = r#"{"id":3,"rpc":{"method":"registry.changes","data":{"scope":"devices"}}}"#;
            assert_eq!(
                story.code("client", changes),
                expected,
                "its log is for the same: {watch} {anonymous} {user:?}"
            );
            for unknown in ["$registry:nothing", "$registry:", "$registry:$presence", "$registry:devices:x"] {
                let subscribe = format!(r#"{{"id":4,"subscribe":{{"channel":"{unknown}"}}}}"#);
                assert_eq!(story.code("client", &subscribe), DENIED, "{unknown}");
            }
        }
    }
}

/// The option that allows something in a scope.
type Allow = fn(&mut ScopeOptions);

/// Every method of the registry that needs a permission, and the option that grants it.
const METHODS: [(&str, &str, Allow); 14] = [
    ("registry.register", r#""name":"ann/phone""#, |o| o.allow_register = vec!["{user}/*".into()]),
    ("registry.join", r#""group":"ann/all""#, |o| o.allow_join = vec!["{user}/*".into()]),
    ("registry.lookup", r#""name":"held""#, |o| o.allow_lookup_for_client = true),
    ("registry.names", r#""prefix":"a""#, |o| o.allow_lookup_for_client = true),
    ("registry.groups", r#""prefix":"a""#, |o| o.allow_lookup_for_client = true),
    ("registry.members", r#""group":"all""#, |o| o.allow_lookup_for_client = true),
    ("registry.members", r#""group":"all","limit":5"#, |o| o.allow_lookup_for_client = true),
    ("registry.member", r#""group":"all","client":"<holder>""#, |o| o.allow_lookup_for_client = true),
    ("registry.count", r#""x":0"#, |o| o.allow_lookup_for_client = true),
    ("registry.changes", r#""x":0"#, |o| o.allow_watch_for_client = true),
    ("registry.send", r#""name":"held","data":1"#, |o| o.allow_send_for_client = true),
    ("registry.send", r#""group":"all","data":1"#, |o| o.allow_send_for_client = true),
    ("registry.call", r#""name":"held","data":1"#, |o| o.allow_call_for_client = true),
    ("registry.multi_call", r#""group":"all","data":1"#, |o| o.allow_call_for_client = true),
];

fn all_but_nothing(o: &mut ScopeOptions) {
    (o.allow_register, o.allow_join, o.allow_store) = (vec!["*".into()], vec!["*".into()], vec!["*".into()]);
    (o.allow_lookup_for_client, o.allow_send_for_client, o.allow_call_for_client) = (true, true, true);
    o.allow_watch_for_client = true;
}

/// The code that a registry method returns if a name and a group are registered already; 0 also if the answer has not
/// arrived yet.
fn registry_code(user: &str, (method, params): (&str, &str), options: impl Fn(&mut ScopeOptions)) -> u64 {
    let mut story = Story::with(|settings| {
        settings.scope("other", all_but_nothing);
        settings.scope("devices", options);
    });
    story.connect(
        "holder",
        "{'names':[{'scope':'devices','name':'held'}],'groups':[{'scope':'devices','group':'all'}]}",
    );
    story.connect("client", &format!("{{'sub':'{user}'}}"));
    story.say("client", &format!(r#"{{"id":2,"rpc":{{"method":"{method}","data":{{"scope":"devices",{params}}}}}}}"#));
    story.received("holder");
    let refused = story.refused("client").first().map_or(0, |refused| u64::from(refused.code));
    let received = story.received("client");
    assert_eq!(
        received.iter().any(|message| message.contains(r#""error":"#)),
        refused > 0,
        "{method} {params}: {received:?}"
    );
    refused
}

#[test]
fn each_method_of_the_registry_has_its_own_option() {
    for (method, params, allow) in METHODS {
        let call = (method, params);
        let only = |o: &mut ScopeOptions| allow(o);
        let others = |o: &mut ScopeOptions| {
            let mut allowed = ScopeOptions::default();
            allow(&mut allowed);
            all_but_nothing(o);
            o.allow_for_anonymous = true;
            // The option that this method needs is off.
            let lacks = |given: &[String], all: &mut Vec<String>| {
                if !given.is_empty() {
                    all.clear()
                }
            };
            lacks(&allowed.allow_register, &mut o.allow_register);
            lacks(&allowed.allow_join, &mut o.allow_join);
            o.allow_lookup_for_client &= !allowed.allow_lookup_for_client;
            o.allow_watch_for_client &= !allowed.allow_watch_for_client;
            o.allow_send_for_client &= !allowed.allow_send_for_client;
            o.allow_call_for_client &= !allowed.allow_call_for_client;
        };
        let anonymous = |o: &mut ScopeOptions| {
            all_but_nothing(o);
            o.allow_for_anonymous = true;
        };
        assert_eq!(registry_code("ann", call, only), OK, "{method} {params}: the option allows it");
        assert_eq!(registry_code("ann", call, others), DENIED, "{method} {params}: no other option allows it");
        assert_eq!(
            registry_code("", call, all_but_nothing),
            DENIED,
            "{method} {params}: anonymous clients may not by that"
        );
        assert_eq!(registry_code("", call, anonymous), OK, "{method} {params}: anonymous clients may");
    }
    let store = ("registry.send", r#""name":"held","data":1,"store_for":5"#);
    let without = |o: &mut ScopeOptions| {
        all_but_nothing(o);
        o.allow_store = vec!["{user}/*".into()];
    };
    assert_eq!(registry_code("ann", store, without), DENIED, "what is kept needs an option of its own");
    assert_eq!(registry_code("", store, all_but_nothing), DENIED);
    assert_eq!(registry_code("ann", store, |o| o.allow_store = vec!["*".into()]), DENIED, "besides that of sending");
}

#[test]
fn a_token_lets_its_client_register_the_names_that_it_says() {
    let mut story = Story::with(|settings| {
        settings.scope("devices", |_| ());
        settings.scope("others", |_| ());
    });
    story.connect("client", "{'sub':'ann','register':{'devices':['bike-*']}}");
    for (scope, name, expected) in [
        ("devices", "bike-7", OK),
        ("devices", "car-7", DENIED),
        ("others", "bike-7", DENIED),
        ("nowhere", "bike-7", 4003),
    ] {
        let register = format!(
            r#"{{"id":2,"rpc":{{"method":"registry.register","data":{{"scope":"{scope}","name":"{name}"}}}}}}"#
        );
        assert_eq!(story.code("client", &register), expected, "{scope} {name}");
    }
    story.connect("bob", "{'sub':'bob'}");
    let register = r#"{"id":2,"rpc":{"method":"registry.register","data":{"scope":"devices","name":"bike-8"}}}"#;
    assert_eq!(story.code("bob", register), DENIED, "it is this client's alone");
}

#[test]
fn an_insecure_node_lets_those_in_that_it_trusts() {
    // `anonymous_on_loopback_only`; from this machine; the disconnect for a connect without a token, or the commands
    // are executed.
    for (only_near, is_near, is_open) in
        [(false, false, true), (false, true, true), (true, true, true), (true, false, false)]
    {
        let mut story = Story::with(|settings| {
            settings.client.allow_anonymous_connect_without_token = false;
            (settings.client.insecure, settings.client.anonymous_on_loopback_only) = (true, only_near);
            settings.scope("devices", |_| ());
            settings.namespace("news", |options| {
                with_history(options);
                options.presence = true;
            });
        });
        story.open_from("client", TransportMode::Duplex, is_near);
        assert_eq!(story.code("client", r#"{"id":1,"connect":{}}"#), if is_open { OK } else { 3501 });
        story.open_from("client", TransportMode::Duplex, is_near);
        assert_eq!(story.code("client", r#"{"id":1,"connect":{"token":"{'sub':'ann'}"}}"#), OK);
        for command in [
            r#"{"id":2,"publish":{"channel":"news:a","data":1}}"#,
            r#"{"id":2,"history":{"channel":"news:a"}}"#,
            r#"{"id":2,"presence":{"channel":"news:a"}}"#,
            r#"{"id":2,"subscribe":{"channel":"news:a"}}"#,
            r#"{"id":2,"subscribe":{"channel":"news:a#bob"}}"#,
            r#"{"id":2,"subscribe":{"channel":"$news:a"}}"#,
            r#"{"id":2,"rpc":{"method":"registry.register","data":{"scope":"devices","name":"x"}}}"#,
        ] {
            let expected = if is_open { OK } else { DENIED };
            assert_eq!(story.code("client", command), expected, "{command} with {only_near} {is_near}");
        }
    }
}

#[test]
fn connects_without_a_token_or_without_a_user_need_a_setting() {
    let no_user = r#"{"id":1,"connect":{"token":"{}"}}"#;
    let no_token = r#"{"id":1,"connect":{}}"#;
    // `allow_anonymous_connect_without_token`; `anonymous_on_loopback_only`; from this machine; a key is configured.
    let cases = [
        ([true, false, false, false], no_token, OK),
        ([true, false, true, false], no_token, OK),
        ([true, true, true, false], no_token, OK),
        ([true, true, false, false], no_token, 3501),
        ([true, true, false, true], no_token, 3507),
        ([false, false, true, false], no_token, 3501),
        ([false, false, true, true], no_token, 3507),
        ([false, false, false, true], no_user, OK),
        ([false, true, false, true], no_user, OK),
    ];
    for ([allow, only_near, is_near, has_key], connect, expected) in cases {
        for key in 0..3 {
            let mut story = Story::with(|settings| {
                let client = &mut settings.client;
                (client.allow_anonymous_connect_without_token, client.anonymous_on_loopback_only) = (allow, only_near);
                let keys = &mut client.token;
                let keys = [&mut keys.hmac_secret_key, &mut keys.rsa_public_key, &mut keys.ecdsa_public_key];
                keys.into_iter().skip(key).take(usize::from(has_key)).for_each(|key| *key = "key".into());
            });
            story.open_from("client", TransportMode::Duplex, is_near);
            assert_eq!(
                story.code("client", connect),
                expected,
                "{connect} with {allow} {only_near} {is_near} {has_key}, key {key}"
            );
        }
    }
    let strict = |settings: &mut Settings| settings.client.disallow_anonymous_connection_tokens = true;
    assert_eq!(Story::with(strict).code("client", no_user), 3507);
    assert_eq!(Story::with(strict).code("client", no_token), OK, "the other option is on");
    assert_eq!(Story::with(strict).code("client", r#"{"id":1,"connect":{"token":"{'sub':'ann'}"}}"#), OK);
}

#[test]
fn a_position_is_told_where_it_may_be_asked_for() {
    // The options: positioning, recovery, history for subscribers … for clients. What is requested, and what is
    // granted.
    let rules: [(Change, &str, [bool; 2]); 12] = [
        (|_| (), r#""positioned":true,"recoverable":true"#, [false, false]),
        (|o| o.allow_positioning = true, r#""positioned":true,"recoverable":true"#, [true, false]),
        (|o| o.allow_recovery = true, r#""positioned":true,"recoverable":true"#, [true, true]),
        (|o| o.allow_history_for_client = true, r#""positioned":true"#, [true, false]),
        (|o| o.allow_history_for_client = true, r#""recoverable":true"#, [true, true]),
        (|o| o.allow_history_for_subscriber = true, r#""recoverable":true"#, [true, true]),
        (|o| o.allow_history_for_anonymous = true, r#""positioned":true"#, [false, false]),
        (|o| (o.allow_positioning, o.allow_recovery) = (true, true), r#""flag":0"#, [false, false]),
        (|o| o.force_positioning = true, r#""flag":0"#, [true, false]),
        (|o| o.force_recovery = true, r#""flag":0"#, [true, true]),
        (|o| (o.history_size, o.force_positioning, o.force_recovery) = (0, true, true), r#""flag":0"#, [false, false]),
        (
            |o| (o.slow_consumer, o.allow_history_for_client) = (SlowConsumer::DropOldest, true),
            r#""positioned":true,"recoverable":true"#,
            [false, false],
        ),
    ];
    for (allow, asked, [is_positioned, is_recoverable]) in rules {
        let mut story = Story::with(|settings| {
            settings.namespace("news", |options| {
                with_history(options);
                options.allow_subscribe_for_client = true;
                allow(options);
            });
        });
        story.connect("ann", "{'sub':'ann'}");
        story.publish("news:a", "1");
        story.say("ann", &format!(r#"{{"id":2,"subscribe":{{"channel":"news:a",{asked}}}}}"#));
        let received = story.received("ann").join("");
        for (name, is_there) in [
            (r#""positioned":true"#, is_positioned),
            (r#""recoverable":true"#, is_recoverable),
            (r#""epoch":"#, is_positioned),
            (r#""offset":1"#, is_positioned),
        ] {
            assert_eq!(received.contains(name), is_there, "{asked}: {received}");
        }
    }
}

#[test]
fn joins_and_leaves_are_sent_to_subscribers_that_may_see_presence() {
    let cases: [(Change, &str, bool); 6] = [
        (|o| o.allow_presence_for_client = true, r#""join_leave":true"#, true),
        (|o| o.allow_presence_for_subscriber = true, r#""join_leave":true"#, true),
        (|o| o.allow_presence_for_client = true, r#""join_leave":false"#, false),
        (|_| (), r#""join_leave":true"#, false),
        (|o| o.force_push_join_leave = true, r#""join_leave":false"#, true),
        (|o| (o.join_leave, o.force_push_join_leave) = (false, true), r#""join_leave":true"#, false),
    ];
    for (allow, asked, is_told) in cases {
        let mut story = Story::with(|settings| {
            settings.namespace("news", |options| {
                (options.join_leave, options.allow_subscribe_for_client) = (true, true);
                allow(options);
            });
        });
        story.connect("ann", "{'sub':'ann'}");
        story.connect("bob", "{'sub':'bob','subs':{'news:a':{'info':{'seat':7}}},'info':'Bob'}");
        story.say("ann", &format!(r#"{{"id":2,"subscribe":{{"channel":"news:a",{asked}}}}}"#));
        story.received("ann");
        story.received("bob");
        story.connect("cid", "{'sub':'cid','subs':{'news:a':{'info':{'seat':8}}},'info':'Cid'}");
        story.received("bob");
        story.decide("cid", |session, context| session.server_unsubscribe("news:a", context));
        story.received("cid");
        story.received("bob");
        if is_told {
            story.play(
                r#"
                ann< {"push":{"channel":"news:a","join":{"info":{"user":"cid","client":"<cid>","conn_info":"Cid",\
                    "chan_info":{"seat":8}}}}}
                ann< {"push":{"channel":"news:a","leave":{"info":{"user":"cid","client":"<cid>","conn_info":"Cid",\
                    "chan_info":{"seat":8}}}}}
                "#,
            );
        }
        story.play("");
    }
}

#[test]
fn a_user_has_its_personal_channel_and_no_other_user_has() {
    for (namespace, channel) in [("", "#ann"), ("news", "news:#ann")] {
        let node = |settings: &mut Settings| {
            settings.namespace("news", |_| ());
            settings.client.subscribe_to_user_personal_channel =
                PersonalChannel { enabled: true, personal_channel_namespace: namespace.into() };
        };
        let mut story = Story::with(node);
        story.play(&format!(
            r#"
            ann> {{"id":1,"connect":{{"token":"{{'sub':'ann'}}"}}}}
            ann< {{"id":1,"connect":{{"client":"<ann>","version":"1.0","subs":{{"{channel}":{{}}}},"ping":25,\
                "pong":true}}}}
            nobody> {{"id":1,"connect":{{}}}}
            nobody< {{"id":1,"connect":{{"client":"<nobody>","version":"1.0","ping":25,"pong":true}}}}
            "#
        ));
    }
}
