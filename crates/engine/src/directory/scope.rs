//! Scopes of the registry: their options, and what clients may do in them. Everything is off unless switched on.

use std::time::Duration;

use touchline_registry::{ConflictPolicyKind, Limits, ReplicaSettings, ReplicaTiming, View};

use crate::setting::{SOME, ValueKind};
use crate::wildcard;

settings! {
    /// A scope of the configuration.
    pub struct ScopeOptions {
        /// Who keeps a name that two connections own after a race or a split. Only with `newest` can a name be taken
        /// over.
        own conflict_policy: ConflictPolicy = ConflictPolicy::Newest;
        /// A client that loses a name is disconnected (3503), not only told.
        own disconnect_losers: bool = false;
        /// Names that clients may register: `{user}` is the client's user, `*` anything. A token's `register` claim
        /// allows more.
        own allow_register: Vec<String> = &[];
        /// Groups that clients may join: `{user}` is the client's user, `*` anything.
        own allow_join: Vec<String> = &[];
        /// Clients may look up and list names and groups.
        own allow_lookup_for_client: bool = false;
        /// Clients may send to names and groups.
        own allow_send_for_client: bool = false;
        /// Clients may call names and groups.
        own allow_call_for_client: bool = false;
        /// Changes are published to `$registry:<scope>`, and clients may subscribe to it.
        own allow_watch_for_client: bool = false;
        /// Bytes of past changes that are kept for those who watch the scope and have fallen behind; beyond them they
        /// list again.
        own watch_log_size: usize = 16_777_216, SOME;
        /// What clients may do in this scope, anonymous ones may do too.
        own allow_for_anonymous: bool = false;
        /// Longest name or group, bytes.
        own name_max_length: usize = 255, ValueKind::Integer(1, 65_535);
        /// Largest metadata, bytes of JSON.
        own meta_max_size: usize = 4_096, SOME;
        /// Names and memberships of one connection.
        own client_entries_limit: usize = 128, SOME;
        /// Longest time that a call may wait for its answer.
        own call_timeout_max: Duration = Duration::from_secs(60);
        /// Calls that may wait for answers at the same time, on each node.
        own calls_limit: usize = 10_000, SOME;
        /// Calls of one connection that may wait for answers at the same time; a call of a group counts by its members.
        /// Beyond it: 4007.
        own client_calls_limit: usize = 128, SOME;
        /// Names that clients may have messages kept for, patterns as in `allow_register`; empty = backends only.
        /// Clients also need `allow_send_for_client`.
        own allow_store: Vec<String> = &[];
        /// Messages that may be kept for one name until its owner acknowledges them (`send` with `store_for`), in
        /// `store.primary`; 0 = none are kept.
        own inbox_size: usize = 0, ValueKind::Integer(0, 1_000_000);
        /// Longest time that a message for a name is kept (`store_for`).
        own inbox_ttl_max: Duration = Duration::from_hours(168);
        /// Members that one call of a group may reach. Beyond it: 4007.
        own call_members_limit: usize = 1_000, SOME;
        /// Members in one answer; of larger groups a sample is shown, with the exact count.
        own members_limit: usize = 1_000, SOME;
        /// Its name.
        plain name: String = String::new();
    }
}

/// Which registration keeps a contested name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictPolicy {
    /// The later registration; only here may a client take a name over.
    #[default]
    Newest,
    /// The earlier registration.
    Oldest,
    /// A name that has an owner is refused; after a race the earlier registration stays.
    Reject,
    /// The registration that the backend chooses (`registry.proxy.conflict`); without its answer the later one.
    Hook,
}

words_of!(ConflictPolicy { Newest = "newest", Oldest = "oldest", Reject = "reject", Hook = "hook" });

impl ScopeOptions {
    /// The settings of the scope's replica. `timing` is the node's.
    pub(super) fn settings(&self, timing: &ReplicaTiming) -> ReplicaSettings {
        let policy = match self.conflict_policy {
            ConflictPolicy::Newest => ConflictPolicyKind::Newest,
            ConflictPolicy::Oldest => ConflictPolicyKind::Oldest,
            ConflictPolicy::Reject => ConflictPolicyKind::Reject,
            ConflictPolicy::Hook => ConflictPolicyKind::Hook,
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

    /// The same scopes with other options; a scope that has none there keeps its own.
    pub fn with_options(&self, options: &[ScopeOptions]) -> Scopes {
        let of = |known: &ScopeOptions| options.iter().find(|new| new.name == known.name).unwrap_or(known).clone();
        Scopes(self.0.iter().map(|(known, view)| (of(known), view.clone())).collect())
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
