//! Tests of the namespaces.

use std::time::Duration;

use super::*;
use crate::setting::{SettingsTable as _, WrittenValue};
use regex::Regex;

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
fn a_namespace_is_found_among_few_and_among_many() {
    for count in [1, 15, 16, 40] {
        let named = |index: usize| Namespace { name: format!("n{index}"), options: ChannelOptions::default() };
        let settings = ChannelSettings { namespaces: (0..count).map(named).collect(), ..Default::default() };
        let namespaces = Namespaces::new(settings);
        let names: Vec<&str> = namespaces.names().collect();
        let label = |channel: &str| *names.get(namespaces.index_of(channel).get()).unwrap_or(&"other");
        assert_eq!((label("x"), label("nothing:x"), label("$registry:devices")), ("without", "other", "registry"));
        for index in 0..count {
            assert_eq!(label(&format!("n{index}:x")), format!("n{index}"));
            assert!(namespaces.resolve(&format!("n{index}:x")).is_ok());
        }
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

/// A channel, its namespace, whether it is private, and whether user 7 is one of its users.
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
    // The channels with changes of registry scopes have a namespace of their own, unless the operator has configured
    // it.
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
        ChannelOptions { history_size, history_ttl: Duration::from_secs(seconds), ..Default::default() }.has_history()
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
