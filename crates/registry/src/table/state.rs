//! The state of a replica's table, with the digest and the number of entries of each authority.

use super::name_walk::NameWalk;
use crate::clock::Stamp;
use crate::digest;
use crate::entry::{Entry, NodeName};
use crate::event::RegistryEvent;
use crate::groups::Groups;
use crate::hash_seed::HashSeed;
use crate::names::Names;
use crate::owners::Owners;
use crate::settings::{Classify, ConflictPolicyKind};
use crate::slab::{NONE, Slab};
use crate::view::{View, ViewWriter};

/// The index of this node's own authority.
pub(crate) const SELF: u32 = 0;

/// A node as the owner of entries.
#[derive(Debug)]
pub(crate) struct Authority {
    pub(crate) node: NodeName,
    /// The first of the authority's owners. [`NONE`] = it has none.
    pub(super) first_owner: u32,
    /// The sum of the hashes of the authority's entries.
    pub(crate) digest: u64,
    pub(crate) entries: u64,
    /// Claims up to this stamp are doubtful because other nodes had purged the node. Zero = no claims are doubtful.
    pub(crate) doubt: Stamp,
    /// The node is suspected to be dead: all its claims are doubtful, and no claim yields to them.
    pub(crate) is_suspected: bool,
    /// All entries of the node are here. Until then no claim yields to its claims.
    pub(crate) is_settled: bool,
    /// The node's entries may be out of date; see [`Table::set_stale`].
    pub(super) is_stale: bool,
    /// The number of the latest snapshot, modulo 256.
    pub(super) mark: u8,
}

/// The entries of all authorities.
#[derive(Debug)]
pub(crate) struct Table {
    pub(super) policy: ConflictPolicyKind,
    pub(super) authorities: Slab<Authority>,
    pub(super) owners: Owners,
    pub(super) names: Names,
    pub(super) name_walk: NameWalk,
    pub(super) groups: Groups,
    pub(super) view: ViewWriter,
    pub(crate) events: Vec<RegistryEvent>,
    /// Names that a claim of this node has lost since they were last collected.
    pub(crate) beaten: Vec<Entry>,
}

impl Table {
    pub(crate) fn new(policy: ConflictPolicyKind, classify: Option<Classify>, node: &str, seed: HashSeed) -> Self {
        let hasher = seed.fold();
        let mut table = Table {
            policy,
            authorities: Slab::default(),
            owners: Owners::new(hasher),
            names: Names::new(hasher),
            name_walk: NameWalk::default(),
            groups: Groups::new(classify, hasher),
            view: ViewWriter::new(hasher),
            events: Vec::new(),
            beaten: Vec::new(),
        };
        let own = table.add_authority(node);
        table.authorities[own].is_settled = true;
        table
    }

    pub(crate) fn policy(&self) -> ConflictPolicyKind {
        self.policy
    }

    pub(crate) fn view(&self) -> &View {
        self.view.view()
    }

    pub(crate) fn add_authority(&mut self, node: &str) -> u32 {
        self.authorities.insert(Authority {
            node: NodeName::new(node),
            first_owner: NONE,
            digest: 0,
            entries: 0,
            doubt: Stamp(0),
            is_suspected: false,
            is_settled: false,
            is_stale: false,
            mark: 0,
        })
    }

    pub(crate) fn authority(&self, authority: u32) -> &Authority {
        &self.authorities[authority]
    }

    /// Whether a claim's name may have been given to another owner while its node was away.
    pub(crate) fn is_doubtful(&self, authority: u32, stamp: Stamp) -> bool {
        let authority = &self.authorities[authority];
        authority.is_suspected || stamp <= authority.doubt
    }

    pub(super) fn account_claim(&mut self, authority: u32, index: u32, is_added: bool) {
        let claim = &self.names.claims[index];
        let hash = digest::claim(&claim.entry, claim.rank);
        self.account(authority, hash, is_added);
    }

    pub(super) fn account_member(&mut self, authority: u32, index: u32, is_added: bool) {
        let hash = digest::member(&self.groups.members[index].entry);
        self.account(authority, hash, is_added);
    }

    fn account(&mut self, authority: u32, hash: u64, is_added: bool) {
        let authority = &mut self.authorities[authority];
        if is_added {
            authority.digest = authority.digest.wrapping_add(hash);
            authority.entries += 1;
        } else {
            authority.digest = authority.digest.wrapping_sub(hash);
            authority.entries -= 1;
        }
    }

    pub(super) fn publish_counts(&self) {
        self.view.count(self.groups.members.len(), self.groups.len());
    }

    pub(super) fn release_owner(&mut self, authority: u32, owner: u32) {
        self.owners.get_mut(owner).entries -= 1;
        self.owners.release(owner, &mut self.authorities[authority].first_owner);
    }

    /// The claim of an authority in a name's chain.
    pub(super) fn claim_of(&self, head: Option<u32>, authority: u32) -> Option<u32> {
        self.names.chain(head).find(|&index| self.owners.get(self.names.claims[index].owner).authority() == authority)
    }
}
