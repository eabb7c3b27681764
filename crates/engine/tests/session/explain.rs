//! What a session reports about its decisions is what it decides, for any settings, tokens and channels.

use proptest::prelude::*;
use serde_json::Value;
use touchline_engine::hook::{DEFAULT_PROXY, HookKind};
use touchline_engine::session::{
    ChannelAction, DecisionRule, ExplainedAction, ExplainedStep, ServerSubscription, StepVerdict, TransportMode,
};
use touchline_protocol::{Disconnect, Error};

use crate::story::{START_S, Settings, Story, with_history};
use crate::tokens::calm;

/// Channels of every kind.
const CHANNELS: [&str; 13] = [
    "chat:1",
    "chat:2",
    "plain",
    "$chat:1",
    "chat:#ann",
    "chat:x#bob,ann",
    "chat:#bob",
    "#ann",
    "$registry:devices",
    "$registry:nothing",
    "nowhere:1",
    "",
    "chat:\u{7}",
];
/// The capabilities that a token grants to a connection.
const CAPS: [&str; 6] = [
    "[]",
    "[{'channels':['chat:1'],'allow':['sub']}]",
    "[{'channels':['chat:*'],'match':'wildcard','allow':['pub','hst']}]",
    "[{'channels':['.*'],'match':'regex','allow':['sub','pub','prs','hst']}]",
    "[{'channels':['chat:2'],'allow':['pub']},{'channels':['*'],'match':'wildcard','allow':['prs']}]",
    "[{'channels':['plain','#ann','$chat:1'],'match':'exact','allow':['sub','pub']}]",
];
/// Subscription tokens. `<channel>` and `<user>` stand for those of the case.
const SUBSCRIPTION_TOKENS: [&str; 9] = [
    "",
    "{'sub':'<user>','channel':'<channel>'}",
    "{'sub':'<user>','channel':'<channel>','allow':['pub','hst','prs']}",
    "{'sub':'<user>','channel':'<channel>','allow':['all']}",
    "{'sub':'<user>','channel':'<channel>','exp':1}",
    "{'sub':'bob','channel':'<channel>'}",
    "{'sub':'<user>','channel':'chat:other'}",
    "expired",
    "forged",
];
const METHODS: [(&str, &str); 10] = [
    ("registry.lookup", "{\"scope\":\"devices\",\"name\":\"a\"}"),
    ("registry.register", "{\"scope\":\"devices\",\"name\":\"ann/a\"}"),
    ("registry.register", "{\"scope\":\"devices\",\"name\":\"free\"}"),
    ("registry.unregister", "{\"scope\":\"devices\",\"name\":\"a\"}"),
    ("registry.lookup", "{\"scope\":\"nothing\",\"name\":\"a\"}"),
    ("registry.lookup", "{}"),
    ("registry.nothing", "{}"),
    ("price", "{}"),
    ("shop:price", "{}"),
    ("nowhere:price", "{}"),
];

/// A case: switches by number, and one choice from each list.
#[derive(Debug, Clone)]
struct Case {
    switches: Vec<bool>,
    is_anonymous: bool,
    caps: usize,
    channel: usize,
    token: usize,
    /// How the client is already subscribed: not at all, by the server API, or by a token with `allow`.
    subscribed: usize,
    /// Subscribe, publish, history, presence, RPC.
    action: usize,
    method: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    (
        proptest::collection::vec(prop::bool::weighted(0.3), 26),
        prop::bool::weighted(0.3),
        (0..CAPS.len(), 0..CHANNELS.len(), 0..SUBSCRIPTION_TOKENS.len()),
        (0..3_usize, 0..5_usize, 0..METHODS.len()),
    )
        .prop_map(|(switches, is_anonymous, (caps, channel, token), (subscribed, action, method))| Case {
            switches,
            is_anonymous,
            caps,
            channel,
            token,
            subscribed,
            action,
            method,
        })
}

impl Case {
    fn user(&self) -> &'static str {
        if self.is_anonymous { "" } else { "ann" }
    }

    fn channel(&self) -> &'static str {
        CHANNELS[self.channel]
    }

    fn subscription_token(&self) -> String {
        SUBSCRIPTION_TOKENS[self.token].replace("<user>", self.user()).replace("<channel>", self.channel())
    }

    fn node(&self, settings: &mut Settings) {
        let on = |index: usize| self.switches[index];
        calm(settings);
        settings.client.insecure = on(0);
        settings.client.anonymous_on_loopback_only = on(1);
        settings.client.channel_limit = if on(2) { 1 } else { 128 };
        if on(3) {
            settings.channel.private_prefix = String::new();
        }
        if on(4) {
            settings.channel.user_boundary = String::new();
        }
        settings.scope("devices", |options| {
            options.allow_watch_for_client = on(5);
            options.allow_for_anonymous = on(6);
            options.allow_lookup_for_client = on(7);
            options.allow_register = if on(8) { vec!["{user}/*".into()] } else { Vec::new() };
        });
        let change = |options: &mut touchline_engine::ChannelOptions| {
            if !on(9) {
                with_history(options);
            }
            options.presence = !on(10);
            (options.subscribe_proxy_enabled, options.publish_proxy_enabled) = (on(11), on(12));
            options.allow_user_limited_channels = on(13);
            (options.allow_subscribe_for_client, options.allow_subscribe_for_anonymous) = (on(14), on(15));
            (options.allow_publish_for_client, options.allow_publish_for_subscriber) = (on(16), on(17));
            options.allow_publish_for_anonymous = on(18);
            (options.allow_history_for_client, options.allow_history_for_subscriber) = (on(19), on(20));
            options.allow_history_for_anonymous = on(21);
            (options.allow_presence_for_client, options.allow_presence_for_subscriber) = (on(22), on(23));
            options.allow_presence_for_anonymous = on(24);
            if on(11) && on(14) {
                options.subscribe_proxy_name = "other".into();
            }
        };
        settings.namespace("chat", change);
        change(&mut settings.channel.without_namespace);
    }

    fn story(&self) -> Story {
        let mut story = Story::with(|settings| self.node(settings));
        let rpc = &mut story.node.hooks.rpc;
        rpc.without_namespace.proxy_enabled = self.switches[25];
        rpc.namespaces.push(touchline_engine::hook::RpcNamespace { name: "shop".into(), ..Default::default() });
        rpc.namespaces[0].options.proxy_enabled = !self.switches[25];
        rpc.namespaces[0].options.proxy_name = "shops".into();
        let is_local = !self.switches[1] || self.switches[5];
        story.open_from("ann", TransportMode::Duplex, is_local);
        let register = "'register':{'devices':['free']}";
        let token = format!("{{'sub':'{}','caps':{},{register}}}", self.user(), CAPS[self.caps]);
        let connect = format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#);
        assert_eq!(story.code("ann", &connect), 0, "the client connects");
        let channel = self.channel();
        match self.subscribed {
            1 => {
                story.decide("ann", |session, context| {
                    let _ = session.server_subscribe(channel, ServerSubscription::default(), context);
                });
            }
            2 if !channel.is_empty() => {
                let token = format!("{{'sub':'{}','channel':'{channel}','allow':['pub','hst']}}", self.user());
                let command = format!(r#"{{"id":2,"subscribe":{{"channel":"{channel}","token":"{token}"}}}}"#);
                story.say("ann", &command.replace('\u{7}', "\\u0007"));
            }
            _ => {}
        }
        story.received("ann");
        story.refused("ann");
        story
    }

    fn command(&self) -> String {
        let channel = self.channel();
        let (method, data) = METHODS[self.method];
        let command = match self.action {
            0 => format!(r#"{{"id":9,"subscribe":{{"channel":"{channel}","token":"{}"}}}}"#, self.subscription_token()),
            1 => format!(r#"{{"id":9,"publish":{{"channel":"{channel}","data":{{}}}}}}"#),
            2 => format!(r#"{{"id":9,"history":{{"channel":"{channel}"}}}}"#),
            3 => format!(r#"{{"id":9,"presence":{{"channel":"{channel}"}}}}"#),
            _ => format!(r#"{{"id":9,"rpc":{{"method":"{method}","data":{data}}}}}"#),
        };
        command.replace('\u{7}', "\\u0007")
    }
}

/// What the session really decided about the last command. `before`: the number of requests until then.
fn decided(story: &mut Story, before: usize) -> StepVerdict {
    let (received, refused) = (story.received("ann"), story.refused("ann"));
    if let Some((_, call)) = story.questions.pop() {
        let backend = call.request.proxy().unwrap_or(DEFAULT_PROXY).into();
        return StepVerdict::Asked { hook: call.request.kind(), backend };
    }
    // What a home or the directory decides afterwards is not a decision of the session.
    if story.requests.len() + story.asks.len() > before && !received.iter().any(|text| text.starts_with("disconnect")) {
        return StepVerdict::Allowed;
    }
    let cause = refused.last().map(|report| report.cause);
    let Some(answer) = received.first() else { return StepVerdict::Nothing };
    if let Some(rest) = answer.strip_prefix("disconnect ") {
        let code: u16 = rest.split(' ').next().and_then(|code| code.parse().ok()).expect("a code");
        let known = Disconnect::ALL.iter().find(|why| why.code == code).expect("a code of the catalogue");
        return StepVerdict::disconnect(known.clone(), cause);
    }
    let reply: Value = serde_json::from_str(answer).expect("JSON");
    let Some(code) = reply["error"]["code"].as_u64() else { return StepVerdict::Allowed };
    let known = Error::ALL.iter().find(|error| u64::from(error.code) == code).expect("a code of the catalogue");
    // The name is not registered. No cause is noted, because the lookup was permitted.
    if *known == Error::NOT_REGISTERED && cause.is_none() {
        return StepVerdict::Allowed;
    }
    StepVerdict::error(*known, cause)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn the_steps_end_as_the_session_decides(case in cases()) {
        let mut story = case.story();
        let (method, data) = METHODS[case.method];
        let (channel, token) = (case.channel(), case.subscription_token());
        let action = match case.action {
            0 => ExplainedAction::Subscribe { channel, token: &token },
            1 => ExplainedAction::InChannel { action: ChannelAction::Publish, channel },
            2 => ExplainedAction::InChannel { action: ChannelAction::History, channel },
            3 => ExplainedAction::InChannel { action: ChannelAction::Presence, channel },
            _ => ExplainedAction::Rpc { method, data },
        };
        let before = story.requests.len() + story.asks.len();
        let mut steps = story.decide("ann", |session, context| session.explain(&action, context));
        prop_assert!(story.received("ann").is_empty() && story.questions.is_empty(), "to explain changes nothing");
        story.refused("ann");
        prop_assert_eq!(story.requests.len() + story.asks.len(), before);
        story.say("ann", &case.command());
        let verdict = decided(&mut story, before);
        prop_assert_eq!(ExplainedStep::verdict(&steps), &verdict, "{:#?}", steps);
        let count = steps.len();
        ExplainedStep::conclude(&mut steps, &action, &verdict);
        prop_assert_eq!(steps.len(), count, "the rules know all of it");
        // One step decides; only the limit of channels may withdraw a permission.
        let deciding = steps.iter().filter(|step| step.says != StepVerdict::Nothing).count();
        let is_limited = steps.last().is_some_and(|step| step.rule == DecisionRule::ChannelLimit);
        prop_assert_eq!(deciding, if is_limited { 2 } else { 1 }, "{:#?}", steps);
        prop_assert!(steps.last().is_some_and(|step| step.says != StepVerdict::Nothing));
    }
}

/// Connection tokens: the claims, and whether something other than the user is wrong with them.
const CONNECTION_TOKENS: [(&str, bool); 15] = [
    ("", false),
    ("{'sub':'ann'}", false),
    ("{'sub':''}", false),
    ("{'sub':'ann','caps':[{'channels':['a'],'allow':['sub']}],'labels':{'a':'b'}}", false),
    ("{'sub':'ann','channels':['chat:1'],'names':[{'scope':'devices','name':'a'}]}", false),
    ("expired", false),
    ("forged", false),
    ("{'sub':'ann','channel':'chat:1'}", false),
    ("{'sub':'ann','exp':1}", true),
    ("{'sub':'ann','caps':[{'channels':['a'],'allow':['all']}]}", true),
    ("{'sub':'ann','caps':[{'channels':['('],'match':'regex','allow':['sub']}]}", true),
    ("{'sub':'ann','meta':1}", true),
    ("{'sub':'ann','channels':['nowhere:1']}", true),
    ("{'sub':'ann','channels':['chat:1','chat:2']}", true),
    ("{'sub':'ann','names':[{'scope':'nowhere','name':'a'}]}", true),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_steps_of_a_connect_end_as_the_session_decides(
        switches in proptest::collection::vec(any::<bool>(), 8),
        token in 0..CONNECTION_TOKENS.len(),
        certified in prop::bool::weighted(0.3),
    ) {
        let (token, is_claims) = CONNECTION_TOKENS[token];
        let mut story = Story::with(|settings| {
            calm(settings);
            settings.namespace("chat", |_| ());
            settings.scope("devices", |_| ());
            let client = &mut settings.client;
            client.allow_anonymous_connect_without_token = switches[0];
            client.insecure = switches[1];
            client.anonymous_on_loopback_only = switches[2];
            client.disallow_anonymous_connection_tokens = switches[3];
            client.proxy.connect.enabled = switches[4];
            client.channel_limit = 1;
            client.token.hmac_secret_key = if switches[5] { "secret".into() } else { String::new() };
        });
        story.open_from("ann", TransportMode::Duplex, switches[6]);
        if certified {
            story.decide("ann", |session, _| session.certify("cid".into()));
        }
        let action = ExplainedAction::Connect { token };
        let mut steps = story.decide("ann", |session, context| session.explain(&action, context));
        story.refused("ann");
        story.say("ann", &format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#));
        let verdict = decided(&mut story, usize::MAX);
        let count = steps.len();
        ExplainedStep::conclude(&mut steps, &action, &verdict);
        prop_assert_eq!(ExplainedStep::verdict(&steps), &verdict, "{:#?}", steps);
        prop_assert_eq!(steps.len() > count, is_claims && !matches!(verdict, StepVerdict::Allowed));
        if token.is_empty() && switches[4] {
            let asked = StepVerdict::Asked { hook: HookKind::Connect, backend: DEFAULT_PROXY.into() };
            prop_assert_eq!(&verdict, &asked);
        }
    }
}

#[test]
fn a_step_names_what_it_goes_by() {
    let mut story = Story::with(|settings| {
        settings.namespace("chat", |options| options.allow_subscribe_for_client = true);
    });
    story.connect("ann", "{'sub':'ann','caps':[{'channels':['chat:*'],'match':'wildcard','allow':['pub']}]}");
    let exp = START_S + 60;
    let token = format!("{{'sub':'ann','channel':'chat:1','allow':['hst'],'exp':{exp}}}");
    story.say("ann", &format!(r#"{{"id":2,"subscribe":{{"channel":"chat:1","token":"{token}"}}}}"#));
    story.received("ann");
    let mut shown = |action| {
        let action = ExplainedAction::InChannel { action, channel: "chat:1" };
        let steps = story.decide("ann", |session, context| session.explain(&action, context));
        let of = |step: &ExplainedStep| {
            let facts: Vec<_> = step.facts.iter().map(|fact| format!("{} = {}", fact.name, fact.value)).collect();
            format!("{}: {}", step.rule.name(), facts.join(", "))
        };
        steps.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(
        shown(ChannelAction::Publish),
        [
            "namespace: namespace = \"channel.namespaces[chat]\"",
            "publish hook: channel.namespaces[chat].publish_proxy_enabled = false",
            "publish for clients: channel.namespaces[chat].allow_publish_for_client = false",
            "publish for subscribers: channel.namespaces[chat].allow_publish_for_subscriber = false, subscribed = true",
            "caps of the connection: caps = \"wildcard chat:*\"",
        ]
    );
    let history = shown(ChannelAction::History);
    assert_eq!(
        history,
        [
            "namespace: namespace = \"channel.namespaces[chat]\"",
            "history of the namespace: channel.namespaces[chat].history_size = 0, \
             channel.namespaces[chat].history_ttl = \"0s\"",
        ]
    );
}
