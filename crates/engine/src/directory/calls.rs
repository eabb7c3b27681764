//! Calls that wait for a reply from one client, or from every member of a group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Error;
use touchline_registry::OwnerId;

/// The outcome of a call: the callee's data as JSON, or an error.
pub(super) type CallReply = Result<Bytes, CallError>;

/// Why a call has no data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallError {
    /// The server could not complete the call.
    Server(Error),
    /// The called client replied with its own error, JSON.
    Client(Bytes),
}

/// Where the reply to a call must be sent.
#[derive(Debug)]
pub(super) enum CallOrigin<A> {
    /// A requester on this node.
    Here(A),
    /// Another node, with the call's number on that node.
    Node(Arc<str>, u64),
    /// A call of a group, with the number of the group call.
    Group(u64),
}

#[derive(Debug)]
struct PendingCall<A> {
    caller: CallOrigin<A>,
    callee: OwnerId,
    /// The client of this node that makes the call; `None` = a backend or another node makes it.
    by: Option<OwnerId>,
    /// The node of the called client; `None` = this node.
    node: Option<Arc<str>>,
    until_ms: u64,
}

/// A call of all members of a group.
#[derive(Debug)]
struct GroupCall<A> {
    asker: A,
    waiting: usize,
    replies: Vec<(OwnerId, CallReply)>,
}

/// A finished call, with the result for its caller.
#[derive(Debug)]
pub(super) enum FinishedCall<A> {
    One(A, CallReply),
    Node(Arc<str>, u64, CallReply),
    All(A, Vec<(OwnerId, CallReply)>),
}

/// The calls of a node that wait for replies.
#[derive(Debug)]
pub(super) struct Calls<A> {
    next: u64,
    pending: BTreeMap<u64, PendingCall<A>>,
    groups: BTreeMap<u64, GroupCall<A>>,
    deadlines: BTreeSet<(u64, u64)>,
    by_callee: BTreeMap<OwnerId, BTreeSet<u64>>,
    by_caller: BTreeMap<OwnerId, BTreeSet<u64>>,
    /// Calls that other nodes made, by the node and its number of the call.
    by_number: BTreeMap<(Arc<str>, u64), u64>,
}

impl<A> Calls<A> {
    /// An empty list. `first`: where the numbers start. It is random, so that other incarnations' numbers cannot be
    /// guessed.
    pub(super) fn new(first: u64) -> Self {
        // Numbers stay below 2⁵³, so that JavaScript can read them.
        let next = first >> 12;
        Calls {
            next,
            pending: BTreeMap::new(),
            groups: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            by_callee: BTreeMap::new(),
            by_caller: BTreeMap::new(),
            by_number: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// The earliest deadline of a call, Unix milliseconds; `None` = no call waits.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|(until_ms, _)| *until_ms)
    }

    /// The number of waiting calls of one client.
    pub(super) fn of_caller(&self, caller: OwnerId) -> usize {
        self.by_caller.get(&caller).map_or(0, BTreeSet::len)
    }

    /// Adds a call and returns its number. `by`: the client of this node that makes the call.
    pub(super) fn open(
        &mut self,
        caller: CallOrigin<A>,
        by: Option<OwnerId>,
        callee: OwnerId,
        node: Option<Arc<str>>,
        until_ms: u64,
    ) -> u64 {
        self.next += 1;
        self.deadlines.insert((until_ms, self.next));
        self.by_callee.entry(callee).or_default().insert(self.next);
        if let Some(by) = by {
            self.by_caller.entry(by).or_default().insert(self.next);
        }
        if let CallOrigin::Node(node, number) = &caller {
            self.by_number.insert((Arc::clone(node), *number), self.next);
        }
        self.pending.insert(self.next, PendingCall { caller, callee, by, node, until_ms });
        self.next
    }

    /// Adds a call of a group of `size` members, which must not be zero, and returns its number.
    pub(super) fn open_group(&mut self, asker: A, size: usize) -> u64 {
        self.next += 1;
        self.groups.insert(self.next, GroupCall { asker, waiting: size, replies: Vec::with_capacity(size) });
        self.next
    }

    /// Whether a call waits for the reply of this client.
    pub(super) fn is_awaited(&self, call: u64, callee: OwnerId) -> bool {
        self.pending.get(&call).is_some_and(|pending| pending.callee == callee && pending.node.is_none())
    }

    /// Whether a call waits for the reply of this node.
    pub(super) fn is_awaited_of_node(&self, call: u64, node: &str) -> bool {
        self.pending.get(&call).is_some_and(|pending| pending.node.as_deref() == Some(node))
    }

    /// Removes a call from all lists and returns it.
    fn take(&mut self, call: u64) -> Option<PendingCall<A>> {
        let pending = self.pending.remove(&call)?;
        self.deadlines.remove(&(pending.until_ms, call));
        forget(&mut self.by_callee, pending.callee, call);
        if let Some(by) = pending.by {
            forget(&mut self.by_caller, by, call);
        }
        if let CallOrigin::Node(node, number) = &pending.caller {
            self.by_number.remove(&(Arc::clone(node), *number));
        }
        Some(pending)
    }

    /// Removes all calls made by a client that is gone, because no caller waits for their replies. Returns the nodes
    /// that should remove some of these calls too, with the numbers of the calls.
    pub(super) fn caller_gone(&mut self, caller: OwnerId) -> BTreeMap<Arc<str>, Vec<u64>> {
        let mut remote: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
        for call in self.by_caller.remove(&caller).unwrap_or_default() {
            let Some(pending) = self.take(call) else { continue };
            if let CallOrigin::Group(number) = pending.caller {
                self.groups.remove(&number);
            }
            if let Some(node) = pending.node {
                remote.entry(node).or_default().push(call);
            }
        }
        remote
    }

    /// Removes a call of another node, by that node's number, because its caller is gone.
    pub(super) fn caller_gone_there(&mut self, node: &Arc<str>, number: u64) {
        if let Some(call) = self.by_number.get(&(Arc::clone(node), number)).copied() {
            self.take(call);
        }
    }

    /// Finishes a call with its result.
    pub(super) fn finish(&mut self, call: u64, reply: CallReply) -> Option<FinishedCall<A>> {
        let pending = self.take(call)?;
        let number = match pending.caller {
            CallOrigin::Here(asker) => return Some(FinishedCall::One(asker, reply)),
            CallOrigin::Node(node, call) => return Some(FinishedCall::Node(node, call, reply)),
            CallOrigin::Group(number) => number,
        };
        let group = self.groups.get_mut(&number)?;
        group.replies.push((pending.callee, reply));
        group.waiting -= 1;
        if group.waiting > 0 {
            return None;
        }
        self.groups.remove(&number).map(|group| FinishedCall::All(group.asker, group.replies))
    }

    /// Finishes all calls to a client that is gone.
    pub(super) fn callee_gone(&mut self, callee: OwnerId) -> Vec<FinishedCall<A>> {
        let calls = self.by_callee.get(&callee).cloned().unwrap_or_default();
        calls.into_iter().filter_map(|call| self.finish(call, Err(CallError::Server(Error::CALLEE_GONE)))).collect()
    }

    /// Finishes all calls to a node that is gone, and removes the calls that the node has made.
    pub(super) fn node_gone(&mut self, node: &str) -> Vec<FinishedCall<A>> {
        let made = self.by_number.iter().filter(|((caller, _), _)| **caller == *node).map(|(_, call)| *call);
        for call in made.collect::<Vec<u64>>() {
            self.take(call);
        }
        let of_node =
            self.pending.iter().filter(|(_, pending)| pending.node.as_deref() == Some(node)).map(|(call, _)| *call);
        let calls: Vec<u64> = of_node.collect();
        calls.into_iter().filter_map(|call| self.finish(call, Err(CallError::Server(Error::CALLEE_GONE)))).collect()
    }

    /// Finishes the calls whose timeout has passed.
    pub(super) fn expire(&mut self, now_ms: u64) -> Vec<FinishedCall<A>> {
        let mut done = Vec::new();
        while let Some(&(until_ms, call)) = self.deadlines.first().filter(|(until_ms, _)| *until_ms <= now_ms) {
            done.extend(self.finish(call, Err(CallError::Server(Error::CALL_TIMEOUT))));
            self.deadlines.remove(&(until_ms, call));
        }
        done
    }
}

/// Removes a call from a client's list.
fn forget(lists: &mut BTreeMap<OwnerId, BTreeSet<u64>>, client: OwnerId, call: u64) {
    if let Some(calls) = lists.get_mut(&client) {
        calls.remove(&call);
        if calls.is_empty() {
            lists.remove(&client);
        }
    }
}
