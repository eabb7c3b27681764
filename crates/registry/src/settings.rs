//! What a scope may be told.

/// Who keeps a name that two authorities own: after a race, or when a split heals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictPolicyKind {
    /// The later claim. Only here may a register take a name over that somebody holds.
    #[default]
    Newest,
    /// The earlier claim.
    Oldest,
    /// A name that is held is refused; of a race the earlier claim stays.
    Reject,
    /// The operator's backend says; without a good answer in time, the later claim.
    Hook,
}

impl ConflictPolicyKind {
    /// Which of two policies is the stricter one: nodes whose scopes differ all follow the strictest. Also its byte in
    /// messages.
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

/// Longest and most of everything that comes in.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a name or a group, 1 … 65,535.
    pub key_max: usize,
    /// Bytes of metadata.
    pub meta_max: usize,
    /// Names and memberships of one owner.
    pub entries_of_owner_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { key_max: 255, meta_max: 4_096, entries_of_owner_max: 1_024 }
    }
}

/// When things happen, milliseconds.
#[derive(Debug, Clone)]
pub struct ReplicaTiming {
    /// Between two heartbeats.
    pub heartbeat_ms: u64,
    /// Silence after which a node's entries are purged, counted from when its next heartbeat was due.
    pub timeout_ms: u64,
    /// Between two requests for what is missing.
    pub retry_ms: u64,
    /// Between two snapshots for one node.
    pub snapshot_interval_ms: u64,
    /// How far another node's clock may pull this one's stamps ahead.
    pub drift_max_ms: u64,
    /// How long the backend may take to resolve a conflict ([`ConflictPolicyKind::Hook`]).
    pub hook_timeout_ms: u64,
    /// How long the host may take to look at its connections ([`crate::Output::Probe`]).
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

/// Tells by a member's metadata of which kind it is; `None` = it does not count. The same metadata must always give the
/// same.
pub type Classify = fn(&[u8]) -> Option<&[u8]>;

/// A scope on a node.
#[derive(Debug, Clone)]
pub struct ReplicaSettings {
    /// Who keeps a name that two own.
    pub policy: ConflictPolicyKind,
    /// Limits of what comes in.
    pub limits: Limits,
    /// Times.
    pub timing: ReplicaTiming,
    /// Bytes of messages with many operations.
    pub message_max: usize,
    /// Bytes of past operations that are kept to fill others' gaps. Beyond it they get a snapshot.
    pub log_max: usize,
    /// What [`crate::Replica::member_counts`] counts of groups; `None` = nothing.
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
