//! The `channel` part of the configuration.

use std::time::Duration;

use super::options::ChannelOptions;
use crate::hook::ChannelProxySettings;
use crate::setting::SOME;

/// A configured namespace, with the options of its channels.
#[derive(Debug, Clone, Default)]
pub struct Namespace {
    /// The part of a channel's name before the boundary.
    pub name: String,
    /// The options of the namespace's channels.
    pub options: ChannelOptions,
}

settings! {
    /// The `channel` part of the configuration: options by namespace, and how names are written.
    pub struct ChannelSettings {
        /// How long offset and epoch are kept after a channel's last use, if its namespace does not set it.
        key history_meta_ttl: Duration = Duration::from_hours(720);
        /// The greatest length of a channel name, bytes.
        key max_length: usize = 255, SOME;
        /// Channels whose names begin with this prefix need a subscription token. Empty: there are no such channels.
        key private_prefix: String = "$";
        /// Separates the namespace from the rest of a channel's name.
        key namespace_boundary: String = ":";
        /// Separates a channel's name from the users that the channel is limited to.
        key user_boundary: String = "#";
        /// Separates the users that a channel is limited to. Empty: a channel is limited to one user.
        key user_separator: String = ",";
        /// The greatest length of a publication's `idempotency_key` and `version_epoch`, bytes. Longer ones are refused
        /// with 107.
        own idempotency_key_max_length: usize = 255;
        /// How many nodes and values, together, one subscriber's filter of tags may have. Larger filters are refused
        /// with 107.
        own tags_filter_max_nodes: usize = 64, SOME;
        /// How many bytes the keys, comparisons and values of one subscriber's filter of tags may have together. Larger
        /// filters are refused with 107.
        own tags_filter_max_size: usize = 4_096, SOME;
        /// How many empty channels with history this node remembers, with their epochs. Such a channel was read or
        /// subscribed to, but has no publications and no subscribers. The oldest is forgotten first.
        own empty_channels_max: usize = 10_000;
        /// Hooks for channels: before a subscribe or publish, and when a subscription expires.
        section proxy: ChannelProxySettings = ChannelProxySettings::default();
        /// The options of channels whose name has no namespace.
        plain without_namespace: ChannelOptions = ChannelOptions::default();
        /// The configured namespaces.
        plain namespaces: Vec<Namespace> = Vec::new();
        /// A channel of an unknown namespace has the options of channels without one: on the server of a developer, who
        /// tries channels before writing a configuration.
        plain accepts_unknown_namespaces: bool = false;
    }
}
