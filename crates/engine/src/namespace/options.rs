//! The options of the channels of a namespace.

use std::time::Duration;

use regex::Regex;
use serde::Deserialize;
use touchline_protocol::stream::Retention;

use super::pattern;
use crate::duration::{self, millis};

/// The options of the channels of one namespace, and the permissions of clients. Everything is off unless switched on.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelOptions {
    /// Keep the presence of the channel, for `presence` and `presence_stats`.
    pub presence: bool,
    /// Send join and leave events to the subscribers that request them.
    pub join_leave: bool,
    /// Send join and leave events to every subscriber.
    pub force_push_join_leave: bool,
    /// Publications kept, 0 … 100,000. History is on when this and `history_ttl` are both above zero.
    pub history_size: usize,
    /// How long a publication is kept.
    #[serde(with = "duration")]
    pub history_ttl: Duration,
    /// How long offset and epoch outlive the last use of an empty history; zero = `channel.history_meta_ttl`.
    #[serde(with = "duration")]
    pub history_meta_ttl: Duration,
    /// The history is on disk: a publication is acknowledged once it is on disk, and survives a crash.
    pub durable: bool,
    /// Delta formats that subscribers may ask for: `fossil`.
    pub allowed_delta_types: Vec<String>,
    /// Subscribers may ask for publications with certain tags only.
    pub allow_tags_filter: bool,
    /// Every subscription has a position.
    pub force_positioning: bool,
    /// A client may ask for a positioned subscription.
    pub allow_positioning: bool,
    /// Every subscription can be recovered.
    pub force_recovery: bool,
    /// A client may ask for a recoverable subscription.
    pub allow_recovery: bool,
    /// `stream` gives all that was missed, `cache` the latest publication only.
    pub force_recovery_mode: RecoveryMode,
    /// Authenticated clients may subscribe without a subscription token.
    pub allow_subscribe_for_client: bool,
    /// The permission above is for anonymous clients too.
    pub allow_subscribe_for_anonymous: bool,
    /// Authenticated clients may publish.
    pub allow_publish_for_client: bool,
    /// Subscribers of the channel may publish.
    pub allow_publish_for_subscriber: bool,
    /// The permission for clients is for anonymous ones too.
    pub allow_publish_for_anonymous: bool,
    /// Authenticated clients may read the history.
    pub allow_history_for_client: bool,
    /// Subscribers may read the history.
    pub allow_history_for_subscriber: bool,
    /// The permission for clients is for anonymous ones too.
    pub allow_history_for_anonymous: bool,
    /// Authenticated clients may ask for presence.
    pub allow_presence_for_client: bool,
    /// Subscribers may ask for presence.
    pub allow_presence_for_subscriber: bool,
    /// The permission for clients is for anonymous ones too.
    pub allow_presence_for_anonymous: bool,
    /// Channels named `…#user1,user2` are open to exactly those users.
    pub allow_user_limited_channels: bool,
    /// The part of the name behind the namespace must match; empty = any.
    #[serde(with = "pattern")]
    pub channel_regex: Option<Regex>,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        ChannelOptions {
            presence: false,
            join_leave: false,
            force_push_join_leave: false,
            history_size: 0,
            history_ttl: Duration::ZERO,
            history_meta_ttl: Duration::ZERO,
            durable: false,
            allowed_delta_types: Vec::new(),
            allow_tags_filter: false,
            force_positioning: false,
            allow_positioning: false,
            force_recovery: false,
            allow_recovery: false,
            force_recovery_mode: RecoveryMode::Stream,
            allow_subscribe_for_client: false,
            allow_subscribe_for_anonymous: false,
            allow_publish_for_client: false,
            allow_publish_for_subscriber: false,
            allow_publish_for_anonymous: false,
            allow_history_for_client: false,
            allow_history_for_subscriber: false,
            allow_history_for_anonymous: false,
            allow_presence_for_client: false,
            allow_presence_for_subscriber: false,
            allow_presence_for_anonymous: false,
            allow_user_limited_channels: false,
            channel_regex: None,
        }
    }
}

impl ChannelOptions {
    /// Whether the channel has offsets and keeps publications.
    pub fn has_history(&self) -> bool {
        self.history_size > 0 && !self.history_ttl.is_zero()
    }

    /// How much of its log a channel with these options keeps.
    pub fn retention(&self) -> Retention {
        Retention {
            size: self.history_size,
            ttl_ms: millis(self.history_ttl),
            meta_ttl_ms: millis(self.history_meta_ttl),
        }
    }
}

/// What a returning client recovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecoveryMode {
    /// Every publication that it missed, in order, or a reply that says that it is not recovered.
    #[default]
    #[serde(alias = "")]
    Stream,
    /// The latest publication.
    Cache,
}
