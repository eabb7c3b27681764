//! Requests that touch many entries: lists, and messages and calls to groups. Each is executed in short steps, so that
//! the directory's thread can execute other requests in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Error;
use touchline_protocol::publication::EncodedPush;
use touchline_registry::{Entry, OwnerId};

use super::calls::CallOrigin;
use super::effect::DirectoryEffect;
use super::name_page::NamePage;
use super::reply::{DirectoryReply, Listed};
use super::request::{Listing, Requester, Target};
use super::scope::ScopeId;
use super::state::{Directory, Scope};
use super::{answer, presence_entry, remote};
use crate::work::Work;

/// The greatest number of members that one step visits.
const WALK_STEP_ENTRIES: usize = 512;
/// The greatest number of steps for one page of a listing, if the page has fewer results than its limit.
const PAGE_STEPS: usize = 16;
/// The bytes that an entry takes in a reply in addition to its key and its metadata.
const WALK_OVERHEAD_BYTES: usize = 120;

/// A request that is executed in steps.
#[derive(Debug)]
pub struct Walk<A> {
    requester: Requester,
    asker: Option<A>,
    kind: WalkKind,
    work: Work,
}

/// The request, and what it has found so far.
#[derive(Debug)]
pub(super) enum WalkKind {
    Presence { channel: Box<str>, limit: usize, shown: Vec<Entry> },
    Members { scope: ScopeId, group: Box<str>, limit: usize, results: Vec<Entry> },
    MemberPage { group: Box<str>, listing: Listing, results: Vec<Entry>, steps: usize },
    Names { listing: Listing, results: Vec<Entry>, steps: usize },
    NamesAfter { scope: ScopeId, page: NamePage },
    Groups { listing: Listing, results: Vec<(Arc<str>, u32)>, steps: usize },
    Send { scope: ScopeId, message: Vec<u8>, push: Arc<EncodedPush>, remote: BTreeMap<Arc<str>, Vec<OwnerId>> },
    Call { target: Target, data: Bytes, timeout_ms: u64, results: Vec<Entry> },
}

impl<A> Walk<A> {
    /// A request that begins. `asker`: the requester that waits for the reply; `None` = none waits.
    pub(super) fn new(requester: Requester, asker: Option<A>, kind: WalkKind) -> Self {
        Walk { requester, asker, kind, work: Work::default() }
    }

    /// Whether the request sends messages to clients. If so, it continues even if its requester is gone.
    pub fn is_send(&self) -> bool {
        matches!(self.kind, WalkKind::Send { .. })
    }
}

impl<A> Directory<A> {
    /// Begins a list of the clients in a channel.
    pub(super) fn begin_presence(&mut self, channel: Box<str>, limit: usize) -> WalkKind {
        let presence = self.presence();
        presence.begin_walk(&channel);
        let shown = Vec::with_capacity(limit.min(presence.member_count(&channel)));
        WalkKind::Presence { channel, limit, shown }
    }

    /// Begins a list of the members of a group.
    pub(super) fn begin_members(&mut self, scope: ScopeId, group: Box<str>) -> Result<WalkKind, Error> {
        let Scope { replica, options, .. } = self.scope(scope)?;
        replica.begin_walk(&group);
        let limit = options.members_limit;
        let results = Vec::with_capacity(limit.min(replica.member_count(&group)));
        Ok(WalkKind::Members { scope, group, limit, results })
    }

    /// Begins a page of the members of a group.
    pub(super) fn begin_member_page(&mut self, group: Box<str>, listing: Listing) -> Result<WalkKind, Error> {
        self.scope(listing.scope)?;
        Ok(WalkKind::MemberPage { group, listing, results: Vec::new(), steps: 0 })
    }

    /// Begins a page of names.
    pub(super) fn begin_names(&mut self, listing: Listing) -> Result<WalkKind, Error> {
        self.scope(listing.scope)?;
        Ok(WalkKind::Names { listing, results: Vec::new(), steps: 0 })
    }

    /// Begins a page of names in their order.
    pub(super) fn begin_names_after(&mut self, after: Box<str>, listing: Listing) -> Result<WalkKind, Error> {
        let Listing { scope, prefix, limit, .. } = listing;
        self.scope(scope)?.replica.begin_name_walk();
        Ok(WalkKind::NamesAfter { scope, page: NamePage::new(after, prefix, limit) })
    }

    /// Begins a page of groups.
    pub(super) fn begin_groups(&mut self, listing: Listing) -> Result<WalkKind, Error> {
        self.scope(listing.scope)?;
        Ok(WalkKind::Groups { listing, results: Vec::new(), steps: 0 })
    }

    /// Begins a message to the members of a group.
    pub(super) fn begin_send(
        &mut self,
        requester: &Requester,
        target: &Target,
        data: &Bytes,
    ) -> Result<WalkKind, Error> {
        self.begin_group(target)?;
        let message = answer::message(requester, &target.key, data);
        self.fits(message.len())?;
        let push = Arc::new(answer::push(&message));
        Ok(WalkKind::Send { scope: target.scope, message, push, remote: BTreeMap::new() })
    }

    /// Begins a call of the members of a group.
    pub(super) fn begin_call(
        &mut self,
        requester: &Requester,
        target: Target,
        data: Bytes,
        timeout_ms: u64,
    ) -> Result<WalkKind, Error> {
        let members = self.begin_group(&target)?;
        self.fits(answer::message(requester, &target.key, &data).len())?;
        let timeout_ms = self.check_call(requester, &target, members, timeout_ms)?;
        Ok(WalkKind::Call { target, data, timeout_ms, results: Vec::with_capacity(members) })
    }

    /// Begins to walk through a group, which must not be empty. Returns the number of its members.
    fn begin_group(&mut self, target: &Target) -> Result<usize, Error> {
        let scope = self.scope(target.scope)?;
        scope.replica.begin_walk(&target.key);
        Some(scope.replica.member_count(&target.key)).filter(|members| *members > 0).ok_or(Error::NOT_REGISTERED)
    }

    /// Executes one step of a request. Returns the request while there is more to do.
    pub fn step(&mut self, mut walk: Walk<A>, now_ms: u64) -> Option<Walk<A>> {
        if self.run_step(&mut walk.kind, &mut walk.work) {
            return Some(walk);
        }
        let Walk { requester, asker, kind, work } = walk;
        let reply = match kind {
            WalkKind::Presence { channel, shown, .. } => {
                let count = self.presence().member_counts(&channel).0;
                DirectoryReply::list(Listed::Presence(shown, count), work)
            }
            WalkKind::Members { scope, group, results, .. } => {
                let count = self.scope(scope).map_or(0, |scope| scope.replica.member_count(&group));
                DirectoryReply::list(Listed::Members(results, count as u64), work)
            }
            WalkKind::MemberPage { group, listing, results, .. } => {
                let count = self.scope(listing.scope).map_or(0, |scope| scope.replica.member_count(&group));
                DirectoryReply::list(Listed::MemberPage(results, count as u64, listing.cursor), work)
            }
            WalkKind::Names { listing, results, .. } => {
                DirectoryReply::list(Listed::Names(results, listing.cursor), work)
            }
            WalkKind::NamesAfter { page, .. } => {
                let (names, has_more) = page.finish();
                DirectoryReply::list(Listed::NamesInOrder(names, has_more), work)
            }
            WalkKind::Groups { listing, results, .. } => {
                DirectoryReply::list(Listed::Groups(results, listing.cursor), work)
            }
            WalkKind::Send { message, remote, .. } => {
                for (node, clients) in remote {
                    self.effects.push(DirectoryEffect::Node(node, remote::send(&clients, &message)));
                }
                DirectoryReply::sent(work.copies)
            }
            WalkKind::Call { target, data, timeout_ms, results } => {
                self.call_group(&requester, &target, &data, timeout_ms, &results, asker, now_ms);
                return None;
            }
        };
        self.effects.extend(asker.map(|asker| DirectoryEffect::Reply(asker, Ok(reply))));
        None
    }

    /// Executes one step. Returns whether there is more to do.
    fn run_step(&mut self, kind: &mut WalkKind, work: &mut Work) -> bool {
        let mut note = |entry: &Entry| {
            work.items += 1;
            work.bytes += size_of_entry(entry);
        };
        match kind {
            WalkKind::Presence { limit, shown, .. } => {
                let room = limit.saturating_sub(shown.len());
                let has_more = self.presence().walk(WALK_STEP_ENTRIES.min(room), |entry| {
                    note(entry);
                    shown.extend(presence_entry::is_shown(entry).then(|| entry.clone()));
                });
                has_more && shown.len() < *limit
            }
            WalkKind::Members { scope, limit, results, .. } => {
                let room = limit.saturating_sub(results.len());
                let Ok(scope) = self.scope(*scope) else { return false };
                let has_more = scope.replica.walk(WALK_STEP_ENTRIES.min(room), |entry| {
                    note(entry);
                    results.push(entry.clone());
                });
                has_more && results.len() < *limit
            }
            WalkKind::MemberPage { group, listing, results, steps } => {
                let Ok(scope) = self.scope(listing.scope) else { return false };
                let (page, next) = scope.replica.member_page(group, listing.cursor, listing.limit - results.len());
                page.iter().for_each(note);
                results.extend(page);
                turn_page(listing, next, steps, results.len(), work)
            }
            WalkKind::Names { listing, results, steps } => {
                let Ok(scope) = self.scope(listing.scope) else { return false };
                let (page, next) = scope.replica.names(&listing.prefix, listing.cursor, listing.limit - results.len());
                page.iter().for_each(note);
                results.extend(page);
                turn_page(listing, next, steps, results.len(), work)
            }
            WalkKind::NamesAfter { scope, page } => {
                let Ok(scope) = self.scope(*scope) else { return false };
                // Entries that are not part of the page count as visited too.
                let mut visited = 0;
                let has_more = scope.replica.walk_names(WALK_STEP_ENTRIES, |entry| {
                    visited += 1;
                    page.offer(entry);
                });
                work.items += visited;
                if !has_more {
                    work.bytes += page.entries().map(size_of_entry).sum::<usize>();
                }
                has_more
            }
            WalkKind::Groups { listing, results, steps } => {
                let Ok(scope) = self.scope(listing.scope) else { return false };
                let (page, next) = scope.replica.groups(&listing.prefix, listing.cursor, listing.limit - results.len());
                work.items += page.len();
                results.extend(page);
                turn_page(listing, next, steps, results.len(), work)
            }
            WalkKind::Send { scope, message, push, remote } => self.send_some(*scope, message, push, remote, work),
            WalkKind::Call { target, results, .. } => {
                let Ok(scope) = self.scope(target.scope) else { return false };
                // A client that joins meanwhile is not visited, so the number of members never exceeds the allowed one.
                scope.replica.walk(WALK_STEP_ENTRIES, |entry| results.push(entry.clone()))
            }
        }
    }

    /// Sends a message to the next members of a group. The members on this node share one push, and those on another
    /// node share one message.
    fn send_some(
        &mut self,
        scope: ScopeId,
        message: &[u8],
        push: &Arc<EncodedPush>,
        remote: &mut BTreeMap<Arc<str>, Vec<OwnerId>>,
        work: &mut Work,
    ) -> bool {
        let (me, limit) = (Arc::clone(&self.node), self.clients_in_one(message.len()));
        let Ok(scope) = self.scope(scope) else { return false };
        let (mut local, mut full) = (Vec::new(), Vec::new());
        let has_more = scope.replica.walk(WALK_STEP_ENTRIES, |entry| {
            work.copies += 1;
            if *entry.node() == me {
                return local.push(entry.owner());
            }
            let clients = remote.entry(Arc::clone(entry.node())).or_default();
            clients.push(entry.owner());
            if clients.len() >= limit {
                full.push((Arc::clone(entry.node()), std::mem::take(clients)));
            }
        });
        if !local.is_empty() {
            self.effects.push(DirectoryEffect::PushMany(local, Arc::clone(push)));
        }
        self.effects.extend(
            full.into_iter().map(|(node, clients)| DirectoryEffect::Node(node, remote::send(&clients, message))),
        );
        remote.retain(|_, clients| !clients.is_empty());
        has_more
    }

    /// Calls each of these members. The requester gets one reply when all members have replied or failed.
    #[expect(clippy::too_many_arguments, reason = "a call needs all of these values, and this is its only step")]
    fn call_group(
        &mut self,
        requester: &Requester,
        target: &Target,
        data: &Bytes,
        timeout_ms: u64,
        results: &[Entry],
        asker: Option<A>,
        now_ms: u64,
    ) {
        let Some(asker) = asker else { return };
        let checked = if results.is_empty() {
            Err(Error::NOT_REGISTERED)
        } else {
            self.check_call(requester, target, results.len(), timeout_ms)
        };
        if let Err(error) = checked {
            return self.effects.push(DirectoryEffect::Reply(asker, Err(error)));
        }
        let message = Bytes::from(answer::message(requester, &target.key, data));
        let (by, until_ms) = ((!requester.is_backend).then_some(requester.owner), now_ms.saturating_add(timeout_ms));
        let group = self.calls.open_group(asker, results.len());
        let mut remote: BTreeMap<&Arc<str>, Vec<OwnerId>> = BTreeMap::new();
        for entry in results {
            if *entry.node() == self.node {
                let call = self.calls.open(CallOrigin::Group(group), by, entry.owner(), None, until_ms);
                self.effects.push(DirectoryEffect::Call(entry.owner(), call, message.clone()));
            } else {
                remote.entry(entry.node()).or_default().push(entry.owner());
            }
        }
        let limit = self.clients_in_one(message.len());
        for (node, clients) in
            remote.iter().flat_map(|(node, clients)| clients.chunks(limit).map(move |clients| (*node, clients)))
        {
            // The calls in one message have consecutive numbers.
            let open = |client: &OwnerId| {
                self.calls.open(CallOrigin::Group(group), by, *client, Some(Arc::clone(node)), until_ms)
            };
            let Some(first) = clients.iter().map(open).reduce(|first, _| first) else { continue };
            self.effects
                .push(DirectoryEffect::Node(Arc::clone(node), remote::call(clients, first, timeout_ms, &message)));
        }
    }
}

/// The bytes of an entry in a reply.
fn size_of_entry(entry: &Entry) -> usize {
    entry.key().len() + entry.meta().len() + WALK_OVERHEAD_BYTES
}

/// Moves a listing's cursor to its next part. `next`: where that part starts. Returns whether this page needs that
/// part; a cursor of 0 = there is no next page.
fn turn_page(listing: &mut Listing, next: Option<u32>, steps: &mut usize, results: usize, work: &mut Work) -> bool {
    let before = std::mem::replace(&mut listing.cursor, next.unwrap_or(0));
    work.items += next.map_or(0, |next| next.saturating_sub(before) as usize);
    *steps += 1;
    next.is_some() && results < listing.limit && *steps < PAGE_STEPS
}
