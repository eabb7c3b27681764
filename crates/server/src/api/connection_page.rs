//! The walk of one node over its connections, shard by shard in the order of slots. It visits a connection that stays
//! once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use tokio::sync::oneshot;
use touchline_engine::ShardId;
use touchline_protocol::Error;

use super::connection_cursor::ConnectionPlace;
use super::held_entries::add_held_entries;
use crate::node::Node;
use crate::runtime::connection_query::{
    ConnectionQuery, ConnectionQuestion, ConnectionRow, ConnectionSelection, ConnectionSlice, SLICE_MAX, SlotRange,
    USERS_IN_TURN_MAX,
};
use crate::runtime::mailbox::{Inspection, Message};
use crate::runtime::registry_mailbox::route;

/// How long a page may take on one node. Then the page ends, even if it has few connections.
const PAGE_TIME_MAX: Duration = Duration::from_millis(50);
/// The last part of that time. No further connections are visited in it, and the registry looks up names and groups.
const REGISTRY_TIME: Duration = Duration::from_millis(10);
// Most of the time is left for visiting connections.
const _: () = assert!(REGISTRY_TIME.as_micros() * 2 < PAGE_TIME_MAX.as_micros());
/// The size in bytes above which a page ends.
const PAGE_SIZE_MAX: usize = 4 * 1_024 * 1_024;

/// The connections of one node on a page, beginning at a place.
pub(super) struct ConnectionPage {
    /// The connections, in the order of their places.
    pub(super) rows: Vec<ConnectionRow>,
    /// Where the next page begins; None = this was the last page.
    pub(super) next: Option<ConnectionPlace>,
}

/// The right to scan the connections of a node. Only one scan at a time has it.
struct ScanPermit<'n>(&'n AtomicBool);

impl<'n> ScanPermit<'n> {
    /// # Errors
    /// 111 while another scan has the permit.
    fn take(node: &'n Node) -> Result<Self, Error> {
        let is_taken = node.is_scanned.swap(true, Acquire);
        if is_taken { Err(Error::TOO_MANY_REQUESTS) } else { Ok(ScanPermit(&node.is_scanned)) }
    }
}

impl Drop for ScanPermit<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

/// A page that is being read.
struct ConnectionWalk<'n> {
    node: &'n Node,
    query: &'n Arc<ConnectionQuery>,
    rows_max: usize,
    until_us: u64,
    rows: Vec<ConnectionRow>,
    size: usize,
    permit: Option<ScanPermit<'n>>,
}

/// Reads one page of this node, with at most `rows_max` connections.
///
/// # Errors
/// 111 when the page needs a scan and another scan is running.
pub(super) async fn page(
    node: &Node,
    query: &Arc<ConnectionQuery>,
    from: ConnectionPlace,
    rows_max: usize,
) -> Result<ConnectionPage, Error> {
    let until_us = node.clock.elapsed_us().saturating_add(PAGE_TIME_MAX.as_micros() as u64);
    let mut walk = ConnectionWalk { node, query, rows_max, until_us, rows: Vec::new(), size: 0, permit: None };
    let mut next = Some(from);
    while let Some(place) = next {
        next = walk.step(place).await?;
        if walk.is_full() {
            break;
        }
    }
    Ok(ConnectionPage { rows: walk.rows, next })
}

impl<'n> ConnectionWalk<'n> {
    fn is_full(&self) -> bool {
        let ends_us = self.until_us.saturating_sub(REGISTRY_TIME.as_micros() as u64);
        self.rows.len() >= self.rows_max || self.size >= PAGE_SIZE_MAX || self.node.clock.elapsed_us() >= ends_us
    }

    /// Visits some connections from a place on. Returns the next place; None = no connections are left.
    async fn step(&mut self, ConnectionPlace(shard, slot): ConnectionPlace) -> Result<Option<ConnectionPlace>, Error> {
        let shards = self.node.shards.len();
        if usize::from(shard) >= shards {
            return Ok(None);
        }
        let found = match &self.query.selection {
            ConnectionSelection::All => None,
            ConnectionSelection::Client(client) => {
                let own = route(*client, shards).filter(|(own, _)| *own == shard);
                Some(own.into_iter().map(|(_, own)| own).filter(|own| *own >= slot).collect())
            }
            ConnectionSelection::Users(users) => self.slots_of_users(shard, users, slot).await,
            ConnectionSelection::Channel(channel) => {
                let question = |reply| ConnectionQuestion::OfChannel { channel: channel.clone(), from: slot, reply };
                ask(self.node, shard, question).await.flatten()
            }
        };
        let next = match found {
            Some(slots) => self.visit(shard, slots).await,
            None => {
                if self.permit.is_none() {
                    self.permit = Some(ScanPermit::take(self.node)?);
                }
                self.slice(shard, SlotRange::From(slot)).await
            }
        };
        let behind = || Some(shard + 1).filter(|next| usize::from(*next) < shards).map(|next| ConnectionPlace(next, 0));
        Ok(next.map(|slot| ConnectionPlace(shard, slot)).or_else(behind))
    }

    /// Returns the slots of the connections of users on a shard; None = there are too many users to look up.
    async fn slots_of_users(&self, shard: ShardId, users: &BTreeSet<Box<str>>, from: u32) -> Option<Vec<u32>> {
        let users: Vec<Box<str>> = users.iter().cloned().collect();
        let mut slots = Vec::new();
        for users in users.chunks(USERS_IN_TURN_MAX) {
            let question = |reply| ConnectionQuestion::OfUsers { users: users.to_vec(), from, reply };
            slots.extend(ask(self.node, shard, question).await??);
        }
        slots.sort_unstable();
        Some(slots)
    }

    /// Visits these slots of a shard until the page is full. Returns the first slot that was not visited.
    async fn visit(&mut self, shard: ShardId, slots: Vec<u32>) -> Option<u32> {
        let mut rest = &slots[..];
        while let Some((first, _)) = rest.split_first() {
            if self.is_full() {
                return Some(*first);
            }
            let part = &rest[..rest.len().min(SLICE_MAX)];
            let next = self.slice(shard, SlotRange::These(part.to_vec())).await;
            let seen = next.map_or(part.len(), |next| part.partition_point(|slot| *slot < next));
            rest = &rest[seen..];
        }
        None
    }

    /// Visits slots of a shard in one turn. Returns the next slot; None = that was the last one.
    async fn slice(&mut self, shard: ShardId, slots: SlotRange) -> Option<u32> {
        let rows_max = self.rows_max - self.rows.len();
        let question = |reply| ConnectionQuestion::Slice { query: Arc::clone(self.query), slots, rows_max, reply };
        let ConnectionSlice { mut rows, next } = ask(self.node, shard, question).await.unwrap_or_default();
        // A request for a channel returns only that channel, because the caller's key may be limited to it.
        if !matches!(self.query.selection, ConnectionSelection::Channel(_)) {
            add_held_entries(self.node, &mut rows, self.until_us).await;
        }
        self.size += rows.iter().map(|row| row.json.len()).sum::<usize>();
        self.rows.extend(rows);
        next
    }
}

/// Returns for each of these users, in their order, whether the user has a connection to this node.
pub(super) async fn are_online(node: &Node, users: &[Box<str>]) -> Vec<bool> {
    let mut online = vec![false; users.len()];
    for shard in 0..node.shards.len() {
        for (users, online) in users.chunks(USERS_IN_TURN_MAX).zip(online.chunks_mut(USERS_IN_TURN_MAX)) {
            let question = |reply| ConnectionQuestion::AreOnline { users: users.to_vec(), reply };
            let here = ask(node, shard as ShardId, question).await.unwrap_or_default();
            online.iter_mut().zip(here).for_each(|(online, here)| *online |= here);
        }
    }
    online
}

/// Asks a shard a question; None = the shard has ended.
async fn ask<T>(
    node: &Node,
    shard: ShardId,
    question: impl FnOnce(oneshot::Sender<T>) -> ConnectionQuestion,
) -> Option<T> {
    let (sender, reply) = oneshot::channel();
    node.send(shard, Message::Inspect(Inspection::Connections(Box::new(question(sender)))));
    reply.await.ok()
}
