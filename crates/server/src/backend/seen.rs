//! The times when users were last connected: where they are kept, and how they are written and read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use touchline_config::Settings;
use touchline_store::{SeenUser, Store};

use super::facts::FactBackend;
use crate::node::Node;
use crate::runtime::seen_users::SeenUsers;

/// The most users whose times one write stores. There is one write a second.
const ROWS_MAX: usize = 2_000;
/// How long a request waits for the primary database. It is less than nodes wait for each other.
const READ_TIMEOUT: Duration = Duration::from_millis(500);

/// When users were last connected, as far as it is known.
pub(crate) struct LastSeen {
    /// The times in Unix seconds, in the order of the users; None = unknown.
    pub(crate) seen_s: Vec<Option<u64>>,
    /// The primary database has not answered.
    pub(crate) is_cut_off: bool,
}

/// Returns the users that a node with these settings begins with; None = the feature is off.
pub(crate) fn begin(settings: &Settings) -> Option<Arc<SeenUsers>> {
    if !settings.user_status.enabled {
        return None;
    }
    let is_written = FactBackend::of(settings) == FactBackend::Primary;
    if !is_written {
        tracing::warn!(
            "the times of users' last connections are in the memory of each node, and lost when it stops: use \
             PostgreSQL as store.primary.url, or set user_status.use_primary on a node without a cluster"
        );
    }
    Some(Arc::new(SeenUsers::new(is_written)))
}

/// Returns the time before which times have expired, in Unix seconds.
fn expired_s(node: &Node) -> u64 {
    (node.clock.now_ms() / 1_000).saturating_sub(node.generation().settings.user_status.expire_interval.as_secs())
}

/// Writes some of the waiting times, or forgets expired ones. Called once a second.
pub(crate) fn tick(node: &Node, seen: &Arc<SeenUsers>) {
    match node.store() {
        Some(store) if seen.is_written => write(store, seen, ROWS_MAX),
        _ => seen.expire(expired_s(node)),
    }
}

/// Writes all waiting times, before the store is closed.
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

/// Returns when users were last connected.
pub(crate) async fn read(node: &Node, seen: &SeenUsers, users: &[Box<str>]) -> LastSeen {
    let after_s = expired_s(node);
    let stored = match node.store() {
        Some(store) if seen.is_written => stored(store, users, after_s).await,
        _ => Some(Vec::new()),
    };
    let is_cut_off = stored.is_none();
    let stored = stored.unwrap_or_default();
    let by_user: HashMap<&str, u64> = stored.iter().map(|row| (&*row.user, row.seen_s)).collect();
    // Read after the database: a time that was written in the meantime is in one of the two.
    let held = seen.held(users).into_iter().zip(users);
    let seen_s = held.map(|(held, user)| held.max(by_user.get(&**user).copied()).filter(|at| *at > after_s)).collect();
    LastSeen { seen_s, is_cut_off }
}

/// Returns what the primary database knows; None = it has not answered in time.
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
    // real time: a limit of the database.
    tokio::time::timeout(READ_TIMEOUT, reply).await.ok()?.ok()?.ok()
}
