//! The changes of a scope as a watcher receives them.

use touchline_protocol::encode::{self, ObjectWriter};
use touchline_registry::RegistryEvent;

use super::answer;
use super::watch_position::WatchPosition;

/// The bytes that a change takes in addition to its key and metadata, as JSON and in memory.
pub(super) const CHANGES_OVERHEAD_BYTES: usize = 200;

/// The reply to a watcher.
#[derive(Debug)]
pub(super) struct ScopeChanges {
    pub(super) position: WatchPosition,
    pub(super) changes: Vec<RegistryEvent>,
    pub(super) is_lost: bool,
    pub(super) has_more: bool,
}

impl ScopeChanges {
    pub(super) fn json(&self) -> Vec<u8> {
        write(&self.position, Some(&self.changes), self.is_lost, self.has_more)
    }
}

/// The approximate size of a change, as JSON and in memory, bytes.
pub(super) fn size(event: &RegistryEvent) -> usize {
    event.entry.key().len() + event.entry.meta().len() + CHANGES_OVERHEAD_BYTES
}

/// Writes the reply. `position` is that of the last change. Without changes the JSON is a mark.
pub(super) fn write(
    position: &WatchPosition,
    changes: Option<&[RegistryEvent]>,
    is_lost: bool,
    has_more: bool,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    encode::number(object.key("offset"), position.offset);
    object.text("epoch", &position.epoch);
    if let Some(changes) = changes.filter(|_| !is_lost) {
        encode::list(object.key("changes"), changes, |out, event| out.extend_from_slice(&answer::event(event)));
    }
    object.flag("list", is_lost).flag("more", has_more);
    object.close();
    out
}
