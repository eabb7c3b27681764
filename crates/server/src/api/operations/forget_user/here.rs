//! The part of each node: it ends the connections of the user, and forgets what it holds in memory.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::oneshot;
use touchline_engine::directory::OwnNames;
use touchline_protocol::{Disconnect, Error};
use touchline_store::SeenForgotten;

use super::named_inbox::NamedInbox;
use super::reply::{ForgetUserReply, RemovedOfUser};
use crate::api::connection_cursor::ConnectionPlace;
use crate::api::connection_page::page;
use crate::api::operation::{OperationError, RequestNode};
use crate::api::operations::inbox::{answering, asked};
use crate::api::targets::Targets;
use crate::runtime::connection_query::{ConnectionFilter, ConnectionQuery, ConnectionSelection, SLICE_MAX};
use crate::runtime::mailbox::ConnectionAction;
use crate::runtime::registry_mailbox::RegistryMessage;

/// The most pages of the user's connections on one node whose names and groups are counted and listed.
const HELD_PAGES_MAX: usize = 8;
/// How many times the node asks the primary database to forget a time that another node is writing.
const SEEN_TRIES_MAX: usize = 5;
/// The pause between two of these attempts.
const SEEN_PAUSE: Duration = Duration::from_millis(20);

/// The longest wait for the database of the statistics. Two such waits, the other nodes and the steps before the second
/// wait end within the default `http_server.request_timeout`.
const STATS_WAIT: Duration = Duration::from_secs(6);

/// Does the part of this node.
///
/// # Errors
/// 111 when this node has too many requests, 4010 when the primary database does not answer.
pub(super) async fn forget_here(node: RequestNode<'_>, user: &str) -> Result<ForgetUserReply, OperationError> {
    let mut reply = ForgetUserReply::default();
    // Counted before the connections end: afterwards no node knows the names and groups that they had.
    note_held(node, user, &mut reply).await?;
    reply.removed.connections = disconnect(node, user).await?;
    let was_held = node.seen.as_ref().is_some_and(|seen| seen.forget(user));
    let forgotten = forget_seen(node, user).await?;
    reply.removed.last_seen = u64::from(was_held || forgotten == SeenForgotten::Deleted);
    reply.work.is_seen_busy = forgotten == SeenForgotten::Busy;
    if let Some(stats) = node.stats() {
        // After this, the events reported so far are in the database, where the later steps look for them.
        within(node, asked(|reply| stats.settle(answering(reply)))).await?;
    }
    node.console.activity.forget(user);
    // Silent nodes may still serve the user.
    reply.missing_nodes = silent_nodes(node);
    reply.done = !reply.work.is_seen_busy;
    Ok(reply)
}

/// Waits for the database of the statistics, but not longer than a request may. The database may be locked for longer.
///
/// # Errors
/// The errors of `wait`, and 4010 after that time.
pub(super) async fn within<T>(
    node: RequestNode<'_>,
    wait: impl Future<Output = Result<T, OperationError>>,
) -> Result<T, OperationError> {
    let longest = node.generation().settings.store.stats.timeout.min(STATS_WAIT);
    node.clock.time().timeout(longest, wait).await.unwrap_or(Err(Error::STORE_UNAVAILABLE.into()))
}

/// Returns the nodes that this node has lost without a goodbye.
pub(super) fn silent_nodes(node: RequestNode<'_>) -> Vec<Box<str>> {
    node.console.lost().silent(node.clock.now_ms(), |other| node.knows_peer(other))
}

/// The fields of a connection that this operation reads.
#[derive(Deserialize, Default)]
#[serde(default)]
struct HeldOfConnection {
    names: Vec<NamedInbox>,
    groups: Vec<serde::de::IgnoredAny>,
    entries_truncated: u64,
}

/// Counts what the user's connections have in the registry. Lists the names that may belong to other users too.
async fn note_held(node: RequestNode<'_>, user: &str, reply: &mut ForgetUserReply) -> Result<(), OperationError> {
    let selection = ConnectionSelection::Users([user.into()].into());
    let query = Arc::new(ConnectionQuery { selection, filter: ConnectionFilter::default() });
    let own = node.generation().session.scopes.own_names(user);
    let mut next = Some(ConnectionPlace(0, 0));
    for _ in 0..HELD_PAGES_MAX {
        let Some(place) = next else { break };
        let found = page(&node, &query, place, SLICE_MAX).await?;
        for row in found.rows {
            let held: HeldOfConnection = serde_json::from_slice(&row.json).unwrap_or_default();
            note_names(node, &own, held, reply);
        }
        next = found.next;
    }
    Ok(())
}

fn note_names(node: RequestNode<'_>, own: &[OwnNames], held: HeldOfConnection, reply: &mut ForgetUserReply) {
    let RemovedOfUser { names, groups, .. } = &mut reply.removed;
    // Connections list names before groups, so entries that are not listed are counted as groups.
    *names += held.names.len() as u64;
    *groups += held.groups.len() as u64 + held.entries_truncated;
    let generation = node.generation();
    let scopes = &generation.session.scopes;
    for inbox in held.names {
        let options = scopes.find(&inbox.scope).and_then(|scope| scopes.options(scope));
        let is_own = own.iter().any(|own| own.scope == inbox.scope && own.certain().as_deref() == Some(&*inbox.name));
        if !is_own && options.is_some_and(|options| options.inbox_size > 0) {
            reply.remains.add_inbox(inbox);
        }
    }
}

/// Ends the connections of the user and returns their number. When it returns, the registry has released what they had.
async fn disconnect(node: RequestNode<'_>, user: &str) -> Result<u64, OperationError> {
    let targets = Targets { user: Some(user), ..Targets::default() }.check()?;
    let action = ConnectionAction::Disconnect { why: Disconnect::FORCE_NO_RECONNECT, except: HashSet::new() };
    let ended = targets.counted(&node, action).await?.connections.unwrap_or_default();
    let (reply, is_behind) = oneshot::channel();
    node.send_to_registry(RegistryMessage::Held { owners: Vec::new(), most: 0, reply });
    // An actor that has ended has released everything.
    let _ = is_behind.await;
    Ok(ended)
}

/// Deletes the time of the user's last connection from the primary database. Every node does this, because its own note
/// may still be on the way to the database.
async fn forget_seen(node: RequestNode<'_>, user: &str) -> Result<SeenForgotten, OperationError> {
    let is_written = node.seen.as_ref().is_some_and(|seen| seen.is_written);
    let Some(store) = node.store().filter(|_| is_written) else { return Ok(SeenForgotten::Unknown) };
    let mut forgotten = SeenForgotten::Busy;
    for _ in 0..SEEN_TRIES_MAX {
        forgotten = asked(|reply| store.forget_seen(user.into(), answering(reply))).await?;
        if forgotten != SeenForgotten::Busy {
            break;
        }
        // real time: a pause between two tries at the database.
        tokio::time::sleep(SEEN_PAUSE).await;
    }
    Ok(forgotten)
}
