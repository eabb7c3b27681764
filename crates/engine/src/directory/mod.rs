//! The registry as a node uses it: scopes of names and groups, the presence of channels, messages and calls to names.
//!
//! Pure: [`DirectoryRequest`]s of clients and of the server API, messages of other nodes and the time go in;
//! [`DirectoryEffect`]s come out. Presence is a group named by the channel, in a scope of its own.

mod answer;
mod calls;
mod effect;
mod inbox;
mod nodes;
mod presence;
mod register_all;
mod remote;
mod reply;
mod request;
mod scope;
mod size;
mod walk;
mod watch;

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::{Error, encode};
use touchline_registry::{
    Classify, Counters, Output, OwnerId, RegisterRefusal, Registered, Replica, ReplicaSettings, ReplicaTiming,
};

pub use answer::{numbered, push as message_push};
use calls::{CallError, CallOrigin, CallReply, Calls, FinishedCall};
pub use effect::{
    DirectoryEffect, DirectoryRequest, Listing, Registration, Requester, Target, client_from_text, client_text,
};
use inbox::{Inbox, inbox_change};
pub use reply::DirectoryReply;
use reply::Listed;
pub use request::{METHODS, read};
pub(crate) use request::{has_control, permit};
pub use scope::{ConflictPolicy, ScopeId, ScopeOptions, Scopes};
pub use walk::Walk;
use watch::ScopeWatch;
pub use watch::WatchPosition;

use crate::namespace::WATCH_CHANNEL_PREFIX;
use crate::work::Work;

/// The scope of presence. A scope of the configuration cannot have this name, and [`Scopes::find`] never finds it.
const PRESENCE: &str = "$presence";

/// Effects for which the directory keeps memory between two batches, at most.
const SPARE_EFFECTS: usize = 4_096;

/// The metrics of a scope: counters since the node started, and its present size.
#[derive(Debug, Clone)]
pub struct ScopeMetrics {
    /// The scope's name.
    pub scope: Arc<str>,
    /// Names with an owner, on all nodes.
    pub names: u64,
    /// Memberships, on all nodes.
    pub members: u64,
    /// Counters since the node started.
    pub counters: Counters,
}

struct Scope {
    name: Arc<str>,
    options: ScopeOptions,
    replica: Replica,
    /// The recent changes, for clients that watch the scope; `None` = clients may not watch it.
    watch: Option<ScopeWatch>,
}

/// A node's part of the registry. `A` identifies the requester that waits for a reply.
pub struct Directory<A> {
    node: Arc<str>,
    /// The scopes of the configuration, then presence.
    scopes: Vec<Scope>,
    calls: Calls<A>,
    inbox: Inbox,
    effects: Vec<DirectoryEffect<A>>,
    is_clustered: bool,
    /// The host is checking its connections ([`DirectoryEffect::Probe`]).
    is_probing: bool,
    /// Bytes that one message to another node may have.
    message_max: usize,
    /// The time of the latest call, Unix milliseconds.
    now_ms: u64,
}

impl<A> Directory<A> {
    /// An empty directory. `node`: the node's id, unique in the cluster. `birth`: random, another one in each
    /// incarnation of the node.
    pub fn new(
        node: &str,
        scopes: &[ScopeOptions],
        timing: &ReplicaTiming,
        birth: u64,
        is_clustered: bool,
        now_ms: u64,
    ) -> Self {
        let presence = ScopeOptions {
            name: PRESENCE.into(),
            // The sessions have checked their requests against the channels' own limits.
            name_max_length: usize::from(u16::MAX),
            meta_max_size: usize::MAX,
            client_entries_limit: usize::MAX,
            ..ScopeOptions::default()
        };
        let make = |options: &ScopeOptions, classify: Option<Classify>| Scope {
            name: options.name.as_str().into(),
            replica: Replica::new(node, birth, ReplicaSettings { classify, ..options.settings(timing) }, now_ms),
            watch: options.allow_watch_for_client.then(|| ScopeWatch::new(birth, options.watch_log_size)),
            options: options.clone(),
        };
        let presence = make(&presence, Some(presence::shown_user));
        let scopes = scopes.iter().map(|options| make(options, None)).chain([presence]).collect();
        let (calls, inbox) = (Calls::new(birth), Inbox::default());
        Directory {
            node: node.into(),
            scopes,
            calls,
            inbox,
            effects: Vec::new(),
            is_clustered,
            is_probing: false,
            message_max: usize::MAX,
            now_ms,
        }
    }

    /// The scopes as sessions see them.
    pub fn scopes(&self) -> Scopes {
        Scopes(self.scopes.iter().map(|scope| (scope.options.clone(), scope.replica.view())).collect())
    }

    /// Names of the scopes, presence included.
    pub fn scope_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.scopes.iter().map(|scope| &scope.name)
    }

    /// The metrics of each scope.
    pub fn metrics(&self) -> impl Iterator<Item = ScopeMetrics> {
        self.scopes.iter().map(|scope| {
            let view = scope.replica.view();
            let counters = scope.replica.counters();
            ScopeMetrics { scope: Arc::clone(&scope.name), names: view.names(), members: view.members(), counters }
        })
    }

    /// Number of calls that wait for a reply.
    pub fn calls_waiting(&self) -> usize {
        self.calls.len()
    }

    /// Executes a request and replies to it; but not the requests that [`Scopes::answer`] replies to. Without an
    /// `asker` there is no reply.
    pub fn execute(&mut self, requester: &Requester, request: DirectoryRequest, asker: Option<A>, now_ms: u64) {
        if request.is_walk() {
            let mut walk = self.begin(requester.clone(), request, asker, now_ms);
            while let Some(begun) = walk {
                walk = self.step(begun, now_ms);
            }
            return;
        }
        self.now_ms = now_ms;
        if let Err(error) = self.reply_fits(&request) {
            return self.effects.extend(asker.map(|asker| DirectoryEffect::Reply(asker, Err(error))));
        }
        let reply = match request {
            DirectoryRequest::Send { target, data, store_for_ms: 0 } => self.send(requester, &target, &data),
            DirectoryRequest::Send { target, data, store_for_ms } => {
                return self.store_message(requester, &target, &data, now_ms, store_for_ms, asker);
            }
            DirectoryRequest::Acknowledge { ids } => {
                let ids = self.inbox.delivered_to(requester.owner, &ids);
                if !ids.is_empty() {
                    return self.effects.push(DirectoryEffect::DiscardMessages { ids, asker });
                }
                Ok(answer::empty())
            }
            DirectoryRequest::Call { target, data, timeout_ms } => {
                return self.call(requester, &target, &data, timeout_ms, asker, now_ms);
            }
            DirectoryRequest::Reply { call, outcome } => {
                self.handle_reply(requester.owner, call, outcome.map_err(CallError::Client))
            }
            DirectoryRequest::Close => {
                self.close(requester.owner);
                Ok(answer::empty())
            }
            DirectoryRequest::Enter { channel, info, is_shown, is_announced } => {
                self.enter(requester.owner, &channel, (&info, is_shown, is_announced), now_ms);
                Ok(answer::empty())
            }
            DirectoryRequest::Exit { channel } => {
                let _ = self.presence().leave(requester.owner, &channel);
                Ok(answer::empty())
            }
            DirectoryRequest::PresenceStats { channel } => Ok(self.presence_stats_of(&channel)),
            DirectoryRequest::Changes { scope, position } => {
                let changes = self.scope(scope).and_then(|scope| scope.watch.as_ref().ok_or(Error::NOT_AVAILABLE));
                let reply = changes.map(|watch| watch.since(position.as_ref()));
                return self.effects.extend(asker.map(|asker| DirectoryEffect::Reply(asker, reply)));
            }
            request => self.execute_in_scope(requester, request, now_ms),
        };
        self.collect();
        if let Some(asker) = asker {
            self.effects.push(DirectoryEffect::Reply(asker, reply.map(DirectoryReply::from)));
        }
    }

    /// Handles a message of another node's part of a scope.
    pub fn receive(&mut self, scope: &str, message: &[u8], now_ms: u64) {
        self.now_ms = now_ms;
        if let Some(scope) = self.scopes.iter_mut().find(|known| &*known.name == scope) {
            scope.replica.receive(message, now_ms);
        }
        self.collect();
    }

    /// Sends what is queued for other nodes and watchers. Call it after each batch of requests.
    pub fn flush(&mut self) {
        if self.is_clustered {
            self.scopes.iter_mut().for_each(|scope| scope.replica.flush());
            self.collect();
        }
        let Directory { scopes, effects, now_ms, .. } = self;
        for Scope { name, watch, .. } in scopes {
            let update = watch.as_mut().and_then(|watch| watch.flush(*now_ms));
            effects.extend(
                update.map(|update| {
                    DirectoryEffect::PublishChanges(format!("{WATCH_CHANNEL_PREFIX}{name}").into(), update)
                }),
            );
        }
    }

    /// Handles timeouts and retries. Call it about ten times a second.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.release_spare();
        if self.is_clustered {
            self.scopes.iter_mut().for_each(|scope| scope.replica.tick(now_ms));
        }
        let done = self.calls.expire(now_ms);
        self.finish_all(done);
        let fetches = self.inbox.tick(now_ms);
        self.fetch(fetches);
        self.collect();
    }

    /// Frees memory that only a mass change needed.
    fn release_spare(&mut self) {
        self.scopes.iter_mut().for_each(|scope| scope.replica.release_spare());
        if self.effects.is_empty() && self.effects.capacity() > SPARE_EFFECTS {
            self.effects = Vec::new();
        }
    }

    /// The next time at which [`Directory::tick`] or [`Directory::flush`] has something to do, Unix milliseconds;
    /// `None` = never.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let watches = self.scopes.iter().filter_map(|scope| scope.watch.as_ref()?.next_deadline_ms());
        self.calls.next_deadline_ms().into_iter().chain(self.inbox.next_deadline_ms()).chain(watches).min()
    }

    /// Tells the other nodes that this one leaves.
    pub fn goodbye(&mut self) {
        if self.is_clustered {
            self.scopes.iter_mut().for_each(|scope| scope.replica.goodbye());
            self.collect();
        }
    }

    /// Takes the effects to carry out, in order.
    pub fn effects(&mut self) -> std::vec::Drain<'_, DirectoryEffect<A>> {
        self.effects.drain(..)
    }

    fn presence(&mut self) -> &mut Replica {
        let last = self.scopes.len() - 1;
        &mut self.scopes[last].replica
    }

    fn scope(&mut self, id: ScopeId) -> Result<&mut Scope, Error> {
        self.scopes.get_mut(usize::from(id.0)).ok_or(Error::NO_SUCH_SCOPE)
    }

    fn execute_in_scope(
        &mut self,
        requester: &Requester,
        request: DirectoryRequest,
        now_ms: u64,
    ) -> Result<Vec<u8>, Error> {
        let owner = requester.owner;
        match request {
            DirectoryRequest::Register { scope, name, meta, take_over } => {
                let registered = self.register(requester, (scope, &name), &meta, take_over, now_ms)?;
                let (Registered::New(entry) | Registered::Updated(entry)) = registered;
                Ok(answer::entry(&entry))
            }
            DirectoryRequest::RegisterAll(registrations) => self.register_all(owner, &registrations, now_ms),
            DirectoryRequest::Unregister { scope, name } => {
                self.scope(scope)?.replica.unregister(owner, &name).map_err(refusal).map(|()| answer::empty())
            }
            DirectoryRequest::UpdateMeta { scope, name, meta, expected } => {
                let updated = self.scope(scope)?.replica.update_meta(owner, &name, &meta, expected);
                updated.map(|entry| answer::entry(&entry)).map_err(refusal)
            }
            DirectoryRequest::Join { scope, group, meta } => {
                self.scope(scope)?.replica.join(owner, &group, &meta, now_ms).map_err(refusal)?;
                Ok(answer::empty())
            }
            DirectoryRequest::Leave { scope, group } => {
                self.scope(scope)?.replica.leave(owner, &group).map_err(refusal).map(|()| answer::empty())
            }
            DirectoryRequest::Member { scope, group, client } => {
                let client = client.or((!requester.is_backend).then_some(owner)).ok_or(Error::BAD_REQUEST)?;
                self.scope(scope)?
                    .replica
                    .member(client, &group)
                    .map(|entry| answer::member(&entry))
                    .ok_or(Error::NOT_REGISTERED)
            }
            DirectoryRequest::Count { scope } => Ok(answer::counts(&self.scope(scope)?.replica)),
            _ => Err(Error::INTERNAL),
        }
    }

    /// An owner is gone: removes its entries, the calls that it made, and the calls that wait for its reply.
    fn close(&mut self, owner: OwnerId) {
        self.scopes.iter_mut().for_each(|scope| scope.replica.close(owner));
        for (node, calls) in self.calls.caller_gone(owner) {
            self.effects.extend(
                calls
                    .chunks(remote::CLIENTS_MAX)
                    .map(|calls| DirectoryEffect::Node(Arc::clone(&node), remote::gone(calls))),
            );
        }
        let done = self.calls.callee_gone(owner);
        self.finish_all(done);
    }

    /// Sends a message to a name.
    fn send(&mut self, requester: &Requester, target: &Target, data: &Bytes) -> Result<Vec<u8>, Error> {
        let entry = self.resolve(target)?;
        let message = answer::message(requester, &target.key, data);
        self.fits(message.len())?;
        self.effects.push(if *entry.node() == self.node {
            DirectoryEffect::Push(entry.owner(), message)
        } else {
            DirectoryEffect::Node(Arc::clone(entry.node()), remote::send(&[entry.owner()], &message))
        });
        Ok(answer::sent(1))
    }

    /// Checks whether so many more calls of a scope may wait. Returns how long they may wait, milliseconds.
    fn check_call(
        &mut self,
        requester: &Requester,
        target: &Target,
        calls: usize,
        timeout_ms: u64,
    ) -> Result<u64, Error> {
        let (waiting, own) =
            (self.calls.len(), if requester.is_backend { 0 } else { self.calls.of_caller(requester.owner) });
        let options = &self.scope(target.scope)?.options;
        let fits = waiting + calls <= options.calls_limit
            && calls <= options.call_members_limit.max(1)
            && (requester.is_backend || own + calls <= options.client_calls_limit);
        fits.then_some(timeout_ms.min(options.call_timeout_max.as_millis() as u64)).ok_or(Error::TOO_MANY_CALLS)
    }

    /// Calls a name.
    fn call(
        &mut self,
        requester: &Requester,
        target: &Target,
        data: &Bytes,
        timeout_ms: u64,
        asker: Option<A>,
        now_ms: u64,
    ) {
        let Some(asker) = asker else { return };
        let message = answer::message(requester, &target.key, data);
        let resolved = self.fits(message.len()).and_then(|()| self.resolve(target));
        let checked = resolved.and_then(|entry| Ok((self.check_call(requester, target, 1, timeout_ms)?, entry)));
        let (timeout_ms, entry) = match checked {
            Ok(checked) => checked,
            Err(error) => return self.effects.push(DirectoryEffect::Reply(asker, Err(error))),
        };
        let is_here = *entry.node() == self.node;
        let node = (!is_here).then(|| Arc::clone(entry.node()));
        let (by, until_ms) = ((!requester.is_backend).then_some(requester.owner), now_ms.saturating_add(timeout_ms));
        let call = self.calls.open(CallOrigin::Here(asker), by, entry.owner(), node, until_ms);
        self.effects.push(if is_here {
            DirectoryEffect::Call(entry.owner(), call, message.into())
        } else {
            DirectoryEffect::Node(Arc::clone(entry.node()), remote::call(&[entry.owner()], call, timeout_ms, &message))
        });
    }

    fn handle_reply(&mut self, callee: OwnerId, call: u64, reply: CallReply) -> Result<Vec<u8>, Error> {
        if !self.calls.is_awaited(call, callee) {
            return Err(Error::NO_SUCH_CALL);
        }
        let done = self.calls.finish(call, reply);
        self.finish_all(done);
        Ok(answer::empty())
    }

    fn finish_all(&mut self, done: impl IntoIterator<Item = FinishedCall<A>>) {
        for done in done {
            self.effects.push(match done {
                FinishedCall::One(asker, reply) => {
                    DirectoryEffect::Reply(asker, answer::reply(reply).map(DirectoryReply::from))
                }
                FinishedCall::All(asker, replies) => {
                    let size = |reply: &CallReply| reply.as_ref().map_or(0, Bytes::len);
                    let bytes = replies.iter().map(|(_, reply)| size(reply)).sum();
                    let work = Work { items: replies.len(), copies: replies.len(), bytes };
                    DirectoryEffect::Reply(asker, Ok(DirectoryReply::list(Listed::Replies(replies), work)))
                }
                FinishedCall::Node(node, call, reply) => DirectoryEffect::Node(node, remote::reply(call, &reply)),
            });
        }
    }

    /// Turns the outputs of the replicas into effects.
    fn collect(&mut self) {
        let last = self.scopes.len() - 1;
        let (mut nodes_gone, mut inbox_changes, mut is_probe_requested) = (Vec::new(), Vec::new(), false);
        let Directory { scopes, effects, is_clustered, node: me, .. } = self;
        for (index, scope) in scopes.iter_mut().enumerate() {
            let Scope { name, options, replica, watch } = scope;
            for output in replica.outputs() {
                match output {
                    Output::Send { to, message } if *is_clustered => {
                        effects.push(DirectoryEffect::SendToScope { scope: Arc::clone(name), to, message })
                    }
                    Output::Send { .. } | Output::Resolve { .. } => {}
                    Output::Event(event) if index == last => effects.extend(presence::announce(&event)),
                    Output::Event(event) => {
                        if options.inbox_size > 0 {
                            inbox_changes.extend(inbox_change(ScopeId(index as u16), &event, me));
                        }
                        if let Some(watch) = watch {
                            watch.note(event);
                        }
                    }
                    Output::Lost { lost, winner, reason } => {
                        effects.push(DirectoryEffect::Push(lost.owner(), answer::lost(name, &lost, &winner, reason)));
                        effects.extend(options.disconnect_losers.then(|| DirectoryEffect::Disconnect(lost.owner())));
                    }
                    Output::Node { node, is_up } if index == last && !is_up => nodes_gone.push(node),
                    Output::Node { .. } => {}
                    Output::Probe => is_probe_requested = true,
                    Output::Differs { node } => {
                        effects.push(DirectoryEffect::OptionsDiffer { scope: Arc::clone(name), node })
                    }
                }
            }
        }
        if is_probe_requested {
            self.probe();
        }
        for (address, owner) in inbox_changes {
            match owner {
                Some(owner) => {
                    let fetch = self.inbox.open(address, owner);
                    self.fetch(fetch);
                }
                None => self.inbox.close(&address),
            }
        }
        for node in nodes_gone {
            let done = self.calls.node_gone(&node);
            self.finish_all(done);
        }
    }
}

fn refusal(refusal: RegisterRefusal) -> Error {
    match refusal {
        RegisterRefusal::Taken(_) => Error::NAME_TAKEN,
        RegisterRefusal::Undefined => Error::NOT_REGISTERED,
        RegisterRefusal::Changed(_) => Error::CHANGED,
        RegisterRefusal::TooLong => Error::BAD_REQUEST,
        RegisterRefusal::TooMany => Error::LIMIT_EXCEEDED,
    }
}

/// Reads the text of a stamp and revision, as lookups show it; `None` = it is not valid.
pub(crate) fn version_from_text(text: &str) -> Option<(touchline_registry::Stamp, u32)> {
    let (stamp, revision) = text.split_once('.')?;
    Some((touchline_registry::Stamp(stamp.parse().ok()?), revision.parse().ok()?))
}

/// JSON of an error that is part of a reply.
fn error_json(out: &mut Vec<u8>, error: &CallError) {
    match error {
        CallError::Server(error) => encode::error(out, error),
        CallError::Client(json) => out.extend_from_slice(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use touchline_registry::ReplicaTiming;

    #[test]
    fn the_memory_of_a_mass_change_is_freed_once_all_effects_are_taken() {
        let mut directory = Directory::<()>::new("here", &[], &ReplicaTiming::default(), 7, false, 1_000);
        for (room, is_kept) in [(1, true), (SPARE_EFFECTS, true), (SPARE_EFFECTS + 1, false)] {
            directory.effects = Vec::with_capacity(room);
            directory.effects.push(DirectoryEffect::Disconnect(OwnerId([1; 16])));
            directory.release_spare();
            assert_eq!(directory.effects.capacity(), room, "effects that wait are kept");
            assert_eq!(directory.effects().count(), 1);
            directory.release_spare();
            assert_eq!(directory.effects.capacity(), if is_kept { room } else { 0 });
        }
    }
}
