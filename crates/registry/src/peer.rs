//! What a replica knows about another node.

use std::sync::Arc;

use crate::settings::ConflictPolicyKind;

/// One life of a node. Later lives have higher orders, as far as clocks and other nodes' memory allow. The birth number
/// distinguishes all lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Incarnation {
    pub(crate) order: u64,
    pub(crate) birth: u64,
}

/// Another node of the scope. Times are Unix milliseconds.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: Arc<str>,
    pub(crate) incarnation: Incarnation,
    /// The node's index among the table's authorities.
    pub(crate) authority: u32,
    /// The node's entries are in the table, and operations are applied. Until then the replica waits for a snapshot and
    /// does not apply operations.
    pub(crate) is_live: bool,
    /// The host was notified that the node is up.
    pub(crate) is_announced: bool,
    /// The node has reported that it has the entries of this node's current incarnation.
    pub(crate) has_ours: bool,
    /// The policy and the limits for keys and metadata from the node's own settings.
    pub(crate) policy: ConflictPolicyKind,
    pub(crate) limits: (u64, u64),
    /// The number of the last applied operation.
    pub(crate) applied: u64,
    /// When the node was last in sync: its message matched what is here, or missing data arrived.
    pub(crate) in_step_ms: u64,
    /// When the node last sent a message that could be followed, whatever happened to this node since.
    pub(crate) heard_ms: u64,
    /// When missing data was last requested. `None` = never.
    pub(crate) asked_ms: Option<u64>,
    /// The nonce of the requested snapshot. 0 = none was requested.
    pub(crate) nonce: u64,
    /// When this replica last sent a snapshot to the node. `None` = never.
    pub(crate) served_ms: Option<u64>,
    pub(crate) assembly: Option<SnapshotAssembly>,
}

impl Peer {
    pub(crate) fn new(
        name: Arc<str>,
        incarnation: Incarnation,
        authority: u32,
        policy: ConflictPolicyKind,
        now_ms: u64,
    ) -> Self {
        Peer {
            name,
            incarnation,
            authority,
            is_live: false,
            is_announced: false,
            has_ours: false,
            policy,
            limits: (u64::MAX, u64::MAX),
            applied: 0,
            in_step_ms: now_ms,
            heard_ms: now_ms,
            asked_ms: None,
            nonce: 0,
            served_ms: None,
            assembly: None,
        }
    }

    /// Discards the sync state. Only a snapshot that is requested from now on makes the node live again.
    pub(crate) fn start_over(&mut self) {
        (self.is_live, self.applied, self.nonce) = (false, 0, 0);
        (self.asked_ms, self.assembly) = (None, None);
    }
}

/// A snapshot that is being assembled from its parts.
#[derive(Debug)]
pub(crate) struct SnapshotAssembly {
    pub(crate) last: u64,
    pieces: Vec<Option<Box<[u8]>>>,
    missing: usize,
}

/// The maximum number of parts of one snapshot.
const PARTS_MAX: u64 = 65_536;

impl SnapshotAssembly {
    /// Creates an empty assembly. `None` = the number of parts is not valid.
    pub(crate) fn new(last: u64, parts: u64) -> Option<Self> {
        let parts = usize::try_from(parts).ok().filter(|_| (1..=PARTS_MAX).contains(&parts))?;
        Some(SnapshotAssembly { last, pieces: vec![None; parts], missing: parts })
    }

    pub(crate) fn fits(&self, last: u64, parts: u64) -> bool {
        self.last == last && self.pieces.len() as u64 == parts
    }

    /// Stores a part. Returns true if it was the last missing one.
    pub(crate) fn put(&mut self, part: u64, operations: &[u8]) -> bool {
        let Some(piece) = usize::try_from(part).ok().and_then(|part| self.pieces.get_mut(part)) else { return false };
        if piece.is_none() {
            *piece = Some(operations.into());
            self.missing -= 1;
        }
        self.missing == 0
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().flatten().map(|piece| &**piece)
    }
}
