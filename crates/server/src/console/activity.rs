//! The newest changes on a node, with their authors.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use touchline_lock::Lock;

/// The most entries that are kept.
const ENTRIES_MAX: usize = 1_000;
/// The longest target that is kept, in bytes.
const TARGET_SHOWN_MAX: usize = 128;

/// A change on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Activity {
    /// The time of the change, in Unix milliseconds.
    pub(crate) at_ms: u64,
    /// The name of the node.
    pub(crate) node: String,
    /// The author: the address of a user of the console, or `the node` itself. Changes by callers of the
    /// server API are not noted.
    pub(crate) who: String,
    /// The role `operator`, or empty.
    pub(crate) role: String,
    /// The change: an operation, or `sign in`, `start`, `reload`, `drain`, `link lost`, `link back`, `node lost`.
    pub(crate) what: String,
    /// The channel, user, connection or name that changed; empty = none.
    pub(crate) target: String,
    /// The result: `ok`, or the error; empty for `link lost`, `link back` and `node lost`.
    pub(crate) result: String,
}

/// The newest changes, up to [`ENTRIES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct ActivityLog(Lock<VecDeque<Activity>>);

impl ActivityLog {
    /// Adds a change, and logs it.
    pub(crate) fn note(&self, mut activity: Activity) {
        for text in [&mut activity.target, &mut activity.what] {
            text.truncate(text.floor_char_boundary(TARGET_SHOWN_MAX));
        }
        let Activity { who, role, what, target, result, .. } = &activity;
        tracing::info!(target: "touchline::audit", who, role, what, target = ?target, result, "changed");
        let mut all = self.0.lock();
        if all.len() == ENTRIES_MAX {
            all.pop_front();
        }
        all.push_back(activity);
    }

    /// Removes a user from the entries about it. The entries stay, without a target.
    pub(crate) fn forget(&self, user: &str) {
        let shown = &user[..user.floor_char_boundary(TARGET_SHOWN_MAX)];
        let mut all = self.0.lock();
        all.iter_mut().filter(|activity| activity.target == shown).for_each(|activity| activity.target.clear());
    }

    /// Returns the newest changes, the newest first.
    pub(crate) fn newest(&self, most: usize) -> Vec<Activity> {
        self.0.lock().iter().rev().take(most).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_taken_out_of_what_was_done_to_it() {
        let log = ActivityLog::default();
        for target in ["42", "421", "42"] {
            log.note(Activity { what: "block_user".to_owned(), target: target.to_owned(), ..Activity::default() });
        }
        log.forget("42");
        let targets: Vec<String> = log.newest(9).into_iter().map(|activity| activity.target).collect();
        assert_eq!(targets, ["", "421", ""]);
        let long = "é".repeat(100);
        log.note(Activity { target: long.clone(), ..Activity::default() });
        log.forget(&long);
        assert_eq!(log.newest(1)[0].target, "");
    }

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
