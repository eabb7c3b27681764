//! Orders that touch many entries: lists, and messages and calls to groups. Each is carried out in short steps, so that
//! whoever runs the directory can serve others in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Error;
use touchline_protocol::publication::EncodedPush;
use touchline_registry::{Entry, OwnerId};

use super::answered::{DirectoryReply, Listed};
use super::ask::{DirectoryEffect, DirectoryRequest, Listing, Requester, Target};
use super::calls::Caller;
use super::{Directory, ScopeId, answer, presence, remote};
use crate::work::Work;

/// Members that one step touches at most.
const STEP: usize = 512;
/// Steps of one page of a listing that finds less than it may.
const PAGE_STEPS: usize = 16;
/// Bytes that an entry takes in an answer, besides its key and its metadata.
const AROUND: usize = 120;

/// An order under way.
#[derive(Debug)]
pub struct Walk<A> {
    who: Requester,
    asker: Option<A>,
    way: WalkKind,
    work: Work,
}

#[derive(Debug)]
enum WalkKind {
    Presence { channel: Box<str>, limit: usize, shown: Vec<Entry> },
    Members { scope: ScopeId, group: Box<str>, limit: usize, found: Vec<Entry> },
    MemberPage { group: Box<str>, listing: Listing, found: Vec<Entry>, steps: usize },
    Names { listing: Listing, found: Vec<Entry>, steps: usize },
    Groups { listing: Listing, found: Vec<(Arc<str>, u32)>, steps: usize },
    Send { scope: ScopeId, message: Vec<u8>, push: Arc<EncodedPush>, elsewhere: BTreeMap<Arc<str>, Vec<OwnerId>> },
    Call { target: Target, data: Bytes, timeout_ms: u64, found: Vec<Entry> },
}

impl<A> Walk<A> {
    /// Whether it sends something to others, which is done whatever becomes of who has asked for it.
    pub fn is_send(&self) -> bool {
        matches!(self.way, WalkKind::Send { .. })
    }
}

impl DirectoryRequest {
    /// Whether it touches many entries: [`Directory::begin`] and [`Directory::step`] carry it out in short steps.
    pub fn is_walk(&self) -> bool {
        match self {
            DirectoryRequest::Presence { .. }
            | DirectoryRequest::Members { .. }
            | DirectoryRequest::MemberPage { .. }
            | DirectoryRequest::Names(_)
            | DirectoryRequest::Groups(_) => true,
            DirectoryRequest::Send { target, store_for_ms: 0, .. } | DirectoryRequest::Call { target, .. } => {
                target.is_group
            }
            _ => false,
        }
    }
}

impl<A> Directory<A> {
    /// Begins an order that [`DirectoryRequest::is_walk`]. `None` = it is answered already; else [`Directory::step`] must be called
    /// until it gives nothing back, and no other order may be begun before.
    pub fn begin(&mut self, who: Requester, ask: DirectoryRequest, asker: Option<A>, now_ms: u64) -> Option<Walk<A>> {
        match self.way(&who, ask) {
            Ok(Ok(way)) => Some(Walk { who, asker, way, work: Work::default() }),
            Ok(Err(other)) => {
                self.ask(&who, other, asker, now_ms);
                None
            }
            Err(error) => {
                self.acts.extend(asker.map(|asker| DirectoryEffect::Answer(asker, Err(error))));
                None
            }
        }
    }

    /// Where an order begins; the order itself, if it is none of these.
    fn way(&mut self, who: &Requester, ask: DirectoryRequest) -> Result<Result<WalkKind, DirectoryRequest>, Error> {
        let way = match ask {
            DirectoryRequest::Presence { channel, limit } => {
                let presence = self.presence();
                presence.begin_walk(&channel);
                let shown = Vec::with_capacity(limit.min(presence.member_count(&channel)));
                WalkKind::Presence { channel, limit, shown }
            }
            DirectoryRequest::Members { scope, group, .. } => {
                let at = self.scope(scope)?;
                at.replica.begin_walk(&group);
                let limit = at.options.members_limit;
                let found = Vec::with_capacity(limit.min(at.replica.member_count(&group)));
                WalkKind::Members { scope, group, limit, found }
            }
            DirectoryRequest::MemberPage { group, listing } => {
                self.scope(listing.scope)?;
                WalkKind::MemberPage { group, listing, found: Vec::new(), steps: 0 }
            }
            DirectoryRequest::Names(listing) => {
                self.scope(listing.scope)?;
                WalkKind::Names { listing, found: Vec::new(), steps: 0 }
            }
            DirectoryRequest::Groups(listing) => {
                self.scope(listing.scope)?;
                WalkKind::Groups { listing, found: Vec::new(), steps: 0 }
            }
            DirectoryRequest::Send { target, data, store_for_ms: 0 } if target.is_group => {
                self.begin_group(&target)?;
                let message = answer::message(who, &target.key, &data);
                self.fits(message.len())?;
                let push = Arc::new(answer::push(&message));
                WalkKind::Send { scope: target.scope, message, push, elsewhere: BTreeMap::new() }
            }
            DirectoryRequest::Call { target, data, timeout_ms } if target.is_group => {
                let members = self.begin_group(&target)?;
                self.fits(answer::message(who, &target.key, &data).len())?;
                let timeout_ms = self.may_call(who, &target, members, timeout_ms)?;
                WalkKind::Call { target, data, timeout_ms, found: Vec::with_capacity(members) }
            }
            other => return Ok(Err(other)),
        };
        Ok(Ok(way))
    }

    /// Begins to walk through a group that must not be empty: the number of its members.
    fn begin_group(&mut self, target: &Target) -> Result<usize, Error> {
        let scope = self.scope(target.scope)?;
        scope.replica.begin_walk(&target.key);
        Some(scope.replica.member_count(&target.key)).filter(|members| *members > 0).ok_or(Error::NOT_REGISTERED)
    }

    /// Goes on with an order. Gives it back as long as there is more to do.
    pub fn step(&mut self, mut walk: Walk<A>, now_ms: u64) -> Option<Walk<A>> {
        if self.go_on(&mut walk.way, &mut walk.work) {
            return Some(walk);
        }
        let Walk { who, asker, way, work } = walk;
        let answered = match way {
            WalkKind::Presence { channel, shown, .. } => {
                let count = self.presence().tally(&channel).0;
                DirectoryReply::list(Listed::Presence(shown, count), work)
            }
            WalkKind::Members { scope, group, found, .. } => {
                let count = self.scope(scope).map_or(0, |scope| scope.replica.member_count(&group));
                DirectoryReply::list(Listed::Members(found, count as u64), work)
            }
            WalkKind::MemberPage { group, listing, found, .. } => {
                let count = self.scope(listing.scope).map_or(0, |scope| scope.replica.member_count(&group));
                DirectoryReply::list(Listed::MemberPage(found, count as u64, listing.cursor), work)
            }
            WalkKind::Names { listing, found, .. } => DirectoryReply::list(Listed::Names(found, listing.cursor), work),
            WalkKind::Groups { listing, found, .. } => {
                DirectoryReply::list(Listed::Groups(found, listing.cursor), work)
            }
            WalkKind::Send { message, elsewhere, .. } => {
                for (node, clients) in elsewhere {
                    self.acts.push(DirectoryEffect::Node(node, remote::send(&clients, &message)));
                }
                DirectoryReply::sent(work.copies)
            }
            WalkKind::Call { target, data, timeout_ms, found } => {
                self.call_group(&who, &target, &data, timeout_ms, &found, asker, now_ms);
                return None;
            }
        };
        self.acts.extend(asker.map(|asker| DirectoryEffect::Answer(asker, Ok(answered))));
        None
    }

    /// One step; whether there is more.
    fn go_on(&mut self, way: &mut WalkKind, work: &mut Work) -> bool {
        let mut note = |entry: &Entry| {
            work.items += 1;
            work.bytes += entry.key().len() + entry.meta().len() + AROUND;
        };
        match way {
            WalkKind::Presence { limit, shown, .. } => {
                let room = limit.saturating_sub(shown.len());
                let has_more = self.presence().walk(STEP.min(room), |entry| {
                    note(entry);
                    shown.extend(presence::is_shown(entry).then(|| entry.clone()));
                });
                has_more && shown.len() < *limit
            }
            WalkKind::Members { scope, limit, found, .. } => {
                let room = limit.saturating_sub(found.len());
                let Ok(scope) = self.scope(*scope) else { return false };
                let has_more = scope.replica.walk(STEP.min(room), |entry| {
                    note(entry);
                    found.push(entry.clone());
                });
                has_more && found.len() < *limit
            }
            WalkKind::MemberPage { group, listing, found, steps } => {
                let Ok(scope) = self.scope(listing.scope) else { return false };
                let (page, next) = scope.replica.member_page(group, listing.cursor, listing.limit - found.len());
                page.iter().for_each(note);
                found.extend(page);
                turn_page(listing, next, steps, found.len(), work)
            }
            WalkKind::Names { listing, found, steps } => {
                let Ok(scope) = self.scope(listing.scope) else { return false };
                let (page, next) = scope.replica.names(&listing.prefix, listing.cursor, listing.limit - found.len());
                page.iter().for_each(note);
                found.extend(page);
                turn_page(listing, next, steps, found.len(), work)
            }
            WalkKind::Groups { listing, found, steps } => {
                let Ok(scope) = self.scope(listing.scope) else { return false };
                let (page, next) = scope.replica.groups(&listing.prefix, listing.cursor, listing.limit - found.len());
                work.items += page.len();
                found.extend(page);
                turn_page(listing, next, steps, found.len(), work)
            }
            WalkKind::Send { scope, message, push, elsewhere } => {
                self.send_some(*scope, message, push, elsewhere, work)
            }
            WalkKind::Call { target, found, .. } => {
                let Ok(scope) = self.scope(target.scope) else { return false };
                // Who joins meanwhile is not met, so there is never more of them than were allowed.
                scope.replica.walk(STEP, |entry| found.push(entry.clone()))
            }
        }
    }

    /// Hands a message to the next members of a group: those of this node share one push, those of another node one
    /// message.
    fn send_some(
        &mut self,
        scope: ScopeId,
        message: &[u8],
        push: &Arc<EncodedPush>,
        elsewhere: &mut BTreeMap<Arc<str>, Vec<OwnerId>>,
        work: &mut Work,
    ) -> bool {
        let (me, most) = (Arc::clone(&self.node), self.clients_in_one(message.len()));
        let Ok(scope) = self.scope(scope) else { return false };
        let (mut here, mut full) = (Vec::new(), Vec::new());
        let has_more = scope.replica.walk(STEP, |entry| {
            work.copies += 1;
            if *entry.node() == me {
                return here.push(entry.owner());
            }
            let clients = elsewhere.entry(Arc::clone(entry.node())).or_default();
            clients.push(entry.owner());
            if clients.len() >= most {
                full.push((Arc::clone(entry.node()), std::mem::take(clients)));
            }
        });
        if !here.is_empty() {
            self.acts.push(DirectoryEffect::PushMany(here, Arc::clone(push)));
        }
        self.acts.extend(
            full.into_iter().map(|(node, clients)| DirectoryEffect::Node(node, remote::send(&clients, message))),
        );
        elsewhere.retain(|_, clients| !clients.is_empty());
        has_more
    }

    /// Calls all of some members, and answers when they have.
    #[expect(clippy::too_many_arguments, reason = "a call is all of this, and it goes one step only")]
    fn call_group(
        &mut self,
        who: &Requester,
        target: &Target,
        data: &Bytes,
        timeout_ms: u64,
        found: &[Entry],
        asker: Option<A>,
        now_ms: u64,
    ) {
        let Some(asker) = asker else { return };
        let checked = if found.is_empty() {
            Err(Error::NOT_REGISTERED)
        } else {
            self.may_call(who, target, found.len(), timeout_ms)
        };
        if let Err(error) = checked {
            return self.acts.push(DirectoryEffect::Answer(asker, Err(error)));
        }
        let message = Bytes::from(answer::message(who, &target.key, data));
        let (by, until_ms) = ((!who.is_backend).then_some(who.owner), now_ms.saturating_add(timeout_ms));
        let group = self.calls.open_group(asker, found.len());
        let mut elsewhere: BTreeMap<&Arc<str>, Vec<OwnerId>> = BTreeMap::new();
        for entry in found {
            if *entry.node() == self.node {
                let call = self.calls.open(Caller::Group(group), by, entry.owner(), None, until_ms);
                self.acts.push(DirectoryEffect::Call(entry.owner(), call, message.clone()));
            } else {
                elsewhere.entry(entry.node()).or_default().push(entry.owner());
            }
        }
        let most = self.clients_in_one(message.len());
        for (node, clients) in
            elsewhere.iter().flat_map(|(node, clients)| clients.chunks(most).map(move |clients| (*node, clients)))
        {
            // The calls of one message have numbers in a row.
            let open =
                |client: &OwnerId| self.calls.open(Caller::Group(group), by, *client, Some(Arc::clone(node)), until_ms);
            let Some(first) = clients.iter().map(open).reduce(|first, _| first) else { continue };
            self.acts.push(DirectoryEffect::Node(Arc::clone(node), remote::call(clients, first, timeout_ms, &message)));
        }
    }
}

/// Goes on to the next part of a listing; whether this page wants it. What the cursor is then is where the next page
/// starts, 0 = there is none.
fn turn_page(listing: &mut Listing, next: Option<u32>, steps: &mut usize, found: usize, work: &mut Work) -> bool {
    let before = std::mem::replace(&mut listing.cursor, next.unwrap_or(0));
    work.items += next.map_or(0, |next| next.saturating_sub(before) as usize);
    *steps += 1;
    next.is_some() && found < listing.limit && *steps < PAGE_STEPS
}
