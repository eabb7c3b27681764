//! The options of the channels of a namespace.

use std::time::Duration;

use regex::Regex;
use touchline_protocol::message::Encoding;
use touchline_protocol::payload::DataFormat;
use touchline_protocol::stream::Retention;

use crate::duration::millis;
use crate::hook::DEFAULT_PROXY;
use crate::setting::ValueKind;

settings! {
    /// The options of the channels of one namespace, and the permissions of clients. Everything is off by default.
    pub struct ChannelOptions {
        /// Keep track of the clients in the channel, and answer `presence` and `presence_stats`.
        key presence: bool = false;
        /// Send join and leave events to the subscribers that asked for them.
        key join_leave: bool = false;
        /// A backend is asked before a client subscribes without a token. The backend alone decides.
        key subscribe_proxy_enabled: bool = false;
        /// The name of that backend: `default` is `channel.proxy.subscribe`, others are in `proxies`.
        key subscribe_proxy_name: String = DEFAULT_PROXY;
        /// A backend is asked before a client publishes. The backend alone decides.
        key publish_proxy_enabled: bool = false;
        /// The name of that backend: `default` is `channel.proxy.publish`, others are in `proxies`.
        key publish_proxy_name: String = DEFAULT_PROXY;
        /// When a subscription expires, the node asks a backend, not the client, whether it may continue.
        key sub_refresh_proxy_enabled: bool = false;
        /// The name of that backend: `default` is `channel.proxy.sub_refresh`, others are in `proxies`.
        key sub_refresh_proxy_name: String = DEFAULT_PROXY;
        /// Send join and leave events to every subscriber.
        key force_push_join_leave: bool = false;
        /// How many publications a channel keeps. History is on when this and `history_ttl` are both above zero.
        key history_size: usize = 0, ValueKind::Integer(0, 100_000);
        /// How long a publication is kept.
        key history_ttl: Duration = Duration::ZERO;
        /// How long offset and epoch are kept after the channel's last use; 0 = as long as `channel.history_meta_ttl`
        /// says.
        key history_meta_ttl: Duration = Duration::ZERO;
        /// Publications are written to disk (`store.primary`) before they are acknowledged, and survive a crash. Needs
        /// `history_size` and `history_ttl`.
        own durable: bool = false;
        /// The format of publications: `json` is any JSON value, `json_object` an object, `binary` any bytes.
        key publication_data_format: DataFormat = DataFormat::Json;
        /// Clients that speak JSON may subscribe to `binary` publications too. They get them as `{"$b64": "AAEC"}`.
        own binary_as_base64: bool = false;
        /// The options that subscribers may react with: up to 32 options of up to 64 bytes. Reactions are counted over
        /// all subscribers.
        own reactions: Vec<String> = &[];
        /// How many reactions one connection may send in a second. The reactions of five seconds may come at once.
        own reactions_rate: u32 = 20, ValueKind::Integer(1, 1_000_000);
        /// The totals of reactions are written to `store.primary` each second, and survive a crash.
        own reactions_durable: bool = false;
        /// What happens to a subscriber that reads too slowly. `disconnect` ends its connection when its queue is full
        /// (`client.queue_max_size`). `drop_oldest` drops the oldest publications that wait for it. `drop_oldest`
        /// cannot be combined with recovery, positioning, deltas or reactions.
        own slow_consumer: SlowConsumer = SlowConsumer::Disconnect;
        /// With `slow_consumer = "drop_oldest"`: how long a publication may wait for a subscriber before it is dropped.
        /// 0 = until the queue is full.
        own max_age: Duration = Duration::ZERO;
        /// Delta formats that subscribers may ask for: `fossil`. They get publications as changes to the previous one.
        key allowed_delta_types: Vec<String> = &[];
        /// Subscribers may ask to get only publications with certain tags.
        key allow_tags_filter: bool = false;
        /// Every subscription gets its position. If a publication is missing, the subscription ends with 2500, and the
        /// client subscribes again.
        key force_positioning: bool = false;
        /// A client may ask for the position of its subscription.
        key allow_positioning: bool = false;
        /// Every subscription can be recovered after a lost connection.
        key force_recovery: bool = false;
        /// A client may ask for a subscription that can be recovered.
        key allow_recovery: bool = false;
        /// `stream` recovers all missed publications, `cache` only the latest one.
        key force_recovery_mode: RecoveryMode = RecoveryMode::Stream;
        /// Clients with a user may subscribe without a subscription token.
        key allow_subscribe_for_client: bool = false;
        /// Anonymous clients may subscribe too. Has no effect without `allow_subscribe_for_client`.
        key allow_subscribe_for_anonymous: bool = false;
        /// Clients with a user may publish.
        key allow_publish_for_client: bool = false;
        /// Subscribers may publish.
        key allow_publish_for_subscriber: bool = false;
        /// Anonymous clients may publish too. Has no effect without `allow_publish_for_client` or
        /// `allow_publish_for_subscriber`.
        key allow_publish_for_anonymous: bool = false;
        /// Clients with a user may read the history.
        key allow_history_for_client: bool = false;
        /// Subscribers may read the history.
        key allow_history_for_subscriber: bool = false;
        /// Anonymous clients may read the history too. Has no effect without `allow_history_for_client` or
        /// `allow_history_for_subscriber`.
        key allow_history_for_anonymous: bool = false;
        /// Clients with a user may read presence.
        key allow_presence_for_client: bool = false;
        /// Subscribers may read presence.
        key allow_presence_for_subscriber: bool = false;
        /// Anonymous clients may read presence too. Has no effect without `allow_presence_for_client` or
        /// `allow_presence_for_subscriber`.
        key allow_presence_for_anonymous: bool = false;
        /// Channels named `…#user1,user2` are open to exactly these users.
        key allow_user_limited_channels: bool = false;
        /// The part of the name after the namespace must match this expression; empty = any name.
        key channel_regex: Option<Regex> = None;
    }
}

impl ChannelOptions {
    /// Whether the channel has offsets and keeps publications.
    pub fn has_history(&self) -> bool {
        self.history_size > 0 && !self.history_ttl.is_zero()
    }

    /// Whether subscriptions can have positions. If publications are dropped, positions would only show gaps.
    pub fn has_positions(&self) -> bool {
        self.has_history() && self.slow_consumer != SlowConsumer::DropOldest
    }

    /// Whether a client with this encoding can receive the publications.
    pub fn is_readable_by(&self, encoding: Encoding) -> bool {
        self.publication_data_format != DataFormat::Binary || self.binary_as_base64 || encoding == Encoding::Protobuf
    }

    /// How long a publication may wait for a slow subscriber before it is dropped, microseconds; `u64::MAX` = until the
    /// queue is full. `None` = publications are not dropped.
    pub fn drop_after_us(&self) -> Option<u64> {
        let age_us = u64::try_from(self.max_age.as_micros()).unwrap_or(u64::MAX).max(1);
        let is_dropping = self.slow_consumer == SlowConsumer::DropOldest;
        is_dropping.then_some(if self.max_age.is_zero() { u64::MAX } else { age_us })
    }

    /// Whether reactions can be published in the channel: they are JSON, and their last totals must reach all
    /// subscribers.
    pub fn can_have_reactions(&self) -> bool {
        self.publication_data_format != DataFormat::Binary && self.slow_consumer != SlowConsumer::DropOldest
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecoveryMode {
    /// Every missed publication, in order, or a reply that says that the subscription is not recovered.
    #[default]
    Stream,
    /// Only the latest publication.
    Cache,
}

/// What happens to a subscriber that reads too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlowConsumer {
    /// The connection of the subscriber ends.
    #[default]
    Disconnect,
    /// The oldest publications that wait for the subscriber are dropped.
    DropOldest,
}

words_of!(SlowConsumer { Disconnect = "disconnect", DropOldest = "drop_oldest" });
words_of!(DataFormat { Json = "json", JsonObject = "json_object", Binary = "binary"; alias "" = Json });
words_of!(RecoveryMode { Stream = "stream", Cache = "cache"; alias "" = Stream });
