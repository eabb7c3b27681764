//! The registry as a node uses it: scopes of names and groups, the presence of channels, messages and calls to names.
//!
//! The module is pure. [`DirectoryRequest`]s of clients and of the server API, messages of other nodes, and the time go
//! in; [`DirectoryEffect`]s come out. Presence is a group named by the channel, in a scope of its own.
//!
//! A request arrives as text (`parse.rs`, [`RegistryMethod`]), its permission is checked (`permit.rs`), and it is
//! executed (`dispatch.rs`). The state is in `state.rs`.

mod answer;
mod calling;
mod calls;
mod changes;
mod client_id;
mod collect;
mod dispatch;
mod effect;
mod entries;
mod held;
mod inbox;
mod inbox_delivery;
mod incident;
mod lookup;
mod method;
mod name_page;
mod nodes;
mod optional;
mod own_names;
mod params_fault;
mod parse;
mod permit;
mod presence;
mod presence_entry;
mod register_all;
mod remote;
mod reply;
mod request;
mod scope;
mod size;
mod state;
mod told;
mod walk;
mod watch;
mod watch_position;

use std::sync::Arc;

use touchline_registry::OwnerId;

pub use answer::{message_of_backend, numbered, push as message_push};
pub use client_id::{client_from_text, client_text};
pub use effect::DirectoryEffect;
pub use held::{HeldEntries, HeldEntry};
pub use inbox::DroppedIds;
pub use incident::{EntryIncident, LostClient, ToldChanges};
pub use method::RegistryMethod;
pub use own_names::OwnNames;
pub use params_fault::ParamsFault;
pub(crate) use parse::has_control;
pub use parse::{is_readable, read, request_fields, request_schema};
pub(crate) use permit::{cause_of_denial, deciding_options, permit};
pub use reply::DirectoryReply;
pub use request::{DirectoryRequest, Listing, Registration, Requester, Target};
pub use scope::{ConflictPolicy, ScopeId, ScopeOptions, Scopes};
pub use state::{Directory, ScopeMetrics};
pub use walk::Walk;
pub use watch_position::WatchPosition;

use crate::namespace::WATCH_CHANNEL_PREFIX;
use state::Scope;

impl<A> Directory<A> {
    /// Handles a message from another node's part of a scope.
    pub fn receive(&mut self, scope: &str, message: &[u8], now_ms: u64) {
        self.now_ms = now_ms;
        if let Some(scope) = self.scopes.iter_mut().find(|known| &*known.name == scope) {
            scope.replica.receive(message, now_ms);
        }
        self.collect();
    }

    /// Sends what is queued for other nodes and watchers. Call this function after each batch of requests.
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

    /// Handles timeouts and retries. Call this function about ten times a second.
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

    /// Notifies the other nodes that this node leaves.
    pub fn goodbye(&mut self) {
        if self.is_clustered {
            self.scopes.iter_mut().for_each(|scope| scope.replica.goodbye());
            self.collect();
        }
    }

    /// Handles that an owner is gone: removes its entries, the calls that it made, and the calls that wait for its
    /// reply.
    pub(super) fn close(&mut self, owner: OwnerId) {
        self.scopes.iter_mut().for_each(|scope| scope.replica.close(owner));
        for (node, calls) in self.calls.caller_gone(owner) {
            self.effects.extend(
                calls
                    .chunks(size::CLIENTS_MAX)
                    .map(|calls| DirectoryEffect::Node(Arc::clone(&node), remote::gone(calls))),
            );
        }
        let done = self.calls.callee_gone(owner);
        self.finish_all(done);
    }
}
