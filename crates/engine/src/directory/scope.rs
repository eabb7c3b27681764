//! Scopes of the registry: their options, and what clients may do in them. Everything is off unless switched on.

use std::time::Duration;

use serde::Deserialize;
use touchline_registry::{ConflictPolicyKind, Limits, ReplicaSettings, ReplicaTiming, View};

use crate::duration;
use crate::wildcard;

/// A scope of the configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScopeOptions {
    /// Its name.
    pub name: String,
    /// Which registration keeps a name that two connections own after a race or a split.
    pub conflict_policy: ConflictPolicy,
    /// Disconnect a client that loses a name (3503), instead of only sending it a message.
    pub disconnect_losers: bool,
    /// Names that clients may register: `{user}` stands for the client's user, `*` for any text. Empty = no name.
    pub allow_register: Vec<String>,
    /// Groups that clients may join, as above.
    pub allow_join: Vec<String>,
    /// Clients may look up names, list them and see the members of groups.
    pub allow_lookup_for_client: bool,
    /// Clients may send to names and groups.
    pub allow_send_for_client: bool,
    /// Clients may call names and groups.
    pub allow_call_for_client: bool,
    /// Clients may subscribe to `$registry:<scope>`.
    pub allow_watch_for_client: bool,
    /// Bytes of past changes that are kept for watchers that have fallen behind. Beyond them a watcher has to list the
    /// scope again.
    pub watch_log_size: usize,
    /// What clients may do, anonymous clients may do too.
    pub allow_for_anonymous: bool,
    /// Longest name or group, bytes.
    pub name_max_length: usize,
    /// Largest metadata, bytes of JSON.
    pub meta_max_size: usize,
    /// Names and memberships of one connection.
    pub client_entries_limit: usize,
    /// Longest time that a call may wait for its reply.
    #[serde(with = "duration")]
    pub call_timeout_max: Duration,
    /// Calls that may wait for replies at the same time, on each node.
    pub calls_limit: usize,
    /// Calls of one connection that may wait at the same time; a call of a group counts by its members. Beyond it:
    /// 4007.
    pub client_calls_limit: usize,
    /// Members that one call of a group may reach. Beyond it: 4007.
    pub call_members_limit: usize,
    /// Members in one reply; of larger groups the reply has a sample, with the exact count.
    pub members_limit: usize,
    /// Names that clients may have messages kept for (`send` with `store_for`), patterns as above. Empty = backends
    /// only.
    pub allow_store: Vec<String>,
    /// Messages that may be kept for one name (`send` with `store_for`); 0 = none are kept.
    pub inbox_size: usize,
    /// Longest time that such a message is kept.
    #[serde(with = "duration")]
    pub inbox_ttl_max: Duration,
}

impl Default for ScopeOptions {
    fn default() -> Self {
        ScopeOptions {
            name: String::new(),
            conflict_policy: ConflictPolicy::Newest,
            disconnect_losers: false,
            allow_register: Vec::new(),
            allow_join: Vec::new(),
            allow_lookup_for_client: false,
            allow_send_for_client: false,
            allow_call_for_client: false,
            allow_watch_for_client: false,
            watch_log_size: 16 * 1_024 * 1_024,
            allow_for_anonymous: false,
            name_max_length: 255,
            meta_max_size: 4_096,
            client_entries_limit: 128,
            call_timeout_max: Duration::from_secs(60),
            calls_limit: 10_000,
            client_calls_limit: 128,
            call_members_limit: 1_000,
            members_limit: 1_000,
            allow_store: Vec::new(),
            inbox_size: 0,
            inbox_ttl_max: Duration::from_secs(7 * 24 * 3_600),
        }
    }
}

/// Which registration keeps a contested name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConflictPolicy {
    /// The later registration; only here may a client take a name over.
    #[default]
    Newest,
    /// The earlier registration.
    Oldest,
    /// A name that has an owner is refused; after a race the earlier registration stays.
    Reject,
}

impl ScopeOptions {
    /// The settings of the scope's replica. `timing` is the node's.
    pub(super) fn settings(&self, timing: &ReplicaTiming) -> ReplicaSettings {
        let policy = match self.conflict_policy {
            ConflictPolicy::Newest => ConflictPolicyKind::Newest,
            ConflictPolicy::Oldest => ConflictPolicyKind::Oldest,
            ConflictPolicy::Reject => ConflictPolicyKind::Reject,
        };
        let limits = Limits {
            key_max: self.name_max_length,
            meta_max: self.meta_max_size,
            entries_of_owner_max: self.client_entries_limit,
        };
        ReplicaSettings { policy, limits, timing: timing.clone(), ..ReplicaSettings::default() }
    }
}

/// The scopes as a session sees them.
#[derive(Debug, Default)]
pub struct Scopes(pub(super) Vec<(ScopeOptions, View)>);

/// A scope of this node: its index in the configuration, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u16);

impl Scopes {
    /// The scope of this name; `None` = there is no such scope, or it is the server's own, whose name begins with `$`.
    pub fn find(&self, name: &str) -> Option<ScopeId> {
        if name.starts_with('$') {
            return None;
        }
        self.0.iter().position(|(options, _)| options.name == name).map(|index| ScopeId(index as u16))
    }

    /// The options of a scope; `None` = there is no such scope.
    pub fn options(&self, scope: ScopeId) -> Option<&ScopeOptions> {
        self.0.get(usize::from(scope.0)).map(|(options, _)| options)
    }
}

/// The part of a pattern that stands for the client's user.
pub(super) const USER_VARIABLE: &str = "{user}";

/// Whether a name fits a pattern of the configuration: `{user}` is the user, `*` anything. Without a user `{user}` fits
/// nothing.
pub(crate) fn fits(pattern: &str, name: &str, user: &str) -> bool {
    if user.is_empty() && pattern.contains(USER_VARIABLE) {
        return false;
    }
    wildcard::matches_with(pattern, USER_VARIABLE, user, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_what_it_says_and_nothing_else() {
        let cases = [
            ("*", "any", "", true),
            ("bike", "bike", "", true),
            ("bike", "bikes", "", false),
            ("user-{user}", "user-42", "42", true),
            ("user-{user}", "user-43", "42", false),
            ("user-{user}", "user-", "", false),
            ("{user}/*", "42/phone", "42", true),
            ("{user}/*", "4/2/phone", "42", false),
            ("a*b*c", "a-b-c", "", true),
            ("a*b*c", "a-c-b", "", false),
            ("ab*ba", "aba", "", false),
            ("a*bb*bc", "abbc", "", false),
            ("a*b", "ac", "", false),
            ("{user}*", "*x", "*", true),
        ];
        for (pattern, name, user, expected) in cases {
            assert_eq!(fits(pattern, name, user), expected, "{pattern} {name} {user}");
        }
    }
}
