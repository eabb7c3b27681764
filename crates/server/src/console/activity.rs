//! What has changed on a node, and who did it: the newest entries.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Entries that are kept.
const ENTRIES_MAX: usize = 1_000;
/// The longest target that is kept, bytes.
const TARGET_SHOWN_MAX: usize = 128;

/// Something that has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Activity {
    /// When, Unix milliseconds.
    pub(crate) at_ms: u64,
    /// The name of the node.
    pub(crate) node: String,
    /// Who: the address of somebody in the console, or `the node` itself. What callers of the server API change is not
    /// noted.
    pub(crate) who: String,
    /// `operator`, or empty.
    pub(crate) role: String,
    /// An operation, or `sign in`, `start`, `reload`, `drain`, `link lost`, `link back`, `node lost`.
    pub(crate) what: String,
    /// The channel, user, connection or name; empty = none.
    pub(crate) target: String,
    /// `ok`, or the error; empty for what nobody has done.
    pub(crate) result: String,
}

/// The newest of them.
#[derive(Debug, Default)]
pub(crate) struct ActivityLog(Mutex<VecDeque<Activity>>);

impl ActivityLog {
    /// Adds one, for the log too.
    pub(crate) fn note(&self, mut activity: Activity) {
        for text in [&mut activity.target, &mut activity.what] {
            text.truncate(text.floor_char_boundary(TARGET_SHOWN_MAX));
        }
        let Activity { who, role, what, target, result, .. } = &activity;
        tracing::info!(target: "touchline::audit", who, role, what, target = ?target, result, "changed");
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == ENTRIES_MAX {
            all.pop_front();
        }
        all.push_back(activity);
    }

    /// The newest ones, the newest first.
    pub(crate) fn newest(&self, most: usize) -> Vec<Activity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().take(most).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_with_short_targets() {
        let log = ActivityLog::default();
        for at_ms in 0..ENTRIES_MAX as u64 + 5 {
            log.note(Activity { at_ms, target: "é".repeat(100), ..Activity::default() });
        }
        let newest = log.newest(usize::MAX);
        assert_eq!((newest.len(), newest[0].at_ms), (ENTRIES_MAX, ENTRIES_MAX as u64 + 4));
        assert_eq!(newest[0].target.len(), TARGET_SHOWN_MAX);
    }
}
