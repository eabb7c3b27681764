//! How the directory handles inbox messages: the store keeps and loads them, and clients of this node receive them.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Error;
use touchline_protocol::data::is_plain_text;
use touchline_registry::{EntryChange, OwnerId, RegistryEvent};

use super::answer;
use super::effect::DirectoryEffect;
use super::inbox::{DroppedIds, Fetch, InboxAddress};
use super::request::{Requester, Target};
use super::scope::ScopeId;
use super::state::{Directory, Scope};
use crate::duration::millis;

impl<A> Directory<A> {
    /// Handles that the store has a new inbox message for a name. A client of this node may own the name.
    pub fn message_queued(&mut self, scope: &str, name: &str) {
        let Some(index) = self.scopes.iter().position(|known| &*known.name == scope) else { return };
        if let Some(entry) = self.scopes[index].replica.lookup(name).filter(|entry| *entry.node() == self.node) {
            let fetch = self.inbox.open((ScopeId(index as u16), name.into()), entry.owner());
            self.fetch(fetch);
        }
    }

    /// Delivers inbox messages of a name. `messages`: ids and messages as the store has them; `None` = the store could
    /// not load them.
    pub fn deliver_messages(&mut self, scope: &str, name: &str, messages: Option<Vec<(u64, Bytes)>>, now_ms: u64) {
        let Some(index) = self.scopes.iter().position(|known| &*known.name == scope) else { return };
        let address = (ScopeId(index as u16), name.into());
        let (delivered, fetch) = self.inbox.handle_loaded(&address, messages, now_ms);
        let push = |(owner, id, message): (OwnerId, u64, Bytes)| {
            DirectoryEffect::Push(owner, answer::inbox_message(id, &message))
        };
        self.effects.extend(delivered.into_iter().map(push));
        self.fetch(fetch);
    }

    /// Handles that the store has discarded acknowledged inbox messages.
    pub fn discarded(&mut self, ids: &[u64]) {
        let fetches = self.inbox.discarded(ids);
        self.fetch(fetches);
    }

    /// Handles that the store has deleted messages of a name without an acknowledgement. They are no longer delivered,
    /// and a client that has already received some need not acknowledge them.
    pub fn dropped(&mut self, scope: &str, name: &str, dropped: DroppedIds) {
        let Some(index) = self.scopes.iter().position(|known| &*known.name == scope) else { return };
        let fetch = self.inbox.dropped((ScopeId(index as u16), name.into()), dropped);
        self.fetch(fetch);
    }

    /// Makes the store keep a message for a name, whether or not the name has an owner now.
    pub(super) fn store_message(
        &mut self,
        requester: &Requester,
        target: &Target,
        data: &Bytes,
        now_ms: u64,
        store_for_ms: u64,
        asker: Option<A>,
    ) {
        let checked = self.scope(target.scope).and_then(|Scope { name: scope, options, .. }| {
            if target.is_group || target.key.len() > options.name_max_length || !is_plain_text(&target.key) {
                return Err(Error::BAD_REQUEST);
            }
            if options.inbox_size == 0 {
                return Err(Error::NOT_AVAILABLE);
            }
            let expires_ms = now_ms.saturating_add(store_for_ms.min(millis(options.inbox_ttl_max)));
            Ok((Arc::clone(scope), expires_ms, options.inbox_size))
        });
        let message = answer::stored_message(requester, &target.key, data, now_ms);
        match (checked, asker) {
            (Ok((scope, expires_ms, most)), asker) => {
                self.effects.push(DirectoryEffect::StoreMessage {
                    scope,
                    name: target.key.clone(),
                    message,
                    expires_ms,
                    most,
                    asker,
                });
            }
            (Err(error), Some(asker)) => self.effects.push(DirectoryEffect::Reply(asker, Err(error))),
            (Err(_), None) => {}
        }
    }

    pub(super) fn fetch(&mut self, fetches: impl IntoIterator<Item = Fetch>) {
        for Fetch { address: (scope, name), behind, limit } in fetches {
            let Some(Scope { name: scope, .. }) = self.scopes.get(usize::from(scope.0)) else { continue };
            self.effects.push(DirectoryEffect::LoadMessages { scope: Arc::clone(scope), name, behind, limit });
        }
    }
}

/// The name whose inbox messages this node starts to deliver, with the name's owner, or stops to deliver (`None`).
pub(super) fn inbox_change(
    scope: ScopeId,
    event: &RegistryEvent,
    me: &Arc<str>,
) -> Option<(InboxAddress, Option<OwnerId>)> {
    let address = || (scope, Box::from(event.entry.key()));
    match event.change {
        EntryChange::Registered => Some((address(), (event.entry.node() == me).then(|| event.entry.owner()))),
        EntryChange::Unregistered => Some((address(), None)),
        _ => None,
    }
}
