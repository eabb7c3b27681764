//! Namespaces: the options of a channel, by its name.
//!
//! Option names and defaults are those of Centrifugo 6, so that its configuration means the same here.

mod pattern;

use std::collections::HashMap;
use std::time::Duration;

use regex::Regex;
use serde::Deserialize;
use touchline_protocol::Error;
use touchline_protocol::data::is_plain_text;
use touchline_protocol::filter::FilterLimits;
use touchline_protocol::stream::Retention;

use crate::duration;
use crate::duration::millis;

/// How the names of the channels begin that carry changes of a registry scope.
pub(crate) const WATCH_CHANNEL_PREFIX: &str = "$registry:";

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

/// The namespaces of a running node: finds the options of a channel.
#[derive(Debug)]
pub struct Namespaces {
    settings: ChannelSettings,
    by_name: HashMap<String, usize>,
}

impl Namespaces {
    /// Indexes the settings; a namespace's zero `history_meta_ttl` takes the common one.
    pub fn new(mut settings: ChannelSettings) -> Self {
        // Changes of the registry's scopes are published to their own channels, open to clients that may watch a scope.
        if !settings.namespaces.iter().any(|namespace| namespace.name == "registry") {
            settings.namespaces.push(Namespace { name: "registry".into(), options: ChannelOptions::default() });
        }
        let common = settings.history_meta_ttl;
        let all = settings.namespaces.iter_mut().map(|n| &mut n.options);
        for options in all.chain([&mut settings.without_namespace]) {
            if options.history_meta_ttl.is_zero() {
                options.history_meta_ttl = common;
            }
        }
        let by_name = settings.namespaces.iter().enumerate().map(|(i, n)| (n.name.clone(), i)).collect();
        Namespaces { settings, by_name }
    }

    /// The options of a channel.
    ///
    /// # Errors
    /// 107 for an empty, too long or ill-formed name or one that its namespace's pattern refuses, 102 for an unknown
    /// namespace.
    pub fn resolve(&self, channel: &str) -> Result<&ChannelOptions, Error> {
        let settings = &self.settings;
        if channel.is_empty() || channel.len() > settings.max_length || !is_plain_text(channel) {
            return Err(Error::BAD_REQUEST);
        }
        let name = channel.strip_prefix(settings.private_prefix.as_str()).unwrap_or(channel);
        let (options, rest) = match split_once(name, &settings.namespace_boundary) {
            Some((namespace, rest)) => {
                let index = self.by_name.get(namespace).ok_or(Error::UNKNOWN_CHANNEL)?;
                (&settings.namespaces[*index].options, rest)
            }
            _ => (&settings.without_namespace, name),
        };
        match &options.channel_regex {
            Some(pattern) if !pattern.is_match(rest) => Err(Error::BAD_REQUEST),
            _ => Ok(options),
        }
    }

    /// The namespace of a channel; empty = the name has none.
    pub fn namespace_of<'c>(&self, channel: &'c str) -> &'c str {
        let settings = &self.settings;
        let name = channel.strip_prefix(settings.private_prefix.as_str()).unwrap_or(channel);
        match split_once(name, &settings.namespace_boundary) {
            Some((namespace, _)) => namespace,
            _ => "",
        }
    }

    /// Whether only a subscription token opens this channel.
    pub fn is_private(&self, channel: &str) -> bool {
        !self.settings.private_prefix.is_empty() && channel.starts_with(self.settings.private_prefix.as_str())
    }

    /// For a channel named with users, whether `user` is one of them; `None` for any other channel.
    pub fn is_user_allowed(&self, channel: &str, user: &str) -> Option<bool> {
        let (_, users) = rsplit_once(channel, &self.settings.user_boundary)?;
        let separator = self.settings.user_separator.as_str();
        // Without a separator there is one user: an empty separator would split any text.
        let is_named = if separator.is_empty() { users == user } else { users.split(separator).any(|u| u == user) };
        Some(!user.is_empty() && is_named)
    }

    /// The limits of a subscriber's filter of tags.
    pub fn filter_limits(&self) -> FilterLimits {
        FilterLimits { nodes: self.settings.tags_filter_max_nodes, size: self.settings.tags_filter_max_size }
    }

    /// How names are written.
    pub fn settings(&self) -> &ChannelSettings {
        &self.settings
    }
}

/// Splits a name at the first boundary. An empty boundary does not occur. The search for one character costs a quarter
/// of the search for a text.
fn split_once<'n>(name: &'n str, boundary: &str) -> Option<(&'n str, &'n str)> {
    match boundary.as_bytes() {
        [] => None,
        [byte] => name.split_once(char::from(*byte)),
        _ => name.split_once(boundary),
    }
}

/// The same at the last boundary.
fn rsplit_once<'n>(name: &'n str, boundary: &str) -> Option<(&'n str, &'n str)> {
    match boundary.as_bytes() {
        [] => None,
        [byte] => name.rsplit_once(char::from(*byte)),
        _ => name.rsplit_once(boundary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces() -> Namespaces {
        Namespaces::new(ChannelSettings {
            namespaces: vec![Namespace {
                name: "match".into(),
                options: ChannelOptions { channel_regex: Regex::new("^[a-z#0-9,]+$").ok(), ..Default::default() },
            }],
            ..Default::default()
        })
    }

    #[test]
    fn a_name_finds_its_namespace_or_the_reason_why_not() {
        let namespaces = namespaces();
        let long = "x".repeat(256);
        let cases: &[(&str, Option<Error>)] = &[
            ("news", None),
            ("match:live", None),
            ("$match:live", None),
            ("match:LIVE", Some(Error::BAD_REQUEST)),
            ("chat:live", Some(Error::UNKNOWN_CHANNEL)),
            ("", Some(Error::BAD_REQUEST)),
            ("a\nb", Some(Error::BAD_REQUEST)),
            ("a\0b", Some(Error::BAD_REQUEST)),
            ("a\u{7f}b", Some(Error::BAD_REQUEST)),
            ("a\u{85}b", Some(Error::BAD_REQUEST)),
            ("日本", None),
            (&long, Some(Error::BAD_REQUEST)),
        ];
        for (name, expected) in cases {
            assert_eq!(namespaces.resolve(name).err(), *expected, "{name}");
        }
    }

    #[test]
    fn a_user_limited_channel_admits_its_users_only() {
        let namespaces = namespaces();
        assert_eq!(namespaces.is_user_allowed("dialog#1,2", "2"), Some(true));
        assert_eq!(namespaces.is_user_allowed("dialog#1,2", "3"), Some(false));
        assert_eq!(namespaces.is_user_allowed("dialog#", ""), Some(false));
        assert_eq!(namespaces.is_user_allowed("news", "3"), None);
    }

    #[test]
    fn without_a_separator_a_channel_is_of_one_user() {
        let namespaces = Namespaces::new(ChannelSettings { user_separator: String::new(), ..Default::default() });
        for (channel, user, expected) in [
            ("dialog#12", "12", Some(true)),
            ("dialog#12", "1", Some(false)),
            ("dialog#12", "2", Some(false)),
            ("dialog#1,2", "1", Some(false)),
            ("dialog#1,2", "1,2", Some(true)),
            ("dialog#12", "", Some(false)),
            ("dialog#", "", Some(false)),
            ("dialog#", "1", Some(false)),
            ("a#b#12", "12", Some(true)),
            ("news", "12", None),
        ] {
            assert_eq!(namespaces.is_user_allowed(channel, user), expected, "{channel} {user}");
        }
    }

    /// A channel, its namespace, whether it is private, and whether the user 7 is one of its own.
    type Name = (&'static str, &'static str, bool, Option<bool>);

    #[test]
    fn names_are_split_as_the_settings_say() {
        let with = |boundary: &str, prefix: &str, user_boundary: &str| {
            Namespaces::new(ChannelSettings {
                namespaces: vec![Namespace {
                    name: "match".into(),
                    options: ChannelOptions { presence: true, ..Default::default() },
                }],
                namespace_boundary: boundary.into(),
                private_prefix: prefix.into(),
                user_boundary: user_boundary.into(),
                max_length: 12,
                ..Default::default()
            })
        };
        let cases: [(&str, &str, &str, &[Name]); 3] = [
            (
                ":",
                "$",
                "#",
                &[
                    ("match:1", "match", false, None),
                    ("$match:1:2", "match", true, None),
                    ("match::#7", "match", false, Some(true)),
                ],
            ),
            (
                "::",
                "priv-",
                "##",
                &[
                    ("match::1", "match", false, None),
                    ("priv-a:b", "", true, None),
                    ("a#7", "", false, None),
                    ("a##b##7", "", false, Some(true)),
                ],
            ),
            ("", "", "", &[("match:1", "", false, None), ("$a#7", "", false, None)]),
        ];
        for (boundary, prefix, users, channels) in cases {
            let namespaces = with(boundary, prefix, users);
            for (channel, namespace, is_private, is_allowed) in channels {
                assert_eq!(namespaces.namespace_of(channel), *namespace, "{channel}");
                assert_eq!(
                    namespaces.resolve(channel).map(|options| options.presence),
                    Ok(!namespace.is_empty()),
                    "{channel}"
                );
                assert_eq!(
                    (namespaces.is_private(channel), namespaces.is_user_allowed(channel, "7")),
                    (*is_private, *is_allowed),
                    "{channel}"
                );
            }
            assert!(namespaces.resolve("123456789012").is_ok() && namespaces.resolve("1234567890123").is_err());
        }
    }

    #[test]
    fn what_a_namespace_leaves_open_is_the_common_setting() {
        let hour = Duration::from_secs(3_600);
        let own = ChannelOptions { history_meta_ttl: Duration::from_secs(5), ..Default::default() };
        let namespace = |name: &str, options| Namespace { name: name.into(), options };
        let namespaces = Namespaces::new(ChannelSettings {
            history_meta_ttl: hour,
            namespaces: vec![namespace("own", own), namespace("common", ChannelOptions::default())],
            tags_filter_max_nodes: 3,
            tags_filter_max_size: 4,
            ..Default::default()
        });
        let ttl = |channel: &str| namespaces.resolve(channel).map(|options| options.history_meta_ttl);
        assert_eq!((ttl("own:a"), ttl("common:a"), ttl("a")), (Ok(Duration::from_secs(5)), Ok(hour), Ok(hour)));
        // Changes of a registry's scope have a namespace, unless the operator has given it options.
        assert_eq!(ttl("$registry:devices"), Ok(hour));
        let registry = namespace("registry", ChannelOptions { presence: true, ..Default::default() });
        let given = Namespaces::new(ChannelSettings { namespaces: vec![registry], ..Default::default() });
        assert_eq!(given.settings().namespaces.len(), 1);
        assert!(given.resolve("$registry:devices").is_ok_and(|options| options.presence));
        let FilterLimits { nodes, size } = namespaces.filter_limits();
        assert_eq!((nodes, size), (3, 4));
    }

    #[test]
    fn a_history_needs_a_size_and_a_time() {
        let has = |history_size, seconds| {
            ChannelOptions { history_size, history_ttl: Duration::from_secs(seconds), ..Default::default() }
                .has_history()
        };
        assert_eq!([has(0, 0), has(1, 0), has(0, 1), has(1, 1)], [false, false, false, true]);
    }

    #[test]
    fn a_pattern_of_the_configuration_is_read_or_refused() {
        let read = |text: &str| serde_json::from_value::<ChannelOptions>(serde_json::json!({ "channel_regex": text }));
        assert!(read("").is_ok_and(|options| options.channel_regex.is_none()));
        assert!(read("^a+$").is_ok_and(|options| options.channel_regex.is_some_and(|pattern| pattern.is_match("aa"))));
        assert!(read("(").is_err_and(|error| error.to_string().starts_with("channel_regex: ")));
    }
}
