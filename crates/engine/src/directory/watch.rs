//! Changes of a scope, for its watchers. Each change has an offset. Few changes are pushed; of many changes the
//! watchers get only the last offset, and they load the changes at their own pace.

use std::collections::VecDeque;

use touchline_protocol::Error;
use touchline_protocol::encode::{self, ObjectWriter};
use touchline_registry::RegistryEvent;

use super::answer;
use super::reply::{DirectoryReply, Listed};
use crate::work::Work;

/// Bytes of changes that are pushed within [`WINDOW_MS`]: few, compared with the queue of a connection that reads
/// slowly.
const PUSHED_SIZE: usize = 128 * 1_024;
const WINDOW_MS: u64 = 1_000;
/// The time between two marks, which say that there are more changes, milliseconds.
const MARK_MS: u64 = 100;
/// Changes in one reply, and their bytes.
const REPLY_CHANGES: usize = 512;
const REPLY_SIZE: usize = 64 * 1_024;
/// Bytes around a change's key and metadata, as JSON and in memory.
const CHANGES_OVERHEAD_BYTES: usize = 200;

/// The position of a watcher in a node's log of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchPosition {
    /// The id of the log; each incarnation of a node has another one.
    pub epoch: Box<str>,
    /// The offset of the last change that the watcher knows; 0 = before the first.
    pub offset: u64,
}

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

fn size(event: &RegistryEvent) -> usize {
    event.entry.key().len() + event.entry.meta().len() + CHANGES_OVERHEAD_BYTES
}

impl ScopeWatch {
    /// `birth`: random, another one in each incarnation of a node. `bytes_max`: bytes of past changes that are kept.
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

    /// Notes a change.
    pub(super) fn note(&mut self, event: RegistryEvent) {
        self.last += 1;
        self.bytes += size(&event);
        self.log.push_back(event);
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.log.pop_front() else { break };
            self.bytes -= size(&oldest);
        }
    }

    /// The changes after an offset; `None` = some of them are not kept any more.
    fn behind(&self, offset: u64) -> Option<impl Iterator<Item = &RegistryEvent>> {
        let missing = usize::try_from(self.last.checked_sub(offset)?).ok()?;
        let skipped = self.log.len().checked_sub(missing)?;
        Some(self.log.iter().skip(skipped))
    }

    /// The push to watchers, JSON: new changes, or a mark with the last offset only. `None` = nothing is to be pushed
    /// now.
    pub(super) fn flush(&mut self, now_ms: u64) -> Option<Vec<u8>> {
        if self.announced == self.last {
            return None;
        }
        if now_ms < self.since_ms || now_ms >= self.since_ms + WINDOW_MS {
            (self.since_ms, self.pushed) = (now_ms, 0);
        }
        let room = PUSHED_SIZE - self.pushed;
        // A watcher that has not got the changes before these has to load them in any case.
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

    /// When the next mark is due, Unix milliseconds; `None` = watchers know of all changes.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        (self.announced != self.last).then_some(self.marked_ms + MARK_MS)
    }

    /// The changes that a watcher has missed. Without a position it gets the present position only.
    pub(super) fn since(&self, position: Option<&WatchPosition>) -> DirectoryReply {
        let now = |offset| WatchPosition { epoch: self.epoch.clone(), offset };
        let Some(position) = position else {
            return ScopeChanges { position: now(self.last), changes: Vec::new(), is_lost: false, has_more: false }
                .into_reply();
        };
        let known = Some(position)
            .filter(|position| position.epoch == self.epoch)
            .and_then(|position| self.behind(position.offset));
        let Some(behind) = known else {
            return ScopeChanges { position: now(self.last), changes: Vec::new(), is_lost: true, has_more: false }
                .into_reply();
        };
        let mut bytes = 0;
        let fits = |event: &&RegistryEvent| {
            let is_first = bytes == 0;
            bytes += size(event);
            is_first || bytes <= REPLY_SIZE
        };
        let changes: Vec<RegistryEvent> = behind.take(REPLY_CHANGES).take_while(fits).cloned().collect();
        let offset = position.offset + changes.len() as u64;
        ScopeChanges { position: now(offset), changes, is_lost: false, has_more: offset < self.last }.into_reply()
    }
}

/// The reply to a watcher.
#[derive(Debug)]
pub(super) struct ScopeChanges {
    position: WatchPosition,
    changes: Vec<RegistryEvent>,
    is_lost: bool,
    has_more: bool,
}

impl ScopeChanges {
    fn into_reply(self) -> DirectoryReply {
        let work = Work { items: self.changes.len(), bytes: self.changes.iter().map(size).sum(), ..Work::default() };
        DirectoryReply::list(Listed::Changes(self), work)
    }

    pub(super) fn json(&self) -> Vec<u8> {
        write(&self.position, Some(&self.changes), self.is_lost, self.has_more)
    }
}

/// `position` is that of the last change. Without changes the JSON is a mark.
fn write(position: &WatchPosition, changes: Option<&[RegistryEvent]>, is_lost: bool, has_more: bool) -> Vec<u8> {
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

/// Reads a position as clients send it; `None` = neither an epoch nor an offset is given.
///
/// # Errors
/// 107 for an offset without an epoch, or an epoch that is not valid.
pub(super) fn position(epoch: &str, offset: u64) -> Result<Option<WatchPosition>, Error> {
    match epoch {
        "" if offset == 0 => Ok(None),
        epoch if (1..=16).contains(&epoch.len()) => Ok(Some(WatchPosition { epoch: epoch.into(), offset })),
        _ => Err(Error::BAD_REQUEST),
    }
}
