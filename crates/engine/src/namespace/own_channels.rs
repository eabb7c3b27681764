//! The channels whose names contain one user.

use super::Namespaces;

impl Namespaces {
    /// The channels whose names contain only a namespace and one user, if their namespace keeps a history. These are
    /// the personal channel, and one channel in each namespace that has channels limited to users. `user`: must not be
    /// empty. `personal`: the namespace of personal channels, empty = they have none; `None` = users have no personal
    /// channels.
    pub fn own_channels(&self, user: &str, personal: Option<&str>) -> Vec<String> {
        let settings = self.settings();
        let named = settings.namespaces.iter().map(|namespace| (namespace.name.as_str(), &namespace.options));
        let all = [("", &settings.without_namespace)].into_iter().chain(named);
        let own = all.filter(|(namespace, options)| {
            options.has_history() && (options.allow_user_limited_channels || personal == Some(*namespace))
        });
        own.map(|(namespace, _)| {
            let boundary = if namespace.is_empty() { "" } else { &settings.namespace_boundary };
            [namespace, boundary, &settings.user_boundary, user].concat()
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{ChannelOptions, ChannelSettings, Namespace};
    use super::*;

    #[test]
    fn channels_that_keep_something_and_are_of_one_user_are_named() {
        let options = |history_size, allow_user_limited_channels| ChannelOptions {
            history_size,
            history_ttl: Duration::from_secs(60),
            allow_user_limited_channels,
            ..ChannelOptions::default()
        };
        let namespace = |name: &str, options| Namespace { name: name.to_owned(), options };
        let namespaces = Namespaces::new(ChannelSettings {
            namespaces: vec![
                namespace("chat", options(10, true)),
                namespace("personal", options(10, false)),
                namespace("news", options(10, false)),
                namespace("brief", options(0, true)),
            ],
            ..ChannelSettings::default()
        });
        assert_eq!(namespaces.own_channels("42", Some("personal")), ["chat:#42", "personal:#42"]);
        assert_eq!(namespaces.own_channels("42", None), ["chat:#42"]);
        let plain = Namespaces::new(ChannelSettings { without_namespace: options(1, true), ..Default::default() });
        assert_eq!(plain.own_channels("42", None), ["#42"]);
    }
}
