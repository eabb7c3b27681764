//! What a replica knows of another node.

use std::sync::Arc;

use crate::settings::ConflictPolicyKind;

/// One life of a node. Later lives have greater orders, as far as clocks and others' memory tell; the birth number
/// keeps all lives apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Incarnation {
    pub(crate) order: u64,
    pub(crate) birth: u64,
}

/// Another node of the scope.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: Arc<str>,
    pub(crate) incarnation: Incarnation,
    /// Its place in the table.
    pub(crate) authority: u32,
    /// Its entries are in the table and operations are applied. Until then a snapshot is awaited, and operations are
    /// not applied.
    pub(crate) is_live: bool,
    /// The host was told that the node is up.
    pub(crate) is_announced: bool,
    /// The node has said that it has the entries of this node's present incarnation.
    pub(crate) has_ours: bool,
    /// Its policy and its limits of keys and metadata, by its own settings.
    pub(crate) policy: ConflictPolicyKind,
    pub(crate) limits: (u64, u64),
    /// The last operation that was applied.
    pub(crate) applied: u64,
    /// When it was last known to be followed: it said what is here already, or something that was missing came.
    pub(crate) in_step_ms: u64,
    /// When it last said something that could be followed, whatever has happened to this node since.
    pub(crate) heard_ms: u64,
    /// When something missing was last asked for.
    pub(crate) asked_ms: Option<u64>,
    /// The number of the snapshot that was asked for; 0 = none was.
    pub(crate) nonce: u64,
    /// When it last got a snapshot.
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

    /// What is known of it is not enough any more: only a snapshot asked for from now on is.
    pub(crate) fn start_over(&mut self) {
        (self.is_live, self.applied, self.nonce) = (false, 0, 0);
        (self.asked_ms, self.assembly) = (None, None);
    }
}

/// A snapshot whose pieces come in.
#[derive(Debug)]
pub(crate) struct SnapshotAssembly {
    pub(crate) last: u64,
    pieces: Vec<Option<Box<[u8]>>>,
    missing: usize,
}

/// Most pieces of one snapshot.
const PARTS_MAX: u64 = 65_536;

impl SnapshotAssembly {
    /// `None` if the number of pieces makes no sense.
    pub(crate) fn new(last: u64, parts: u64) -> Option<Self> {
        let parts = usize::try_from(parts).ok().filter(|_| (1..=PARTS_MAX).contains(&parts))?;
        Some(SnapshotAssembly { last, pieces: vec![None; parts], missing: parts })
    }

    pub(crate) fn fits(&self, last: u64, parts: u64) -> bool {
        self.last == last && self.pieces.len() as u64 == parts
    }

    /// Takes a piece; true when it was the last one missing.
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
