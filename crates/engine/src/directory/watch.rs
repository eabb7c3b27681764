//! The changes of a scope, for its watchers. Each change has an offset. A few changes are pushed. If there are many,
//! the watchers only get the last offset, and they load the changes at their own pace.

use std::collections::VecDeque;

use touchline_registry::RegistryEvent;

use super::changes::{CHANGES_OVERHEAD_BYTES, ScopeChanges, size, write};
use super::reply::{DirectoryReply, Listed};
use super::watch_position::WatchPosition;
use crate::work::Work;

/// How many bytes of changes are pushed within [`WINDOW_MS`]. It is small compared with the queue of a connection that
/// reads slowly.
const PUSHED_SIZE: usize = 128 * 1_024;
const WINDOW_MS: u64 = 1_000;
/// The time between two marks, milliseconds. A mark says that there are more changes.
const MARK_MS: u64 = 100;
// A window without room for changes still has marks, so within the window watchers learn that they have to load.
const _: () = assert!(MARK_MS < WINDOW_MS);
/// The greatest number of changes in one reply, and their greatest size in bytes.
const REPLY_CHANGES: usize = 512;
const REPLY_SIZE: usize = 64 * 1_024;
/// The latest changes of a scope.
#[derive(Debug)]
pub(super) struct ScopeWatch {
    epoch: Box<str>,
    /// The offset of the latest change.
    last: u64,
    log: VecDeque<RegistryEvent>,
    bytes: usize,
    bytes_max: usize,
    /// The offset up to which changes were pushed or marked.
    announced: u64,
    /// When the window began, Unix milliseconds, and the bytes that were pushed within it.
    since_ms: u64,
    pushed: usize,
    /// The time of the last mark, Unix milliseconds.
    marked_ms: u64,
}

impl ScopeWatch {
    /// An empty log. `birth`: a random number that differs between incarnations of a node. `bytes_max`: bytes of past
    /// changes to keep.
    pub(super) fn new(birth: u64, bytes_max: usize) -> Self {
        ScopeWatch {
            epoch: format!("{birth:x}").into(),
            last: 0,
            log: VecDeque::new(),
            bytes: 0,
            bytes_max,
            announced: 0,
            since_ms: 0,
            pushed: 0,
            marked_ms: 0,
        }
    }

    /// Adds a change to the log.
    pub(super) fn note(&mut self, event: RegistryEvent) {
        self.last += 1;
        self.bytes += size(&event);
        self.log.push_back(event);
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.log.pop_front() else { break };
            self.bytes -= size(&oldest);
        }
    }

    /// The changes after an offset; `None` = some of them are no longer kept.
    fn behind(&self, offset: u64) -> Option<impl Iterator<Item = &RegistryEvent>> {
        let missing = usize::try_from(self.last.checked_sub(offset)?).ok()?;
        let skipped = self.log.len().checked_sub(missing)?;
        Some(self.log.iter().skip(skipped))
    }

    /// The push to watchers, JSON: new changes, or a mark with only the last offset. `None` = nothing has to be pushed
    /// now.
    pub(super) fn flush(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        if self.announced == self.last {
            return None;
        }
        if now_ms < self.since_ms || now_ms >= self.since_ms + WINDOW_MS {
            (self.since_ms, self.pushed) = (now_ms, 0);
        }
        let room = PUSHED_SIZE - self.pushed;
        // A watcher that has not received the changes before these has to load them in any case.
        let fresh = self
            .behind(self.announced)
            .filter(|_| self.last - self.announced <= (PUSHED_SIZE / CHANGES_OVERHEAD_BYTES) as u64);
        let fresh: Option<Vec<RegistryEvent>> = fresh.map(|fresh| fresh.cloned().collect());
        let fresh = fresh.map(|fresh| (fresh.iter().map(size).sum::<usize>(), fresh)).filter(|(size, _)| *size <= room);
        let changes = match fresh {
            Some((size, fresh)) => {
                self.pushed += size;
                Some(fresh)
            }
            None if now_ms >= self.marked_ms && now_ms < self.marked_ms + MARK_MS => return None,
            None => {
                self.marked_ms = now_ms;
                None
            }
        };
        self.announced = self.last;
        let position = WatchPosition { epoch: self.epoch.clone(), offset: self.last };
        Some(write(&position, changes.as_deref(), false, false))
    }

    /// When the next mark is due, Unix milliseconds; `None` = watchers know about all changes.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        (self.announced != self.last).then_some(self.marked_ms + MARK_MS)
    }

    /// The changes that a watcher has missed. Without a position it gets only the present position.
    pub(super) fn since(&self, position: Option<&WatchPosition>) -> DirectoryReply {
        let now = |offset| WatchPosition { epoch: self.epoch.clone(), offset };
        let Some(position) = position else {
            return reply(ScopeChanges {
                position: now(self.last),
                changes: Vec::new(),
                is_lost: false,
                has_more: false,
            });
        };
        let known = Some(position)
            .filter(|position| position.epoch == self.epoch)
            .and_then(|position| self.behind(position.offset));
        let Some(behind) = known else {
            return reply(ScopeChanges {
                position: now(self.last),
                changes: Vec::new(),
                is_lost: true,
                has_more: false,
            });
        };
        let mut bytes = 0;
        let fits = |event: &&RegistryEvent| {
            let is_first = bytes == 0;
            bytes += size(event);
            is_first || bytes <= REPLY_SIZE
        };
        let changes: Vec<RegistryEvent> = behind.take(REPLY_CHANGES).take_while(fits).cloned().collect();
        let offset = position.offset + changes.len() as u64;
        reply(ScopeChanges { position: now(offset), changes, is_lost: false, has_more: offset < self.last })
    }
}

/// The reply that contains these changes.
fn reply(changes: ScopeChanges) -> DirectoryReply {
    let work = Work { items: changes.changes.len(), bytes: changes.changes.iter().map(size).sum(), ..Work::default() };
    DirectoryReply::list(Listed::Changes(changes), work)
}
