//! Why a client is refused: the text for the log, and the text for the client if the node sends it.

use touchline_engine::session::TransportMode;

use crate::story::{Settings, Story, with_history};

fn node(settings: &mut Settings) {
    settings.client.allow_anonymous_connect_without_token = false;
    settings.client.channel_limit = 1;
    settings.namespace("shut", |_| ());
    settings.namespace("user", |options| options.allow_subscribe_for_client = true);
    settings.namespace("full", |options| {
        with_history(options);
        (options.presence, options.allow_tags_filter) = (true, true);
        (options.allow_publish_for_client, options.allow_history_for_client, options.allow_presence_for_client) =
            (true, true, true);
    });
    settings.namespace("none", |options| {
        with_history(options);
        options.presence = true;
    });
    settings.scope("devices", |_| ());
}

const ANN: &str = "{'sub':'ann'}";
const NOBODY: &str = "{}";

/// The client, what it sends, the code, the channel, and the cause. A client that sends a connect has not connected
/// yet.
const CASES: [(&str, &str, u32, &str, &str); 53] = [
    ("", r#""connect":{}"#, 3501, "", "no token was sent, and client.allow_anonymous_connect_without_token is off"),
    ("", r#""connect":{"token":"forged"}"#, 3500, "", "the token is forged"),
    ("", r#""connect":{"token":"expired"}"#, 109, "", "exp of the token has passed"),
    ("", r#""connect":{"token":"early"}"#, 100, "", "the keys have not come yet"),
    ("", r#""connect":{"token":"{'expire_at':1}"}"#, 110, "", "expire_at of the token has passed"),
    (
        "",
        r#""connect":{"token":"{'channel':'a'}"}"#,
        3500,
        "",
        "a subscription token was sent where a connection token is needed",
    ),
    (
        "",
        r#""connect":{"token":"{'sub':'\\u0007'}"}"#,
        3500,
        "",
        "sub of the token is too long or has control characters",
    ),
    (
        "",
        r#""connect":{"token":"{'channels':['shut:a','shut:b']}"}"#,
        3505,
        "*",
        "the token names more channels than client.channel_limit",
    ),
    (
        "",
        r#""connect":{"token":"{'channels':['x:a']}"}"#,
        3501,
        "x:a",
        "the namespace of the channel is not in channel.namespaces",
    ),
    (
        "",
        r#""connect":{"token":"{'channels':['']}"}"#,
        3501,
        "",
        "the token names a channel that cannot be subscribed to",
    ),
    (ANN, r#""refresh":{"token":"forged"}"#, 3500, "", "the token is forged"),
    (ANN, r#""refresh":{"token":"expired"}"#, 3005, "", "exp of the token has passed"),
    (ANN, r#""refresh":{"token":"early"}"#, 100, "", "the keys have not come yet"),
    (
        ANN,
        r#""refresh":{"token":"{}"}"#,
        3500,
        "",
        "sub of the token is not the user of the connection, or client is not its client id",
    ),
    (ANN, r#""subscribe":{"channel":"x:a"}"#, 102, "x:a", "the namespace of the channel is not in channel.namespaces"),
    (
        ANN,
        r#""subscribe":{"channel":"shut:a"}"#,
        103,
        "shut:a",
        "the namespace lacks allow_subscribe_for_client, and no subscription token was sent",
    ),
    (
        ANN,
        r#""subscribe":{"channel":"user:a#bob"}"#,
        103,
        "user:a#bob",
        "the channel is limited to users (channel.user_boundary), and its namespace lacks allow_user_limited_channels",
    ),
    (
        ANN,
        r#""subscribe":{"channel":"$user:a"}"#,
        103,
        "$user:a",
        "the channel is private (channel.private_prefix): it needs a subscription token",
    ),
    (
        NOBODY,
        r#""subscribe":{"channel":"user:a"}"#,
        103,
        "user:a",
        "the namespace lacks allow_subscribe_for_anonymous, and the client is anonymous",
    ),
    (
        NOBODY,
        r#""subscribe":{"channel":"shut:a"}"#,
        103,
        "shut:a",
        "the namespace lacks allow_subscribe_for_client, and no subscription token was sent",
    ),
    (
        ANN,
        r#""subscribe":{"channel":"$registry:devices"}"#,
        103,
        "$registry:devices",
        "the scope lacks allow_watch_for_client (or allow_for_anonymous, and the client is anonymous)",
    ),
    (ANN, r#""subscribe":{"channel":"user:a","token":"expired"}"#, 109, "user:a", "exp of the token has passed"),
    (ANN, r#""subscribe":{"channel":"user:a","token":"forged"}"#, 103, "user:a", "the token is forged"),
    (ANN, r#""subscribe":{"channel":"user:a","token":"early"}"#, 100, "user:a", "the keys have not come yet"),
    (ANN, r#""sub_refresh":{"channel":"user:a","token":"early"}"#, 100, "user:a", "the keys have not come yet"),
    (ANN, r#""sub_refresh":{"channel":"user:a"}"#, 107, "user:a", "sub_refresh has no token"),
    (ANN, r#""subscribe":{"channel":""}"#, 3501, "", "the command names no channel"),
    (ANN, r#""unsubscribe":{"channel":""}"#, 3501, "", "the command names no channel"),
    (ANN, r#""history":{"channel":""}"#, 3501, "", "the command names no channel"),
    (ANN, r#""subscribe":{"channel":"user:a","delta":"x"}"#, 3501, "user:a", "delta of the subscribe is not fossil"),
    (
        ANN,
        r#""subscribe":{"channel":"user:a","tf":{"key":"a","cmp":"ex"}}"#,
        107,
        "user:a",
        "the subscribe has tf, and the namespace lacks allow_tags_filter",
    ),
    (
        ANN,
        r#""subscribe":{"channel":"full:a","tf":{"key":"a","cmp":"ex"},"delta":"fossil"}"#,
        107,
        "full:a",
        "the subscribe has tf and delta: remove one of them",
    ),
    (
        ANN,
        r#""subscribe":{"channel":"full:a","tf":{"key":"a","cmp":"x"}}"#,
        107,
        "full:a",
        "tf of the subscribe is not a filter, or it is larger than channel.tags_filter_max_nodes or \
         channel.tags_filter_max_size",
    ),
    (ANN, r#""publish":{"channel":"full:a"}"#, 107, "full:a", "the publish has no data"),
    (
        ANN,
        r#""subscribe":{"channel":"user:a","token":"{'sub':'ann','channel':'user:b'}"}"#,
        3500,
        "user:a",
        "the subscription token is for another channel",
    ),
    (
        ANN,
        r#""subscribe":{"channel":"user:a","token":"{'channel':'user:a'}"}"#,
        3500,
        "user:a",
        "sub of the token is not the user of the connection, or client is not its client id",
    ),
    (
        ANN,
        r#""sub_refresh":{"token":"{'sub':'ann','channel':'user:b'}"}"#,
        103,
        "user:b",
        "the client does not subscribe to this channel",
    ),
    (
        ANN,
        r#""publish":{"channel":"none:a","data":1}"#,
        103,
        "none:a",
        "the namespace lacks allow_publish_for_client, or allow_publish_for_subscriber for a client \
         that subscribes",
    ),
    (
        ANN,
        r#""history":{"channel":"none:a"}"#,
        103,
        "none:a",
        "the namespace lacks allow_history_for_client, or allow_history_for_subscriber for a client \
         that subscribes",
    ),
    (
        ANN,
        r#""presence":{"channel":"none:a"}"#,
        103,
        "none:a",
        "the namespace lacks allow_presence_for_client, or allow_presence_for_subscriber for a client \
         that subscribes",
    ),
    (
        NOBODY,
        r#""publish":{"channel":"full:a","data":1}"#,
        103,
        "full:a",
        "the namespace lacks allow_publish_for_anonymous, and the client is anonymous",
    ),
    (
        NOBODY,
        r#""history":{"channel":"full:a"}"#,
        103,
        "full:a",
        "the namespace lacks allow_history_for_anonymous, and the client is anonymous",
    ),
    (
        NOBODY,
        r#""presence_stats":{"channel":"full:a"}"#,
        103,
        "full:a",
        "the namespace lacks allow_presence_for_anonymous, and the client is anonymous",
    ),
    (
        ANN,
        r#""history":{"channel":"shut:a"}"#,
        108,
        "shut:a",
        "history_size and history_ttl are not set in the namespace of the channel",
    ),
    (ANN, r#""presence":{"channel":"shut:a"}"#, 108, "shut:a", "presence is off in the namespace of the channel"),
    (
        ANN,
        r#""rpc":{"method":"registry.names","data":{"scope":"devices"}}"#,
        103,
        "",
        "the scope lacks allow_lookup_for_client",
    ),
    (
        NOBODY,
        r#""rpc":{"method":"registry.names","data":{"scope":"devices"}}"#,
        103,
        "",
        "the client is anonymous, and the scope lacks allow_for_anonymous",
    ),
    (
        ANN,
        r#""rpc":{"method":"registry.register","data":{"scope":"devices","name":"bike"}}"#,
        103,
        "",
        "allow_register of the scope and register of the token lack the name",
    ),
    (
        ANN,
        r#""rpc":{"method":"registry.lookup","data":{"scope":"devices"}}"#,
        107,
        "",
        "a parameter of the RPC is missing or wrong",
    ),
    (
        "",
        r#""connect":{"token":"{'sub':'ann','names':[{'scope':'devicez','name':'a'}]}"}"#,
        3501,
        "",
        "names or groups of the client cannot be used: their scope must be in registry.scopes",
    ),
    (ANN, r#""rpc":{"method":"registry.names","data":{"scope":"x"}}"#, 4003, "", "the scope is not in registry.scopes"),
    (
        ANN,
        r#""rpc":{"method":"x"}"#,
        108,
        "",
        "no RPC has this name (registry.…, reply, inbox.ack, stats.track, reactions.add), and proxy_enabled is off \
         for it",
    ),
    (
        ANN,
        r#""subscribe":{"channel":"LONG"}"#,
        107,
        "SHORT",
        "the name of the channel is longer than channel.max_length",
    ),
];

#[test]
fn the_log_says_why_and_the_client_is_told_where_it_may() {
    // A character of two bytes is at the position where a log cuts the name.
    let long = format!("user:{}é{}", "x".repeat(58), "x".repeat(200));
    for (claims, command, code, channel, cause) in CASES {
        for is_told in [false, true] {
            let mut story = Story::with(|settings| {
                node(settings);
                settings.client.tell_refusal_cause = is_told;
            });
            let command = format!("{{\"id\":2,{}}}", command.replace("LONG", &long));
            story.open("client", TransportMode::Duplex);
            if !claims.is_empty() {
                story.connect("client", claims);
            }
            story.say("client", &command);
            let received = story.received("client").join("");
            let refused = story.refused("client").remove(0);
            assert_eq!((refused.code, refused.cause), (code, cause), "{command}");
            if channel != "*" {
                assert_eq!(&*refused.channel, channel.replace("SHORT", &long[..63]), "{command}");
            }
            let method = [
                "registry.names in scope devices",
                "registry.register in scope devices",
                "registry.lookup: name in scope devices",
                "registry.names in scope x",
                "connect in scope devicez",
                "x",
                "",
            ];
            let has_method = command.contains(r#""rpc""#) || command.contains("devicez");
            assert!(method.contains(&&*refused.method) && refused.method.is_empty() != has_method, "{command}");
            let start = if (3000..4000).contains(&code) {
                format!("disconnect {code} ")
            } else {
                format!(r#"{{"id":2,"error":{{"code":{code},"#)
            };
            assert!(received.starts_with(&start), "{command}: {received}");
            // The reason of a disconnect has at most 123 bytes.
            let shown = if start.starts_with("disconnect") { &cause[..cause.len().min(100)] } else { cause };
            assert_eq!(received.contains(shown), is_told, "{command}: {received}");
            let reason = received.strip_prefix(&start).filter(|_| start.starts_with("disconnect"));
            assert!(reason.is_none_or(|reason| reason.len() <= 123), "{received}");
        }
    }
}

#[test]
fn a_remote_client_is_told_that_it_is_not_of_this_machine() {
    let mut story = Story::with(|settings| {
        settings.client.anonymous_on_loopback_only = true;
        settings.client.tell_refusal_cause = true;
    });
    story.open_from("client", TransportMode::Duplex, false);
    story.play(
        "client> {\"id\":1,\"connect\":{}}\n\
         client< disconnect 3501 bad request: no token was sent, and only clients of this machine need none \
         (client.anonymous_on_loopback_only)",
    );
}

#[test]
fn a_token_with_a_payload_that_cannot_be_is_refused() {
    let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
    for (claims, cause) in [
        (format!("'info':{deep}"), "info of the token cannot be used"),
        (format!("'subs':{{'shut:a':{{'info':{deep}}}}}"), "info or data of the token's subs cannot be used"),
        (format!("'subs':{{'shut:a':{{'data':{deep}}}}}"), "info or data of the token's subs cannot be used"),
    ] {
        let mut story = Story::with(node);
        assert_eq!(story.code("client", &format!(r#"{{"id":1,"connect":{{"token":"{{{claims}}}"}}}}"#)), 3500);
        assert_eq!(story.refused("client").remove(0).cause, cause);
    }
    let mut story = Story::with(node);
    story.connect("client", "{'sub':'ann'}");
    let token = format!("{{'sub':'ann','channel':'user:a','info':{deep}}}");
    assert_eq!(
        story.code("client", &format!(r#"{{"id":2,"subscribe":{{"channel":"user:a","token":"{token}"}}}}"#)),
        107
    );
}

#[test]
fn every_refusal_has_a_line_and_what_only_comes_out_so_has_none() {
    let mut story = Story::with(|settings| {
        node(settings);
        settings.client.channel_limit = 100;
        settings.scope("open", |scope| scope.allow_lookup_for_client = true);
    });
    story.connect("client", ANN);
    for (command, code, causes) in [
        (r#"{"id":2,"subscribe":{"channel":"user:a","type":1}}"#, 108, &["not available"][..]),
        (
            r#"{"id":3,"subscribe":{"channel":"user:\n"}}"#,
            107,
            &["the name of the channel is empty, longer than channel.max_length, has control characters, \
               or does not fit channel_regex"],
        ),
        (r#"{"id":4,"subscribe":{"channel":"user:a"}}"#, 0, &[]),
        (r#"{"id":5,"subscribe":{"channel":"user:a"}}"#, 105, &[]),
        (r#"{"id":6,"rpc":{"method":"registry.lookup","data":{"scope":"open","name":"nobody"}}}"#, 4002, &[]),
    ] {
        assert_eq!(story.code("client", command), code, "{command}");
        let found: Vec<_> = story.refused("client").iter().map(|refused| refused.cause).collect();
        assert_eq!(found, causes, "{command}");
    }
}

#[test]
fn a_connection_that_may_not_come_back_has_a_line_and_any_other_has_none() {
    for (command, code, cause) in [
        ("x", 3501, "the input is not a command of the client protocol"),
        (r#"{"id":2,"send":{}}"#, 3508, "not available"),
    ] {
        let mut story = Story::with(node);
        story.connect("client", ANN);
        assert_eq!(story.code("client", command), u64::from(code));
        let found: Vec<_> = story.refused("client").iter().map(|refused| (refused.code, refused.cause)).collect();
        assert_eq!(found, [(code, cause)]);
    }
    let mut story = Story::with(node);
    story.connect("client", ANN);
    for expected in ["ping", "disconnect 3012 no pong"] {
        story.at(story.deadline("client"));
        assert_eq!(story.received("client"), [expected]);
    }
    assert_eq!(story.refused("client"), []);
}
