//! Namespaces: the options of a channel, by its name.
//!
//! Option names and defaults are those of Centrifugo 6, so that its configuration means the same here.

mod pattern;

use std::collections::HashMap;
use std::time::Duration;

use regex::Regex;
use touchline_protocol::Error;
use touchline_protocol::data::is_plain_text;
use touchline_protocol::filter::FilterLimits;
use touchline_protocol::stream::Retention;

use crate::duration::millis;
use crate::setting::{SOME, ValueKind};

/// How the names of the channels begin that carry changes of a registry scope.
pub(crate) const WATCH_CHANNEL_PREFIX: &str = "$registry:";

settings! {
    /// The options of the channels of one namespace, and the permissions of clients. Everything is off unless switched
    /// on.
    pub struct ChannelOptions {
        /// Keep who is in the channel; answer `presence` and `presence_stats`.
        key presence: bool = false;
        /// Send join and leave events to the subscribers who asked for them.
        key join_leave: bool = false;
        /// Send join and leave events to every subscriber.
        key force_push_join_leave: bool = false;
        /// Publications kept. History is on when this and `history_ttl` are both above zero.
        key history_size: usize = 0, ValueKind::Integer(0, 100_000);
        /// How long a publication is kept.
        key history_ttl: Duration = Duration::ZERO;
        /// How long offset and epoch outlive the channel's last use; 0 is `channel.history_meta_ttl`.
        key history_meta_ttl: Duration = Duration::ZERO;
        /// Publications are on disk before they are acknowledged, and there after a crash: `store.primary`. Needs
        /// `history_size` and `history_ttl`.
        own durable: bool = false;
        /// Delta formats that subscribers may ask for: `fossil`. They get publications as changes to the one before.
        key allowed_delta_types: Vec<String> = &[];
        /// Subscribers may ask for publications with certain tags only.
        key allow_tags_filter: bool = false;
        /// Every subscription is told its position, and a gap is never hidden.
        key force_positioning: bool = false;
        /// A client may ask for the position of its subscription.
        key allow_positioning: bool = false;
        /// Every subscription can be recovered after a lost connection.
        key force_recovery: bool = false;
        /// A client may ask for a subscription that can be recovered.
        key allow_recovery: bool = false;
        /// `stream` gives all that was missed, `cache` the latest publication only.
        key force_recovery_mode: RecoveryMode = RecoveryMode::Stream;
        /// Clients with a user may subscribe without a subscription token.
        key allow_subscribe_for_client: bool = false;
        /// Anonymous clients may subscribe too; this does nothing without `allow_subscribe_for_client`.
        key allow_subscribe_for_anonymous: bool = false;
        /// Clients with a user may publish.
        key allow_publish_for_client: bool = false;
        /// Subscribers may publish.
        key allow_publish_for_subscriber: bool = false;
        /// Anonymous clients may publish too; this does nothing without `allow_publish_for_client` or
        /// `allow_publish_for_subscriber`.
        key allow_publish_for_anonymous: bool = false;
        /// Clients with a user may read the history.
        key allow_history_for_client: bool = false;
        /// Subscribers may read the history.
        key allow_history_for_subscriber: bool = false;
        /// Anonymous clients may read the history too; this does nothing without `allow_history_for_client` or
        /// `allow_history_for_subscriber`.
        key allow_history_for_anonymous: bool = false;
        /// Clients with a user may ask for presence.
        key allow_presence_for_client: bool = false;
        /// Subscribers may ask for presence.
        key allow_presence_for_subscriber: bool = false;
        /// Anonymous clients may ask for presence too; this does nothing without `allow_presence_for_client` or
        /// `allow_presence_for_subscriber`.
        key allow_presence_for_anonymous: bool = false;
        /// Channels named `…#user1,user2` are open to exactly those users.
        key allow_user_limited_channels: bool = false;
        /// The part of the name behind the namespace must match; empty is any.
        key channel_regex: Option<Regex> = None;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecoveryMode {
    /// Every publication that it missed, in order, or a reply that says that it is not recovered.
    #[default]
    Stream,
    /// The latest publication.
    Cache,
}

words_of!(RecoveryMode { Stream = "stream", Cache = "cache"; alias "" = Stream });

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
        /// Options of channels whose name has no namespace.
        plain without_namespace: ChannelOptions = ChannelOptions::default();
        /// The configured namespaces.
        plain namespaces: Vec<Namespace> = Vec::new();
    }
}

/// The namespace of the channels that carry changes of registry scopes, open to clients that may watch a scope. A node
/// has it with the default options, unless the configuration gives it others.
pub const REGISTRY_NAMESPACE: &str = "registry";

/// The namespaces of a running node: finds the options of a channel.
#[derive(Debug)]
pub struct Namespaces {
    settings: ChannelSettings,
    by_name: HashMap<String, usize>,
}

impl Namespaces {
    /// Indexes the settings; a namespace's zero `history_meta_ttl` takes the common one.
    pub fn new(mut settings: ChannelSettings) -> Self {
        if !settings.namespaces.iter().any(|namespace| namespace.name == REGISTRY_NAMESPACE) {
            let options = ChannelOptions::default();
            settings.namespaces.push(Namespace { name: REGISTRY_NAMESPACE.into(), options });
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
    use crate::setting::{SettingsTable as _, WrittenValue};

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
        let read = |text: &str| {
            let mut options = ChannelOptions::default();
            options.set("channel_regex", &WrittenValue::Text(text)).expect("there is such a key").map(|_| options)
        };
        assert!(read("").is_ok_and(|options| options.channel_regex.is_none()));
        assert!(read("^a+$").is_ok_and(|options| options.channel_regex.is_some_and(|regex| regex.is_match("aa"))));
        assert_eq!(read("(").err(), Some(Some("a faulty one (unclosed group)".to_owned())));
    }
}
