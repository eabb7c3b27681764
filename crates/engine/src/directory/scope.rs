//! Scopes of the registry: their options, and what clients may do in them. Everything is off by default.

use std::time::Duration;

use touchline_registry::{ConflictPolicyKind, Limits, ReplicaSettings, ReplicaTiming, View};

use crate::setting::{SOME, ValueKind};
use crate::wildcard;

settings! {
    /// The options of one configured scope.
    pub struct ScopeOptions {
        /// Which client keeps a name that two connections own after a race or a network split. A client can take a name
        /// over only with `newest`.
        own conflict_policy: ConflictPolicy = ConflictPolicy::Newest;
        /// A client that loses a name is disconnected (3503) instead of only notified.
        own disconnect_losers: bool = false;
        /// Patterns of the names that clients may register: `{user}` is the client's user, `*` is any text. A token's
        /// `register` claim allows more.
        own allow_register: Vec<String> = &[];
        /// Patterns of the groups that clients may join: `{user}` is the client's user, `*` is any text.
        own allow_join: Vec<String> = &[];
        /// Clients may look up and list names and groups.
        own allow_lookup_for_client: bool = false;
        /// Clients may send messages to names and groups.
        own allow_send_for_client: bool = false;
        /// Clients may call names and groups.
        own allow_call_for_client: bool = false;
        /// Changes are published to `$registry:<scope>`, and clients may subscribe to this channel.
        own allow_watch_for_client: bool = false;
        /// How many bytes of past changes are kept for watchers that have fallen behind. A watcher that needs older
        /// changes has to list the scope again.
        own watch_log_size: usize = 16_777_216, SOME;
        /// Anonymous clients may do everything that clients may do in this scope.
        own allow_for_anonymous: bool = false;
        /// The greatest length of a name or group, bytes.
        own name_max_length: usize = 255, ValueKind::Integer(1, 65_535);
        /// The greatest size of metadata, bytes of JSON.
        own meta_max_size: usize = 4_096, SOME;
        /// How many names and memberships one connection may have.
        own client_entries_limit: usize = 128, SOME;
        /// The longest time that a call may wait for its answer.
        own call_timeout_max: Duration = Duration::from_secs(60);
        /// How many calls may wait for answers at the same time, on each node.
        own calls_limit: usize = 10_000, SOME;
        /// How many calls of one connection may wait for answers at the same time. A call of a group counts once for
        /// each member. Calls beyond this limit fail with 4007.
        own client_calls_limit: usize = 128, SOME;
        /// Patterns of the names for which clients may have messages kept, as in `allow_register`; empty = only
        /// backends may. Clients also need `allow_send_for_client`.
        own allow_store: Vec<String> = &[];
        /// How many messages may be kept for one name in `store.primary` until its owner acknowledges them (`send` with
        /// `store_for`); 0 = none are kept.
        own inbox_size: usize = 0, ValueKind::Integer(0, 1_000_000);
        /// The longest time that a message for a name is kept (`store_for`).
        own inbox_ttl_max: Duration = Duration::from_hours(168);
        /// How many members one call of a group may reach. Calls beyond this limit fail with 4007.
        own call_members_limit: usize = 1_000, SOME;
        /// How many members one answer lists. For larger groups it lists a sample, with the exact count.
        own members_limit: usize = 1_000, SOME;
        /// The name of the scope.
        plain name: String = String::new();
    }
}

/// Which registration keeps a contested name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictPolicy {
    /// The later registration. Only with this policy may a client take a name over.
    #[default]
    Newest,
    /// The earlier registration keeps the name.
    Oldest,
    /// A name that has an owner is refused. After a race the earlier registration stays.
    Reject,
    /// The registration that the backend chooses (`registry.proxy.conflict`). Without its answer the later one stays.
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

/// The scopes of the registry as sessions see them.
#[derive(Debug, Default)]
pub struct Scopes(pub(super) Vec<(ScopeOptions, View)>);

/// A scope of this node, by its index in the configuration, starting at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(pub u16);

impl Scopes {
    /// The scope with this name; `None` = there is no such scope, or it is the server's own, whose name begins with
    /// `$`.
    pub fn find(&self, name: &str) -> Option<ScopeId> {
        if name.starts_with('$') {
            return None;
        }
        self.0.iter().position(|(options, _)| options.name == name).map(|index| ScopeId(index as u16))
    }

    /// The same scopes with other options. A scope that is missing in `options` keeps its own.
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

/// Whether a name fits a pattern of the configuration: `{user}` is the user, `*` is any text. If the user is empty,
/// `{user}` fits nothing.
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
