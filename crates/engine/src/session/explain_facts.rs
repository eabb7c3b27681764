//! What a rule depends on: keys of the configuration and claims, with their values.

use std::borrow::Cow;

use serde_json::Value;

use super::context::Context;
use super::registry::MethodOwner;
use super::rules::DecisionRule;
use super::state::Session;
use crate::caps::Capability;
use crate::claims::{connection_claims, subscription_claims};
use crate::directory;
use crate::namespace::{ChannelOptions, WATCH_CHANNEL_PREFIX};
use crate::setting::{SettingsTable, ValueKind};

/// A key of the configuration, or a claim, that a rule depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepFact {
    /// The key with its place in the configuration, or the name of the claim.
    pub name: Cow<'static, str>,
    /// The value; null = there is none. It is never a secret.
    pub value: Value,
}

/// The subject of a decision. Fields that do not apply are empty or `None`.
#[derive(Clone, Copy)]
pub(super) struct StepSubject<'a> {
    pub(super) session: &'a Session,
    pub(super) channel: &'a str,
    /// The options of the channel's namespace.
    pub(super) options: Option<&'a ChannelOptions>,
    /// The capability that must be granted.
    pub(super) wanted: Capability,
    pub(super) method: &'a str,
    /// The data of the method call, JSON.
    pub(super) data: &'a str,
    pub(super) token: &'a str,
}

impl<'a> StepSubject<'a> {
    /// A subject for this session, with all other fields empty.
    pub(super) fn of(session: &'a Session) -> Self {
        let wanted = Capability::default();
        StepSubject { session, channel: "", options: None, wanted, method: "", data: "", token: "" }
    }

    /// The facts that a rule depends on.
    pub(super) fn facts(&self, rule: DecisionRule, context: &Context<'_>) -> Vec<StepFact> {
        match rule {
            DecisionRule::ConnectionToken => self.of_connection_token(context),
            DecisionRule::ConnectHook => of_client(&["proxy.connect.enabled"], context),
            DecisionRule::NamedUser => vec![fact("user", text_or_none(&self.session.user))],
            DecisionRule::AnonymousConnect => of_open_door("allow_anonymous_connect_without_token", context),
            DecisionRule::Insecure => of_open_door("insecure", context),
            DecisionRule::ChannelLimit => of_client(&["channel_limit"], context),
            DecisionRule::SubscriptionToken => self.of_subscription_token(context),
            DecisionRule::ConnectionCaps => vec![fact("caps", self.caps())],
            DecisionRule::SubscriptionAllow => vec![fact("allow", self.allow(context))],
            DecisionRule::WatchedScope if self.wanted == Capability::PUBLISH => {
                vec![fact("channel", self.channel.into())]
            }
            DecisionRule::WatchedScope => self.of_watched_scope(context),
            DecisionRule::OwnMethod => vec![fact("method", self.method.into())],
            DecisionRule::RpcNamespace | DecisionRule::RpcHook => self.of_method(rule, context),
            DecisionRule::ScopePermission => self.of_scope(context),
            DecisionRule::ChannelName => {
                let mut facts = vec![fact("channel", self.channel.into())];
                facts.extend(keys_of(context.node.namespaces.settings(), "channel.", &["max_length"]));
                facts
            }
            DecisionRule::Subscribed => vec![fact("channel", self.channel.into())],
            DecisionRule::PrivateChannel => {
                let mut facts = keys_of(context.node.namespaces.settings(), "channel.", &["private_prefix"]);
                if context.node.namespaces.is_private(self.channel) && self.session.is_insecure(context) {
                    facts.extend(of_client(&["insecure"], context));
                }
                facts
            }
            DecisionRule::ChannelNamespace
            | DecisionRule::UserLimitedChannel
            | DecisionRule::SubscribeHook
            | DecisionRule::SubscribeForClient
            | DecisionRule::HistoryKept
            | DecisionRule::PresenceKept
            | DecisionRule::PublishHook
            | DecisionRule::ForClient(_)
            | DecisionRule::ForSubscriber(_) => self.of_namespace(rule, context),
            DecisionRule::Given | DecisionRule::ConnectionClaims | DecisionRule::Default | DecisionRule::Command => {
                Vec::new()
            }
        }
    }

    /// The claims of a valid connection token; an invalid token has no facts.
    fn of_connection_token(&self, context: &Context<'_>) -> Vec<StepFact> {
        if self.token.is_empty() {
            return vec![fact("token", Value::Null)];
        }
        match connection_claims(&*context.node.verifier, self.token, context.now_s()) {
            Ok(claims) => vec![fact("sub", claims.sub.into())],
            Err(_) => Vec::new(),
        }
    }

    /// The claims of a valid subscription token; an invalid token has no facts.
    fn of_subscription_token(&self, context: &Context<'_>) -> Vec<StepFact> {
        if self.token.is_empty() {
            return vec![fact("token", Value::Null)];
        }
        match subscription_claims(&*context.node.verifier, self.token, context.now_s()) {
            Ok(claims) => vec![fact("sub", claims.sub.into()), fact("channel", claims.channel.into())],
            Err(_) => Vec::new(),
        }
    }

    /// The pattern of the capabilities that grants the wanted capability.
    fn caps(&self) -> Value {
        let Some(caps) = self.session.hooks().and_then(|state| state.caps.as_ref()) else { return Value::Null };
        match caps.described(self.channel, self.wanted) {
            Some(pattern) => pattern.into(),
            None => format!("{} for other channels or actions", caps.count()).into(),
        }
    }

    /// The capabilities that the subscription's `allow` grants.
    fn allow(&self, context: &Context<'_>) -> Value {
        let subscription = self.session.find(self.channel, context.hub);
        let extra = subscription.and_then(|index| self.session.subscriptions[index].extra.as_ref());
        extra.map_or(Value::Null, |extra| text_or_none(&extra.allow.words().join(" ")))
    }

    fn of_namespace(&self, rule: DecisionRule, context: &Context<'_>) -> Vec<StepFact> {
        let namespaces = &context.node.namespaces;
        let name = namespaces.namespace_of(self.channel);
        let Some(options) = self.options else {
            return vec![fact("channel.namespaces", name.into())];
        };
        let place = match name {
            "" => "channel.without_namespace".to_owned(),
            name => format!("channel.namespaces[{name}]"),
        };
        let prefix = format!("{place}.");
        // The options for anonymous clients matter only if the client is anonymous.
        let count = 1 + usize::from(self.session.user.is_empty());
        let of_options = |names: &[&str]| keys_of(options, &prefix, names);
        match rule {
            DecisionRule::UserLimitedChannel => {
                let mut facts = keys_of(namespaces.settings(), "channel.", &["user_boundary"]);
                if namespaces.is_user_allowed(self.channel, &self.session.user).is_some() {
                    facts.extend(of_options(&["allow_user_limited_channels"]));
                    let is_open = self.session.is_insecure(context);
                    facts.extend(is_open.then(|| of_client(&["insecure"], context)).into_iter().flatten());
                }
                facts
            }
            DecisionRule::SubscribeHook => {
                let names = ["subscribe_proxy_enabled", "subscribe_proxy_name"];
                of_options(&names[..1 + usize::from(options.subscribe_proxy_enabled)])
            }
            DecisionRule::PublishHook => {
                let names = ["publish_proxy_enabled", "publish_proxy_name"];
                of_options(&names[..1 + usize::from(options.publish_proxy_enabled)])
            }
            DecisionRule::SubscribeForClient => {
                of_options(&["allow_subscribe_for_client", "allow_subscribe_for_anonymous"][..count])
            }
            DecisionRule::HistoryKept => of_options(&["history_size", "history_ttl"]),
            DecisionRule::PresenceKept => of_options(&["presence"]),
            DecisionRule::ForClient(action) => {
                let [for_client, _, for_anonymous] = action.option_names();
                of_options(&[for_client, for_anonymous][..count])
            }
            DecisionRule::ForSubscriber(action) => {
                let [_, for_subscriber, for_anonymous] = action.option_names();
                let mut facts = of_options(&[for_subscriber, for_anonymous][..count]);
                let subscribes = self.session.find(self.channel, context.hub).is_some();
                facts.push(fact("subscribed", subscribes.into()));
                facts
            }
            _ => vec![fact("namespace", place.into())],
        }
    }

    fn of_watched_scope(&self, context: &Context<'_>) -> Vec<StepFact> {
        let scopes = &context.node.scopes;
        let name = self.channel.strip_prefix(WATCH_CHANNEL_PREFIX).unwrap_or_default();
        let Some(options) = scopes.find(name).and_then(|scope| scopes.options(scope)) else {
            return vec![fact("registry.scopes", Value::Null)];
        };
        let names = ["allow_watch_for_client", "allow_for_anonymous"];
        let count = 1 + usize::from(self.session.user.is_empty());
        keys_of(options, &format!("registry.scopes[{name}]."), &names[..count])
    }

    /// The namespace of a method that is not one of the server's own.
    fn of_method(&self, rule: DecisionRule, context: &Context<'_>) -> Vec<StepFact> {
        let rpc = &context.node.hooks.rpc;
        let namespace = rpc.namespaces.iter().find(|namespace| {
            rpc.resolve(self.method).is_some_and(|options| std::ptr::eq(options, &namespace.options))
        });
        let place = match namespace {
            Some(namespace) => format!("rpc.namespaces[{}]", namespace.name),
            None => "rpc.without_namespace".to_owned(),
        };
        match rpc.resolve(self.method) {
            None => vec![fact("rpc.namespaces", self.method.into())],
            Some(_) if rule == DecisionRule::RpcNamespace => vec![fact("namespace", place.into())],
            Some(options) => {
                let names = ["proxy_enabled", "proxy_name"];
                keys_of(options, &format!("{place}."), &names[..1 + usize::from(options.proxy_enabled)])
            }
        }
    }

    /// The options of a scope that permit a method, and the claim that can permit it too.
    fn of_scope(&self, context: &Context<'_>) -> Vec<StepFact> {
        let scopes = &context.node.scopes;
        let MethodOwner::Registry(Some(method)) = MethodOwner::of(self.method) else { return Vec::new() };
        let Ok(request) = directory::read(method, self.data, scopes) else { return Vec::new() };
        let Some((scope, names)) = directory::deciding_options(&request) else { return Vec::new() };
        let Some(options) = scopes.options(scope) else { return Vec::new() };
        let prefix = format!("registry.scopes[{}].", options.name);
        let mut facts = keys_of(options, &prefix, names);
        if self.session.user.is_empty() {
            facts.extend(keys_of(options, &prefix, &["allow_for_anonymous"]));
        }
        if names.contains(&"allow_register") {
            let granted = self.session.rare.iter().flat_map(|rare| &rare.granted);
            let of_scope = granted.filter(|(scope, _)| **scope == *options.name).map(|(_, pattern)| &**pattern);
            facts.push(fact("register", text_or_none(&of_scope.collect::<Vec<_>>().join(" "))));
        }
        facts
    }
}

fn fact(name: impl Into<Cow<'static, str>>, value: Value) -> StepFact {
    StepFact { name: name.into(), value }
}

fn text_or_none(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

/// The values of keys of the `client` settings.
fn of_client(names: &[&str], context: &Context<'_>) -> Vec<StepFact> {
    keys_of(&context.node.client, "client.", names)
}

/// The same for a key that accepts any client, possibly only from this machine.
fn of_open_door(name: &str, context: &Context<'_>) -> Vec<StepFact> {
    let is_local_only = context.node.client.anonymous_on_loopback_only;
    of_client(&[name, "anonymous_on_loopback_only"][..1 + usize::from(is_local_only)], context)
}

/// The values of some keys of a table.
fn keys_of(table: &dyn SettingsTable, prefix: &str, names: &[&str]) -> Vec<StepFact> {
    let keys = table.keys();
    let found = names.iter().filter_map(|name| keys.iter().find(|key| key.path == *name));
    let facts: Vec<StepFact> = found
        .map(|key| {
            let value = match key.kind {
                ValueKind::Boolean | ValueKind::Integer(..) => serde_json::from_str(&key.default).ok(),
                _ => None,
            };
            fact(format!("{prefix}{}", key.path), value.unwrap_or_else(|| key.default.as_str().into()))
        })
        .collect();
    debug_assert_eq!(facts.len(), names.len(), "the table has every key: {names:?}");
    facts
}
