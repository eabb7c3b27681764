//! The rules by which a session decides. A session only needs their combined result; `touchline explain` also shows the
//! result of each rule.

/// An action that a client may be permitted to do in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelAction {
    /// Publish into the channel.
    Publish,
    /// Read the channel's history.
    History,
    /// Read the channel's presence.
    Presence,
}

/// A rule by which a session decides whether a client may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionRule {
    /// The client is already connected, no matter how it was authenticated.
    Given,
    /// The connection token. If there is one, it alone decides.
    ConnectionToken,
    /// The backend authenticates the client.
    ConnectHook,
    /// A certificate or a trusted proxy names the user.
    NamedUser,
    /// Clients without a token are accepted as the anonymous user.
    AnonymousConnect,
    /// What the token or the backend says about the connection in addition to its user.
    ConnectionClaims,
    /// The name of the channel is valid.
    ChannelName,
    /// The namespace of the channel exists.
    ChannelNamespace,
    /// The client is already subscribed to the channel.
    Subscribed,
    /// The subscription token. If there is one, it alone decides.
    SubscriptionToken,
    /// The channel carries the changes of a scope of the registry.
    WatchedScope,
    /// The channel is private, so it needs a subscription token.
    PrivateChannel,
    /// The channel's name lists its users.
    UserLimitedChannel,
    /// The backend decides whether the client may subscribe.
    SubscribeHook,
    /// The namespace allows clients to subscribe.
    SubscribeForClient,
    /// The client has reached its limit of channels.
    ChannelLimit,
    /// The namespace has a history.
    HistoryKept,
    /// The namespace has presence.
    PresenceKept,
    /// The backend decides whether the client may publish.
    PublishHook,
    /// The namespace permits the action to clients.
    ForClient(ChannelAction),
    /// The namespace permits the action to subscribers.
    ForSubscriber(ChannelAction),
    /// The capabilities of the connection.
    ConnectionCaps,
    /// What the subscription token or the backend permits in the channel.
    SubscriptionAllow,
    /// The method is one of the server's own.
    OwnMethod,
    /// The scope of the registry, or the token, permits the method.
    ScopePermission,
    /// The namespace of the method exists.
    RpcNamespace,
    /// The backend answers the method.
    RpcHook,
    /// The server runs in insecure mode, which permits everything.
    Insecure,
    /// No other rule permits the action.
    Default,
    /// The command itself cannot be executed.
    Command,
}

impl DecisionRule {
    /// The rule's name, for people.
    pub fn name(self) -> &'static str {
        match self {
            DecisionRule::Given => "connection",
            DecisionRule::ConnectionToken => "connection token",
            DecisionRule::ConnectHook => "connect hook",
            DecisionRule::NamedUser => "certificate or trusted proxy",
            DecisionRule::AnonymousConnect => "anonymous connect",
            DecisionRule::ConnectionClaims => "claims of the connection",
            DecisionRule::ChannelName => "channel name",
            DecisionRule::ChannelNamespace => "namespace",
            DecisionRule::Subscribed => "subscribed already",
            DecisionRule::SubscriptionToken => "subscription token",
            DecisionRule::WatchedScope => "watch channel",
            DecisionRule::PrivateChannel => "private channel",
            DecisionRule::UserLimitedChannel => "user-limited channel",
            DecisionRule::SubscribeHook => "subscribe hook",
            DecisionRule::SubscribeForClient => "subscribe for clients",
            DecisionRule::ChannelLimit => "channel limit",
            DecisionRule::HistoryKept => "history of the namespace",
            DecisionRule::PresenceKept => "presence of the namespace",
            DecisionRule::PublishHook => "publish hook",
            DecisionRule::ForClient(ChannelAction::Publish) => "publish for clients",
            DecisionRule::ForClient(ChannelAction::History) => "history for clients",
            DecisionRule::ForClient(ChannelAction::Presence) => "presence for clients",
            DecisionRule::ForSubscriber(ChannelAction::Publish) => "publish for subscribers",
            DecisionRule::ForSubscriber(ChannelAction::History) => "history for subscribers",
            DecisionRule::ForSubscriber(ChannelAction::Presence) => "presence for subscribers",
            DecisionRule::ConnectionCaps => "caps of the connection",
            DecisionRule::SubscriptionAllow => "allow of the subscription",
            DecisionRule::OwnMethod => "method of the server",
            DecisionRule::ScopePermission => "scope of the registry",
            DecisionRule::RpcNamespace => "namespace of the method",
            DecisionRule::RpcHook => "rpc hook",
            DecisionRule::Insecure => "insecure",
            DecisionRule::Default => "default",
            DecisionRule::Command => "command",
        }
    }
}

/// The result of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleSays {
    /// The rule does not decide: the next rule is checked.
    Nothing,
    /// The rule permits the action.
    Allows,
    /// The rule refuses the action.
    Refuses,
    /// The backend has to decide.
    Asks,
}

/// Receives the result of each rule, in the order in which they are checked. `()` notes nothing and costs nothing.
pub(super) trait RuleLog {
    /// Notes the result of a rule.
    fn note(&mut self, rule: DecisionRule, says: RuleSays);

    /// The same for a rule that has one possible result besides `Nothing`. Returns whether it has that result.
    fn decides(&mut self, rule: DecisionRule, word: RuleSays, does: bool) -> bool {
        self.note(rule, if does { word } else { RuleSays::Nothing });
        does
    }

    /// The same for a rule that can only permit.
    fn allows(&mut self, rule: DecisionRule, does: bool) -> bool {
        self.decides(rule, RuleSays::Allows, does)
    }

    /// The same for a rule that can only refuse.
    fn refuses(&mut self, rule: DecisionRule, does: bool) -> bool {
        self.decides(rule, RuleSays::Refuses, does)
    }

    /// The same for a rule that can only ask a backend.
    fn asks(&mut self, rule: DecisionRule, does: bool) -> bool {
        self.decides(rule, RuleSays::Asks, does)
    }
}

impl RuleLog for () {
    #[inline]
    fn note(&mut self, _: DecisionRule, _: RuleSays) {}
}

impl RuleLog for Vec<(DecisionRule, RuleSays)> {
    fn note(&mut self, rule: DecisionRule, says: RuleSays) {
        self.push((rule, says));
    }
}
