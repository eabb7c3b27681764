//! The execution of requests. Each request has one match arm here: it is answered at once, continues in steps, or
//! waits.

use touchline_protocol::Error;
use touchline_registry::OwnerId;

use super::answer;
use super::effect::DirectoryEffect;
use super::reply::DirectoryReply;
use super::request::{DirectoryRequest, Requester};
use super::scope::ScopeId;
use super::state::Directory;
use super::walk::{Walk, WalkKind};
use super::watch_position::WatchPosition;

/// How far a request has been executed at once.
enum Started {
    /// The request is done; this is its reply.
    Done(DirectoryReply),
    /// The request continues in steps.
    Walk(WalkKind),
    /// The reply comes later. The requester is stored where it waits.
    Waiting,
}

impl From<()> for Started {
    fn from((): ()) -> Self {
        answer::empty().into()
    }
}

impl From<Vec<u8>> for Started {
    fn from(json: Vec<u8>) -> Self {
        Started::Done(json.into())
    }
}

impl From<WalkKind> for Started {
    fn from(walk: WalkKind) -> Self {
        Started::Walk(walk)
    }
}

impl<A> Directory<A> {
    /// Executes a request and replies to it. `asker`: the requester that gets the reply; `None` = there is no reply.
    pub fn execute(&mut self, requester: &Requester, request: DirectoryRequest, asker: Option<A>, now_ms: u64) {
        let Some((kind, asker)) = self.start(requester, request, asker, now_ms) else { return };
        let mut walk = Some(Walk::new(requester.clone(), asker, kind));
        while let Some(begun) = walk {
            walk = self.step(begun, now_ms);
        }
    }

    /// Begins a request. `None` = it has its reply already, or waits for one. Otherwise it is a walk
    /// ([`DirectoryRequest::is_walk`]): call [`Directory::step`] until it returns `None`, and begin no other request
    /// before that.
    pub fn begin(
        &mut self,
        requester: Requester,
        request: DirectoryRequest,
        asker: Option<A>,
        now_ms: u64,
    ) -> Option<Walk<A>> {
        let (kind, asker) = self.start(&requester, request, asker, now_ms)?;
        Some(Walk::new(requester, asker, kind))
    }

    /// Executes a request, or returns a walk if it continues in steps.
    fn start(
        &mut self,
        requester: &Requester,
        request: DirectoryRequest,
        mut asker: Option<A>,
        now_ms: u64,
    ) -> Option<(WalkKind, Option<A>)> {
        self.now_ms = now_ms;
        if self.told.is_some() {
            self.acting = Some((requester.owner, requester.user.clone()));
        }
        let reply = match self.run(requester, request, &mut asker, now_ms) {
            Ok(Started::Walk(kind)) => return Some((kind, asker)),
            Ok(Started::Waiting) => return None,
            Ok(Started::Done(reply)) => Ok(reply),
            Err(error) => Err(error),
        };
        self.collect();
        self.acting = None;
        self.effects.extend(asker.map(|asker| DirectoryEffect::Reply(asker, reply)));
        None
    }

    /// Executes the action of each request. Requests that wait for a reply take `asker`.
    fn run(
        &mut self,
        requester: &Requester,
        request: DirectoryRequest,
        asker: &mut Option<A>,
        now_ms: u64,
    ) -> Result<Started, Error> {
        use DirectoryRequest as Request;
        let owner = requester.owner;
        Ok(match request {
            Request::Register { scope, name, meta, take_over } => {
                self.register_name(requester, (scope, &name), &meta, take_over, now_ms)?.into()
            }
            Request::RegisterAll(registrations) => self.register_all(owner, &registrations, now_ms)?.into(),
            Request::Unregister { scope, name } => self.unregister(owner, scope, &name)?.into(),
            Request::UpdateMeta { scope, name, meta, expected } => {
                self.update_meta(owner, (scope, &name), &meta, expected)?.into()
            }
            Request::Join { scope, group, meta } => self.join(owner, (scope, &group), &meta, now_ms)?.into(),
            Request::Leave { scope, group } => self.leave(owner, scope, &group)?.into(),
            Request::Lookup { scope, name } => self.lookup(scope, &name)?.into(),
            Request::Member { scope, group, client } => self.member(requester, (scope, &group), client)?.into(),
            Request::Count { scope } => answer::counts(&self.scope(scope)?.replica).into(),
            Request::Changes { scope, position } => Started::Done(self.changes(scope, position.as_ref())?),
            Request::Names(listing) => self.begin_names(listing)?.into(),
            Request::NamesAfter { after, listing } => self.begin_names_after(after, listing)?.into(),
            Request::Groups(listing) => self.begin_groups(listing)?.into(),
            Request::Members { scope, group } => self.begin_members(scope, group)?.into(),
            Request::MemberPage { group, listing } => self.begin_member_page(group, listing)?.into(),
            Request::Send { target, data, store_for_ms: 0 } if target.is_group => {
                self.begin_send(requester, &target, &data)?.into()
            }
            Request::Send { target, data, store_for_ms: 0 } => self.send(requester, &target, &data)?.into(),
            Request::Send { target, data, store_for_ms } => {
                self.store_message(requester, &target, &data, now_ms, store_for_ms, asker.take());
                Started::Waiting
            }
            Request::Acknowledge { ids } => self.acknowledge(owner, &ids, asker),
            Request::Call { target, data, timeout_ms } if target.is_group => {
                self.begin_call(requester, target, data, timeout_ms)?.into()
            }
            Request::Call { target, data, timeout_ms } => {
                self.call(requester, &target, &data, timeout_ms, asker.take(), now_ms);
                Started::Waiting
            }
            Request::Reply { call, outcome } => self.handle_client_reply(owner, call, outcome)?.into(),
            Request::Enter { channel, info, is_shown, is_announced } => {
                self.enter(owner, &channel, (&info, is_shown, is_announced), now_ms);
                ().into()
            }
            Request::Exit { channel } => {
                self.exit(owner, &channel);
                ().into()
            }
            Request::Presence { channel, limit } => self.begin_presence(channel, limit).into(),
            Request::PresenceStats { channel } => self.presence_stats_of(&channel).into(),
            Request::Close => {
                self.close(owner);
                ().into()
            }
        })
    }

    /// Makes the store discard those messages that were delivered to this client.
    fn acknowledge(&mut self, owner: OwnerId, ids: &[u64], asker: &mut Option<A>) -> Started {
        let ids = self.inbox.delivered_to(owner, ids);
        if ids.is_empty() {
            return ().into();
        }
        self.effects.push(DirectoryEffect::DiscardMessages { ids, asker: asker.take() });
        Started::Waiting
    }

    /// The changes of a scope since a position.
    fn changes(&mut self, scope: ScopeId, position: Option<&WatchPosition>) -> Result<DirectoryReply, Error> {
        let watch = self.scope(scope)?.watch.as_ref().ok_or(Error::NOT_AVAILABLE)?;
        Ok(watch.since(position))
    }
}
