//! An owned name or a membership, as one run of bytes behind a thin pointer. The table, the view, events and messages
//! share it, so nothing is stored twice.

use std::sync::Arc;

use triomphe::ThinArc;

use crate::clock::Stamp;
use crate::owners::OwnerId;

/// The number of bytes before the key: owner 16, stamp 8, revision 4, length of the key 2. Numbers are little-endian.
pub(crate) const FIXED: usize = 30;
// The sizes of owner, stamp, revision and the length of the key.
const _: () = assert!(FIXED == size_of::<OwnerId>() + size_of::<Stamp>() + size_of::<u32>() + size_of::<u16>());

/// A node's name behind a thin pointer, because each entry contains one.
#[derive(Debug, Clone)]
pub(crate) struct NodeName(triomphe::Arc<Arc<str>>);

impl NodeName {
    pub(crate) fn new(name: &str) -> Self {
        NodeName(triomphe::Arc::new(name.into()))
    }

    pub(crate) fn as_arc(&self) -> &Arc<str> {
        &self.0
    }
}

/// One claim of a name or one membership of a group: the key, the owner, the owner's node and the metadata.
#[derive(Clone)]
pub struct Entry(ThinArc<NodeName, u8>);

impl Entry {
    /// Creates an entry. A `key` longer than 65,535 bytes is cut.
    pub(crate) fn new(node: &NodeName, owner: OwnerId, stamp: Stamp, revision: u32, key: &str, meta: &[u8]) -> Self {
        let key = &key.as_bytes()[..key.len().min(usize::from(u16::MAX))];
        let mut bytes = Vec::with_capacity(FIXED + key.len() + meta.len());
        bytes.extend_from_slice(&owner.0);
        bytes.extend_from_slice(&stamp.0.to_le_bytes());
        bytes.extend_from_slice(&revision.to_le_bytes());
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(meta);
        Entry(ThinArc::from_header_and_slice(node.clone(), &bytes))
    }

    /// A copy with other metadata and the next revision.
    pub(crate) fn revise(&self, meta: &[u8]) -> Self {
        Entry::new(&self.0.header.header, self.owner(), self.stamp(), self.revision().wrapping_add(1), self.key(), meta)
    }

    /// A copy with another stamp.
    pub(crate) fn restamp(&self, stamp: Stamp) -> Self {
        Entry::new(&self.0.header.header, self.owner(), stamp, self.revision(), self.key(), self.meta())
    }

    /// Reads an entry that another node sent. `None` = the bytes are not valid.
    pub(crate) fn parse(node: &NodeName, bytes: &[u8]) -> Option<Self> {
        let length = u16::from_le_bytes(bytes.get(28..FIXED)?.try_into().ok()?);
        std::str::from_utf8(bytes.get(FIXED..FIXED + usize::from(length))?).ok()?;
        Some(Entry(ThinArc::from_header_and_slice(node.clone(), bytes)))
    }

    /// The bytes that are sent to other nodes: everything except the node.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0.slice
    }

    pub(crate) fn key_bytes(&self) -> &[u8] {
        let bytes = self.bytes();
        let length = usize::from(u16::from_le_bytes([bytes[28], bytes[29]]));
        &bytes[FIXED..FIXED + length]
    }

    /// Converts the entry to a raw pointer, for [`Entry::from_raw`].
    pub(crate) fn into_raw(self) -> *mut () {
        self.0.into_raw().cast_mut().cast()
    }

    /// # Safety
    /// `raw` must come from [`Entry::into_raw`], and no other entry may be made from it.
    #[expect(unsafe_code, reason = "the caller guarantees the conditions")]
    pub(crate) unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: the caller guarantees it.
        Entry(unsafe { ThinArc::from_raw(raw.cast_const().cast()) })
    }

    /// The name of the node that the owner is on.
    pub fn node(&self) -> &Arc<str> {
        self.0.header.header.as_arc()
    }

    /// The name or the group.
    pub fn key(&self) -> &str {
        std::str::from_utf8(self.key_bytes()).unwrap_or_default()
    }

    /// The id of the owner.
    pub fn owner(&self) -> OwnerId {
        OwnerId(*self.bytes().first_chunk().unwrap_or(&[0; 16]))
    }

    /// The time of the claim or the join.
    pub fn stamp(&self) -> Stamp {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.bytes()[16..24]);
        Stamp(u64::from_le_bytes(bytes))
    }

    /// How often the metadata has been replaced since the claim or the join. It wraps around.
    pub fn revision(&self) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.bytes()[24..28]);
        u32::from_le_bytes(bytes)
    }

    /// The metadata of the entry. It may be empty.
    pub fn meta(&self) -> &[u8] {
        &self.bytes()[FIXED + self.key_bytes().len()..]
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes() && self.node() == other.node()
    }
}

impl Eq for Entry {}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("key", &self.key())
            .field("node", self.node())
            .field("owner", &self.owner())
            .field("stamp", &self.stamp())
            .field("revision", &self.revision())
            .field("meta", &String::from_utf8_lossy(self.meta()))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_put_in_comes_out(owner: [u8; 16], stamp: u64, revision: u32, key in ".{0,40}", meta: Vec<u8>) {
            let node = NodeName::new("here");
            let entry = Entry::new(&node, OwnerId(owner), Stamp(stamp), revision, &key, &meta);
            let read = Entry::parse(&node, entry.bytes());
            prop_assert_eq!(read.as_ref(), Some(&entry));
            prop_assert_eq!((entry.owner().0, entry.stamp().0, entry.revision()), (owner, stamp, revision));
            prop_assert_eq!((entry.key(), entry.meta(), &**entry.node()), (&*key, &*meta, "here"));
        }

        #[test]
        fn any_bytes_are_an_entry_or_refused(bytes: Vec<u8>) {
            if let Some(entry) = Entry::parse(&NodeName::new("there"), &bytes) {
                prop_assert!(entry.key().len() + entry.meta().len() + FIXED == bytes.len());
            }
        }
    }
}
