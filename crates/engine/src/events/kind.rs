//! The kinds of events: the configuration's words for them, and their CloudEvents types.

/// What an event reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum EventKind {
    /// A client has connected.
    Connected,
    /// A client's connection has ended.
    Disconnected,
    /// A client has subscribed to a channel.
    Subscribed,
    /// A client's subscription has ended.
    Unsubscribed,
    /// A channel has its first subscriber.
    Occupied,
    /// A channel has lost its last subscriber.
    Vacated,
    /// A user has its first connection.
    UserOnline,
    /// A user has lost its last connection.
    UserOffline,
    /// A name has an owner.
    NameRegistered,
    /// The metadata of a name was replaced.
    NameUpdated,
    /// A name has lost its owner.
    NameLost,
    /// A client has joined a group.
    MemberJoined,
    /// A client has left a group.
    MemberLeft,
    /// A message was not acknowledged in time.
    InboxExpired,
    /// Some events may be missing: the receiver's knowledge may be wrong.
    StateReset,
}

impl EventKind {
    /// The kinds that the configuration can select, in the order of their discriminants.
    pub const CONFIGURED: [EventKind; 14] = [
        EventKind::Connected,
        EventKind::Disconnected,
        EventKind::Subscribed,
        EventKind::Unsubscribed,
        EventKind::Occupied,
        EventKind::Vacated,
        EventKind::UserOnline,
        EventKind::UserOffline,
        EventKind::NameRegistered,
        EventKind::NameUpdated,
        EventKind::NameLost,
        EventKind::MemberJoined,
        EventKind::MemberLeft,
        EventKind::InboxExpired,
    ];

    /// The configuration's word for the kind; `None` = every backend gets it.
    pub fn word(self) -> Option<&'static str> {
        Some(match self {
            EventKind::Connected => "connected",
            EventKind::Disconnected => "disconnected",
            EventKind::Subscribed => "subscribed",
            EventKind::Unsubscribed => "unsubscribed",
            EventKind::Occupied => "occupied",
            EventKind::Vacated => "vacated",
            EventKind::UserOnline => "user_online",
            EventKind::UserOffline => "user_offline",
            EventKind::NameRegistered => "name_registered",
            EventKind::NameUpdated => "name_updated",
            EventKind::NameLost => "name_lost",
            EventKind::MemberJoined => "member_joined",
            EventKind::MemberLeft => "member_left",
            EventKind::InboxExpired => "inbox_expired",
            EventKind::StateReset => return None,
        })
    }

    /// The kind for a word of the configuration; `None` = there is no such kind.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::CONFIGURED.into_iter().find(|kind| kind.word() == Some(word))
    }

    /// The CloudEvents `type` of the kind.
    pub fn cloud_type(self) -> &'static str {
        match self {
            EventKind::Connected => "io.touchline.client.connected",
            EventKind::Disconnected => "io.touchline.client.disconnected",
            EventKind::Subscribed => "io.touchline.channel.subscribed",
            EventKind::Unsubscribed => "io.touchline.channel.unsubscribed",
            EventKind::Occupied => "io.touchline.channel.occupied",
            EventKind::Vacated => "io.touchline.channel.vacated",
            EventKind::UserOnline => "io.touchline.user.online",
            EventKind::UserOffline => "io.touchline.user.offline",
            EventKind::NameRegistered => "io.touchline.name.registered",
            EventKind::NameUpdated => "io.touchline.name.updated",
            EventKind::NameLost => "io.touchline.name.lost",
            EventKind::MemberJoined => "io.touchline.member.joined",
            EventKind::MemberLeft => "io.touchline.member.left",
            EventKind::InboxExpired => "io.touchline.inbox.expired",
            EventKind::StateReset => "io.touchline.state.reset",
        }
    }

    /// The kind for a CloudEvents `type`; `None` = there is no such kind.
    pub fn from_cloud_type(text: &str) -> Option<Self> {
        let mut all = Self::CONFIGURED.into_iter().chain([EventKind::StateReset]);
        all.find(|kind| kind.cloud_type() == text)
    }

    /// Whether the kind reports whether a channel has subscribers.
    pub fn is_of_channel_state(self) -> bool {
        matches!(self, EventKind::Occupied | EventKind::Vacated)
    }

    /// Whether the kind reports whether a user has connections.
    pub fn is_of_user_state(self) -> bool {
        matches!(self, EventKind::UserOnline | EventKind::UserOffline)
    }
}

/// A set of kinds of events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventKinds(u16);

impl EventKinds {
    /// The set as bits, for sharing it between threads.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// The set with these bits.
    pub fn from_bits(bits: u16) -> Self {
        EventKinds(bits)
    }

    /// The set with `kind` added.
    pub fn with(self, kind: EventKind) -> Self {
        EventKinds(self.0 | 1 << kind as u16)
    }

    /// The union of two sets.
    pub fn union(self, other: EventKinds) -> Self {
        EventKinds(self.0 | other.0)
    }

    /// Whether the set contains a kind.
    pub fn has(self, kind: EventKind) -> bool {
        self.0 & 1 << kind as u16 != 0
    }

    /// Whether some kind in the set reports whether channels have subscribers.
    pub fn has_channel_state(self) -> bool {
        self.has(EventKind::Occupied) || self.has(EventKind::Vacated)
    }

    /// Whether some kind in the set reports when subscriptions begin or end.
    pub fn has_subscriptions(self) -> bool {
        self.has(EventKind::Subscribed) || self.has(EventKind::Unsubscribed)
    }

    /// Whether some kind in the set reports whether users have connections.
    pub fn has_user_state(self) -> bool {
        self.has(EventKind::UserOnline) || self.has(EventKind::UserOffline)
    }
}

impl FromIterator<EventKind> for EventKinds {
    fn from_iter<I: IntoIterator<Item = EventKind>>(kinds: I) -> Self {
        kinds.into_iter().fold(EventKinds::default(), EventKinds::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_of_one_kind_and_comes_back() {
        for (index, kind) in EventKind::CONFIGURED.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(kind.word().and_then(EventKind::from_word), Some(kind));
            assert_eq!(EventKind::from_cloud_type(kind.cloud_type()), Some(kind));
            let only = EventKinds::from_iter([kind]);
            assert!(EventKind::CONFIGURED.into_iter().all(|other| only.has(other) == (other == kind)));
        }
        assert_eq!(EventKind::from_word("state_reset"), None);
        assert_eq!(EventKind::StateReset as usize, EventKind::CONFIGURED.len());
    }
}
