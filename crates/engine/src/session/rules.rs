//! The rules by which a session decides. A session only wants to know what they decide together; `touchline explain`
//! also what each of them has said.

/// What a client may be permitted to do in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelAction {
    /// Publish.
    Publish,
    /// Read the history.
    History,
    /// Ask for presence.
    Presence,
}

/// A rule by which a session decides whether a client may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionRule {
    /// The client is connected, whoever has said so.
    Given,
    /// The connection token. It decides alone.
    ConnectionToken,
    /// The backend says who the client is.
    ConnectHook,
    /// A certificate or a trusted proxy names the user.
    NamedUser,
    /// Clients without a token are let in as the anonymous user.
    AnonymousConnect,
    /// What the token, or the backend, says of the connection besides its user.
    ConnectionClaims,
    /// The name of the channel can be used.
    ChannelName,
    /// The namespace of the channel exists.
    ChannelNamespace,
    /// The client subscribes to the channel already.
    Subscribed,
    /// The subscription token. It decides alone.
    SubscriptionToken,
    /// The channel carries the changes of a scope of the registry.
    WatchedScope,
    /// The channel is private.
    PrivateChannel,
    /// The channel names its users.
    UserLimitedChannel,
    /// The backend says whether the client may subscribe.
    SubscribeHook,
    /// The namespace lets clients subscribe.
    SubscribeForClient,
    /// The client has as many channels as it may have.
    ChannelLimit,
    /// The namespace has a history.
    HistoryKept,
    /// The namespace has presence.
    PresenceKept,
    /// The backend says whether the client may publish.
    PublishHook,
    /// The namespace permits the action to clients.
    ForClient(ChannelAction),
    /// The namespace permits the action to subscribers.
    ForSubscriber(ChannelAction),
    /// The capabilities of the connection.
    ConnectionCaps,
    /// What the subscription token, or the backend, permits in the channel.
    SubscriptionAllow,
    /// The method is one of the server's own.
    OwnMethod,
    /// The scope of the registry, or the token, permits the method.
    ScopePermission,
    /// The namespace of the method exists.
    RpcNamespace,
    /// The backend answers the method.
    RpcHook,
    /// Everything is open.
    Insecure,
    /// No other rule permits it.
    Default,
    /// The command itself cannot be carried out.
    Command,
}

impl DecisionRule {
    /// Its name, for people.
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

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleSays {
    /// Nothing: the next rule is asked.
    Nothing,
    /// It is permitted.
    Allows,
    /// It is not.
    Refuses,
    /// The backend decides.
    Asks,
}

/// Is told what each rule says, in the order in which they are asked. `()` notes nothing, and costs nothing.
pub(super) trait RuleLog {
    /// Notes what a rule says.
    fn note(&mut self, rule: DecisionRule, says: RuleSays);

    /// The same for a rule that can say one thing. Returns whether it does.
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

    /// The same for a rule by which a backend is asked.
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
