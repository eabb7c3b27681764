//! What nodes hold and count together: a channel that has subscribers, or a user that has connections.

use touchline_protocol::stream::ChannelName;

/// A channel or a user, as a key that nodes hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateKey {
    /// A channel: it is held while it has subscribers.
    Channel(ChannelName),
    /// A user: it is held while it has connections.
    User(Box<str>),
}

impl StateKey {
    /// The name of the channel, or the id of the user.
    pub fn name(&self) -> &str {
        match self {
            StateKey::Channel(name) => name,
            StateKey::User(user) => user,
        }
    }

    /// The key of the events' lane. It also distinguishes channels from users.
    pub fn partition_key(&self) -> String {
        match self {
            StateKey::Channel(name) => format!("channel:{name}"),
            StateKey::User(user) => format!("user:{user}"),
        }
    }

    /// Parses the text of a key; `None` = it is not a valid key.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            ("channel", name) => Some(StateKey::Channel(name.into())),
            ("user", user) => Some(StateKey::User(user.into())),
            _ => None,
        }
    }
}
