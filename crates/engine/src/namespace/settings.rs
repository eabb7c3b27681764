//! The `channel` part of the configuration.

use std::time::Duration;

use super::options::ChannelOptions;
use crate::hook::ChannelProxySettings;
use crate::setting::SOME;

/// A namespace of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Namespace {
    /// The part of a channel's name before the boundary.
    pub name: String,
    /// The options of its channels.
    pub options: ChannelOptions,
}

settings! {
    /// The `channel` part of the configuration: options by namespace, and how names are written.
    pub struct ChannelSettings {
        /// How long offset and epoch outlive a channel's last use, where its namespace doesn't say.
        key history_meta_ttl: Duration = Duration::from_hours(720);
        /// Longest channel name, bytes.
        key max_length: usize = 255, SOME;
        /// Channels that begin with it need a subscription token. Empty: there are none.
        key private_prefix: String = "$";
        /// Separates the namespace from the rest of a channel's name.
        key namespace_boundary: String = ":";
        /// Separates a channel's name from the users it is limited to.
        key user_boundary: String = "#";
        /// Separates the users that a channel is limited to. Empty: a channel is limited to one user.
        key user_separator: String = ",";
        /// Longest `idempotency_key` and `version_epoch` of a publication, bytes; longer ones are refused with 107.
        own idempotency_key_max_length: usize = 255;
        /// Nodes and values, together, of one subscriber's filter of tags; larger ones are refused with 107.
        own tags_filter_max_nodes: usize = 64, SOME;
        /// Keys, comparisons and values of one subscriber's filter of tags, together, bytes; larger ones are refused
        /// with 107.
        own tags_filter_max_size: usize = 4_096, SOME;
        /// Channels with history to which nobody has published or is subscribed, and whose epoch this node remembers
        /// because they were looked at; the oldest is forgotten first.
        own empty_channels_max: usize = 10_000;
        /// Hooks about channels.
        section proxy: ChannelProxySettings = ChannelProxySettings::default();
        /// Options of channels whose name has no namespace.
        plain without_namespace: ChannelOptions = ChannelOptions::default();
        /// The configured namespaces.
        plain namespaces: Vec<Namespace> = Vec::new();
    }
}
