//! The `channel` part of the configuration.

use std::time::Duration;

use super::options::ChannelOptions;

/// A namespace of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Namespace {
    /// The part of a channel's name before the boundary.
    pub name: String,
    /// The options of its channels.
    pub options: ChannelOptions,
}

/// The `channel` part of the configuration: options by namespace, and how names are written.
#[derive(Debug, Clone)]
pub struct ChannelSettings {
    /// Options of channels whose name has no namespace.
    pub without_namespace: ChannelOptions,
    /// The configured namespaces.
    pub namespaces: Vec<Namespace>,
    /// Default for namespaces that leave `history_meta_ttl` at zero.
    pub history_meta_ttl: Duration,
    /// Longest channel name, bytes.
    pub max_length: usize,
    /// Channels that start with it can be subscribed only with a subscription token. Empty = no such channels.
    pub private_prefix: String,
    /// Separates the namespace from the rest of the name.
    pub namespace_boundary: String,
    /// Separates the name from the users it is limited to.
    pub user_boundary: String,
    /// Separates those users. Empty = a channel is limited to one user.
    pub user_separator: String,
    /// Longest idempotency key and version epoch of a publication, bytes each.
    pub idempotency_key_max_length: usize,
    /// Nodes and values, together, that a subscriber's filter of tags may have.
    pub tags_filter_max_nodes: usize,
    /// Texts of such a filter: keys, comparisons and values together, bytes.
    pub tags_filter_max_size: usize,
    /// Channels with history that have no publication and no subscriber: so many keep their epoch on this node, the
    /// oldest is forgotten first. 0 = none.
    pub empty_channels_max: usize,
}

impl Default for ChannelSettings {
    fn default() -> Self {
        ChannelSettings {
            without_namespace: ChannelOptions::default(),
            namespaces: Vec::new(),
            history_meta_ttl: Duration::from_secs(30 * 24 * 3600),
            max_length: 255,
            private_prefix: "$".into(),
            namespace_boundary: ":".into(),
            user_boundary: "#".into(),
            user_separator: ",".into(),
            idempotency_key_max_length: 255,
            tags_filter_max_nodes: 64,
            tags_filter_max_size: 4_096,
            empty_channels_max: 10_000,
        }
    }
}
