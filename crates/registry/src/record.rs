//! An entry as one run of bytes, shared by the table, the view, events and messages: nothing of it is kept twice.

use std::sync::Arc;

use crate::clock::Stamp;
use crate::owners::OwnerId;

/// Bytes before the key: owner 16, stamp 8, revision 4, length of the key 2; numbers little-endian.
const FIXED: usize = 30;

/// Who holds what: a claim of a name, or a membership of a group.
#[derive(Clone, PartialEq, Eq)]
pub struct Record(Arc<[u8]>);

impl Record {
    /// `key`: at most 65,535 bytes; longer ones are cut.
    pub(crate) fn new(owner: OwnerId, stamp: Stamp, revision: u32, key: &str, meta: &[u8]) -> Self {
        let key = &key.as_bytes()[..key.len().min(usize::from(u16::MAX))];
        let mut bytes = Vec::with_capacity(FIXED + key.len() + meta.len());
        bytes.extend_from_slice(&owner.0);
        bytes.extend_from_slice(&stamp.0.to_le_bytes());
        bytes.extend_from_slice(&revision.to_le_bytes());
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(meta);
        Record(bytes.into())
    }

    /// The same with other metadata, once more revised.
    pub(crate) fn revise(&self, meta: &[u8]) -> Self {
        Record::new(self.owner(), self.stamp(), self.revision().wrapping_add(1), self.key(), meta)
    }

    /// The same with another stamp.
    pub(crate) fn restamp(&self, stamp: Stamp) -> Self {
        Record::new(self.owner(), stamp, self.revision(), self.key(), self.meta())
    }

    /// From another node; `None` if the bytes are none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let length = u16::from_le_bytes(bytes.get(28..FIXED)?.try_into().ok()?);
        std::str::from_utf8(bytes.get(FIXED..FIXED + usize::from(length))?).ok()?;
        Some(Record(bytes.into()))
    }

    /// As it travels.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn key_bytes(&self) -> &[u8] {
        let length = usize::from(u16::from_le_bytes([self.0[28], self.0[29]]));
        &self.0[FIXED..FIXED + length]
    }

    /// The name, or the group.
    pub fn key(&self) -> &str {
        std::str::from_utf8(self.key_bytes()).unwrap_or_default()
    }

    /// Whose it is.
    pub fn owner(&self) -> OwnerId {
        OwnerId(*self.0.first_chunk().unwrap_or(&[0; 16]))
    }

    /// When it was claimed or joined.
    pub fn stamp(&self) -> Stamp {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[16..24]);
        Stamp(u64::from_le_bytes(bytes))
    }

    /// How often its metadata has been replaced since.
    pub fn revision(&self) -> u32 {
        u32::from_le_bytes([self.0[24], self.0[25], self.0[26], self.0[27]])
    }

    /// Its metadata.
    pub fn meta(&self) -> &[u8] {
        &self.0[FIXED + self.key_bytes().len()..]
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("key", &self.key())
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
            let record = Record::new(OwnerId(owner), Stamp(stamp), revision, &key, &meta);
            let read = Record::parse(record.bytes());
            prop_assert_eq!(read.as_ref(), Some(&record));
            prop_assert_eq!((record.owner().0, record.stamp().0, record.revision()), (owner, stamp, revision));
            prop_assert_eq!((record.key(), record.meta()), (&*key, &*meta));
        }

        #[test]
        fn any_bytes_are_a_record_or_refused(bytes: Vec<u8>) {
            if let Some(record) = Record::parse(&bytes) {
                prop_assert!(record.key().len() + record.meta().len() + FIXED == bytes.len());
            }
        }
    }
}
