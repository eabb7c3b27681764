//! The settings of a scope.

/// Which claim keeps a name that two authorities own, after a race or when a split heals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictPolicyKind {
    /// The later claim stays. Only with this policy may a register take over a name that another owner holds.
    #[default]
    Newest,
    /// The earlier claim stays.
    Oldest,
    /// A register of a name that is held is refused. After a race the earlier claim stays.
    Reject,
    /// The operator's backend decides. Without a valid answer in time, the later claim stays.
    Hook,
}

impl ConflictPolicyKind {
    /// The strictness of a policy: nodes whose scopes differ all follow the strictest one. It is also the policy's byte
    /// in messages.
    pub(crate) fn strictness(self) -> u8 {
        match self {
            ConflictPolicyKind::Newest => 0,
            ConflictPolicyKind::Hook => 1,
            ConflictPolicyKind::Oldest => 2,
            ConflictPolicyKind::Reject => 3,
        }
    }

    pub(crate) fn from_strictness(byte: u8) -> Option<ConflictPolicyKind> {
        [ConflictPolicyKind::Newest, ConflictPolicyKind::Hook, ConflictPolicyKind::Oldest, ConflictPolicyKind::Reject]
            .get(usize::from(byte))
            .copied()
    }
}

/// The limits of names, groups, metadata and entries.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The maximum length of a name or a group in bytes, 1 … 65,535.
    pub key_max: usize,
    /// The maximum length of metadata in bytes.
    pub meta_max: usize,
    /// The maximum number of names and memberships of one owner.
    pub entries_of_owner_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { key_max: 255, meta_max: 4_096, entries_of_owner_max: 1_024 }
    }
}

/// The intervals and timeouts of a replica, milliseconds.
#[derive(Debug, Clone)]
pub struct ReplicaTiming {
    /// The interval between two heartbeats.
    pub heartbeat_ms: u64,
    /// The silence after which a node's entries are purged, counted from when its next heartbeat was due.
    pub timeout_ms: u64,
    /// The interval between two requests for missing data.
    pub retry_ms: u64,
    /// The minimum interval between two snapshots for one node.
    pub snapshot_interval_ms: u64,
    /// How far another node's clock may move this node's stamps ahead.
    pub drift_max_ms: u64,
    /// The time that the backend has to resolve a conflict ([`ConflictPolicyKind::Hook`]).
    pub hook_timeout_ms: u64,
    /// The time that the host has to check its connections ([`crate::Output::Probe`]).
    pub probe_timeout_ms: u64,
}

impl Default for ReplicaTiming {
    fn default() -> Self {
        ReplicaTiming {
            heartbeat_ms: 1_000,
            timeout_ms: 5_000,
            retry_ms: 300,
            snapshot_interval_ms: 1_000,
            drift_max_ms: 10_000,
            hook_timeout_ms: 1_000,
            probe_timeout_ms: 10_000,
        }
    }
}

/// Returns the kind of a member by its metadata. `None` = the member is not counted. The same metadata must always give
/// the same kind.
pub type Classify = fn(&[u8]) -> Option<&[u8]>;

/// The settings of one scope on a node.
#[derive(Debug, Clone)]
pub struct ReplicaSettings {
    /// Which claim keeps a name that two authorities own.
    pub policy: ConflictPolicyKind,
    /// The limits of names, groups, metadata and entries.
    pub limits: Limits,
    /// The intervals and timeouts.
    pub timing: ReplicaTiming,
    /// The maximum size of messages with many operations, in bytes.
    pub message_max: usize,
    /// The size of past operations that are kept to fill other nodes' gaps, in bytes. A larger gap needs a snapshot.
    pub log_max: usize,
    /// What [`crate::Replica::member_counts`] counts in groups. `None` = nothing.
    pub classify: Option<Classify>,
}

impl Default for ReplicaSettings {
    fn default() -> Self {
        ReplicaSettings {
            policy: ConflictPolicyKind::default(),
            limits: Limits::default(),
            timing: ReplicaTiming::default(),
            message_max: 256 * 1_024,
            log_max: 4 * 1_024 * 1_024,
            classify: None,
        }
    }
}
