//! A watcher's position in the changes of a scope.

use touchline_protocol::Error;

/// The greatest length of the epoch of a log of changes, bytes.
pub(super) const EPOCH_LEN_MAX: usize = 16;

/// A watcher's position in a node's log of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchPosition {
    /// The id of the log. It differs between incarnations of a node.
    pub epoch: Box<str>,
    /// The offset of the last change that the watcher knows; 0 = it knows none.
    pub offset: u64,
}

/// Reads a position as clients send it; `None` = neither an epoch nor an offset is given.
///
/// # Errors
/// 107 for an offset without an epoch, or an epoch that is not valid.
pub(super) fn position(epoch: &str, offset: u64) -> Result<Option<WatchPosition>, Error> {
    match epoch {
        "" if offset == 0 => Ok(None),
        epoch if (1..=EPOCH_LEN_MAX).contains(&epoch.len()) => Ok(Some(WatchPosition { epoch: epoch.into(), offset })),
        _ => Err(Error::BAD_REQUEST),
    }
}
