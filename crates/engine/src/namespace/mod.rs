//! Namespaces: the options of a channel, found by its name.
//!
//! Option names and defaults are those of Centrifugo 6, so that its configuration means the same here.

mod boundary;
mod options;
mod own_channels;
mod pattern;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use touchline_protocol::Error;
use touchline_protocol::data::is_plain_text;
use touchline_protocol::filter::FilterLimits;

use boundary::{rsplit_once, split_once};
pub use options::{ChannelOptions, RecoveryMode, SlowConsumer};
pub use settings::{ChannelSettings, Namespace};

/// The namespace of the channels that carry changes of a registry scope. It exists without any configuration, so that
/// clients can subscribe to these channels. If it is configured, the configured options apply.
pub const REGISTRY_NAMESPACE: &str = "registry";

/// The prefix of these channels' names; the name of the scope follows. It does not depend on `channel.private_prefix`
/// and `channel.namespace_boundary`, which the configuration may change.
pub(crate) const WATCH_CHANNEL_PREFIX: &str = "$registry:";

/// The name that metrics use for channels without a namespace.
pub(crate) const WITHOUT_NAMESPACE: &str = "without";
/// The name that metrics use for namespaces that are not configured.
pub const OTHER_NAMESPACE: &str = "other";

/// Up to this many names are compared one by one. That is cheaper than a search, because most names differ in length.
const FEW: usize = 16;

/// The number of a namespace within one configuration ([`Namespaces::names`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceIndex(u16);

impl NamespaceIndex {
    /// The number for a namespace that no configuration has.
    pub const UNKNOWN: NamespaceIndex = NamespaceIndex(u16::MAX);

    /// The number, from 0. It may belong to an earlier configuration than the present one.
    pub fn get(self) -> usize {
        self.0.into()
    }
}

impl Default for NamespaceIndex {
    fn default() -> Self {
        NamespaceIndex::UNKNOWN
    }
}

/// The namespaces of a running node. They find the options of a channel.
#[derive(Debug)]
pub struct Namespaces {
    settings: ChannelSettings,
    /// The names of the namespaces, in the order of the settings.
    names: Vec<Box<str>>,
    by_name: BTreeMap<String, usize>,
}

impl Namespaces {
    /// Indexes the settings. A namespace with a `history_meta_ttl` of zero gets the common one.
    pub fn new(mut settings: ChannelSettings) -> Self {
        // Changes of registry scopes are published to channels of their own, for clients that may watch a scope.
        if !settings.namespaces.iter().any(|namespace| namespace.name == REGISTRY_NAMESPACE) {
            settings.namespaces.push(Namespace { name: REGISTRY_NAMESPACE.into(), options: ChannelOptions::default() });
        }
        let common = settings.history_meta_ttl;
        let all = settings.namespaces.iter_mut().map(|n| &mut n.options);
        for options in all.chain([&mut settings.without_namespace]) {
            if options.history_meta_ttl.is_zero() {
                options.history_meta_ttl = common;
            }
        }
        let names = settings.namespaces.iter().map(|namespace| namespace.name.as_str().into()).collect();
        let by_name = settings.namespaces.iter().enumerate().map(|(i, n)| (n.name.clone(), i)).collect();
        Namespaces { settings, names, by_name }
    }

    /// Returns the options of a channel.
    ///
    /// # Errors
    /// 107 for an empty, too long or ill-formed name, or one that the pattern of its namespace refuses; 102 for an
    /// unknown namespace.
    pub fn resolve(&self, channel: &str) -> Result<&ChannelOptions, Error> {
        let settings = &self.settings;
        if channel.is_empty() || channel.len() > settings.max_length || !is_plain_text(channel) {
            return Err(Error::BAD_REQUEST);
        }
        let name = channel.strip_prefix(settings.private_prefix.as_str()).unwrap_or(channel);
        let split = match channel.strip_prefix(WATCH_CHANNEL_PREFIX) {
            Some(scope) => Some((REGISTRY_NAMESPACE, scope)),
            None => split_once(name, &settings.namespace_boundary),
        };
        let (options, rest) = match split {
            Some((namespace, rest)) => match self.find(namespace) {
                Some(index) => (&settings.namespaces[index].options, rest),
                None if settings.accepts_unknown_namespaces && namespace != REGISTRY_NAMESPACE => {
                    (&settings.without_namespace, name)
                }
                None => return Err(Error::UNKNOWN_CHANNEL),
            },
            _ => (&settings.without_namespace, name),
        };
        match &options.channel_regex {
            Some(pattern) if !pattern.is_match(rest) => Err(Error::BAD_REQUEST),
            _ => Ok(options),
        }
    }

    /// The namespace in a channel's name; empty = the name has none.
    pub fn namespace_of<'c>(&self, channel: &'c str) -> &'c str {
        let settings = &self.settings;
        if channel.starts_with(WATCH_CHANNEL_PREFIX) {
            return REGISTRY_NAMESPACE;
        }
        let name = channel.strip_prefix(settings.private_prefix.as_str()).unwrap_or(channel);
        match split_once(name, &settings.namespace_boundary) {
            Some((namespace, _)) => namespace,
            _ => "",
        }
    }

    /// The number of a channel's namespace, as an index of [`Namespaces::names`].
    pub fn index_of(&self, channel: &str) -> NamespaceIndex {
        let namespace = self.namespace_of(channel);
        let of_none = self.settings.accepts_unknown_namespaces.then_some(0);
        let named = || self.find(namespace).map(|index| index + 1).or(of_none);
        let index = if namespace.is_empty() { Some(0) } else { named() };
        index.and_then(|index| u16::try_from(index).ok()).map_or(NamespaceIndex::UNKNOWN, NamespaceIndex)
    }

    /// The index of a namespace in the settings.
    fn find(&self, namespace: &str) -> Option<usize> {
        if self.names.len() <= FEW {
            self.names.iter().position(|name| **name == *namespace)
        } else {
            self.by_name.get(namespace).copied()
        }
    }

    /// The names of the namespaces in metrics, in the order of their numbers: [`WITHOUT_NAMESPACE`], the configured
    /// namespaces and that of the registry, and [`OTHER_NAMESPACE`] for all that are not configured.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let configured = self.settings.namespaces.iter().map(|namespace| namespace.name.as_str());
        [WITHOUT_NAMESPACE].into_iter().chain(configured).chain([OTHER_NAMESPACE])
    }

    /// The name of a namespace in metrics; an unknown number means [`OTHER_NAMESPACE`].
    pub fn name_at(&self, index: NamespaceIndex) -> &str {
        match index.get().checked_sub(1) {
            None => WITHOUT_NAMESPACE,
            Some(index) => self.names.get(index).map_or(OTHER_NAMESPACE, |name| name),
        }
    }

    /// Whether a subscription token is required for this channel.
    pub fn is_private(&self, channel: &str) -> bool {
        !self.settings.private_prefix.is_empty() && channel.starts_with(self.settings.private_prefix.as_str())
    }

    /// For a channel whose name lists users: whether `user` is one of them. `None` for any other channel.
    pub fn is_user_allowed(&self, channel: &str, user: &str) -> Option<bool> {
        let (_, users) = rsplit_once(channel, &self.settings.user_boundary)?;
        let separator = self.settings.user_separator.as_str();
        // Without a separator there is only one user: an empty separator would split any text.
        let is_named = if separator.is_empty() { users == user } else { users.split(separator).any(|u| u == user) };
        Some(!user.is_empty() && is_named)
    }

    /// The limits for a subscriber's filter of tags.
    pub fn filter_limits(&self) -> FilterLimits {
        FilterLimits { nodes: self.settings.tags_filter_max_nodes, size: self.settings.tags_filter_max_size }
    }

    /// The `channel` settings, including how names are written.
    pub fn settings(&self) -> &ChannelSettings {
        &self.settings
    }
}
