//! When users were connected last: where it is kept, how it is written, and how it is read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use touchline_config::Settings;
use touchline_store::{SeenUser, Store};

use super::facts::FactBackend;
use crate::node::Node;
use crate::runtime::seen_users::SeenUsers;

/// Users whose times are written in one write; there is one a second.
const ROWS_MAX: usize = 2_000;
/// How long a question waits for the primary database. Less than nodes wait for each other.
const READ_TIMEOUT: Duration = Duration::from_millis(500);

/// When users were connected last, as far as it is known.
pub(crate) struct LastSeen {
    /// Unix seconds, in the order of the users; None = unknown.
    pub(crate) seen_s: Vec<Option<u64>>,
    /// The primary database has not answered.
    pub(crate) is_cut_off: bool,
}

/// What a node with these settings begins with; None = it is switched off.
pub(crate) fn begin(settings: &Settings) -> Option<Arc<SeenUsers>> {
    if !settings.user_status.enabled {
        return None;
    }
    let is_written = FactBackend::of(settings) == FactBackend::Primary;
    if !is_written {
        tracing::warn!(
            "when users were connected last is in the memory of each node, and gone when it stops: let \
             store.primary.url be PostgreSQL, or set user_status.use_primary on a node without a cluster"
        );
    }
    Some(Arc::new(SeenUsers::new(is_written)))
}

/// Until when a time is too old to be told, Unix seconds.
fn expired_s(node: &Node) -> u64 {
    (node.clock.now_ms() / 1_000).saturating_sub(node.generation().settings.user_status.expire_interval.as_secs())
}

/// Writes some of those who wait, or forgets who was not seen for long. Once a second.
pub(crate) fn tick(node: &Node, seen: &Arc<SeenUsers>) {
    match node.store() {
        Some(store) if seen.is_written => write(store, seen, ROWS_MAX),
        _ => seen.expire(expired_s(node)),
    }
}

/// Writes all who wait, before the store is closed.
pub(crate) fn finish(node: &Node) {
    if let (Some(store), Some(seen)) = (node.store(), &node.seen)
        && seen.is_written
    {
        write(store, seen, usize::MAX);
    }
}

fn write(store: &Store, seen: &Arc<SeenUsers>, rows_max: usize) {
    if let Some(rows) = seen.begin_write(rows_max) {
        let (of_seen, written) = (Arc::clone(seen), rows.clone());
        store.note_seen(rows, Box::new(move |result| of_seen.end_write(&written, result.is_ok())));
    }
}

/// When users were connected last.
pub(crate) async fn read(node: &Node, seen: &SeenUsers, users: &[Box<str>]) -> LastSeen {
    let after_s = expired_s(node);
    let stored = match node.store() {
        Some(store) if seen.is_written => stored(store, users, after_s).await,
        _ => Some(Vec::new()),
    };
    let is_cut_off = stored.is_none();
    let stored = stored.unwrap_or_default();
    let by_user: HashMap<&str, u64> = stored.iter().map(|row| (&*row.user, row.seen_s)).collect();
    // Read behind the database: what was written meanwhile stands in one of the two.
    let held = seen.held(users).into_iter().zip(users);
    let seen_s = held.map(|(held, user)| held.max(by_user.get(&**user).copied()).filter(|at| *at > after_s)).collect();
    LastSeen { seen_s, is_cut_off }
}

/// What the primary database knows; None = it has not answered in time.
async fn stored(store: &Store, users: &[Box<str>], after_s: u64) -> Option<Vec<SeenUser>> {
    let users: Vec<Box<str>> = users.iter().filter(|user| SeenUser::is_kept(user)).cloned().collect();
    if users.is_empty() {
        return Some(Vec::new());
    }
    let (sender, reply) = oneshot::channel();
    let done = move |result| {
        let _ = sender.send(result);
    };
    store.seen(users, after_s, Box::new(done));
    tokio::time::timeout(READ_TIMEOUT, reply).await.ok()?.ok()?.ok()
}
