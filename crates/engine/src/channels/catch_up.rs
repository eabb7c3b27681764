//! What brings the caches of replicated channels up to date: a link that is back, a report that a channel or a stream
//! has grown, and a store that may have more than it reported.

use std::collections::HashMap;
use std::sync::Arc;
use touchline_protocol::stream::{ChannelName, Epoch, LoadId, NamespaceName, Offset, StreamPosition};

use super::backend::LogBackend;
use super::loading::{AheadQuery, Verification};
use super::replicated_log::{Loading, SyncState};
use super::{BackendCommand, Channel, Channels};

/// All channels, sorted by name. A hash map iterates in another order in each process; a simulation must repeat.
fn in_order(table: &mut HashMap<ChannelName, Channel>) -> impl Iterator<Item = (&ChannelName, &mut Channel)> {
    let mut all: Vec<_> = table.iter_mut().collect();
    all.sort_unstable_by_key(|(name, _)| *name);
    all.into_iter()
}

impl Channels {
    /// The link to the cluster has come or is lost. When it is back, every cache catches up.
    pub fn set_linked(&mut self, is_linked: bool, now_ms: u64) {
        let backends = &mut self.backends;
        backends.is_linked = is_linked;
        if is_linked {
            backends.linked_ms = now_ms;
        }
        let namespaces = Arc::clone(&self.namespaces);
        for (name, channel) in in_order(&mut self.table) {
            if namespaces.resolve(name).is_ok_and(|options| backends.log_backend(name, options) != LogBackend::Cluster)
            {
                continue;
            }
            let namespace = || -> NamespaceName { namespaces.namespace_of(name).into() };
            let position = channel.log.as_ref().map(|log| log.ring.position());
            if !is_linked && matches!(channel.sync, SyncState::Live) {
                channel.log.iter_mut().for_each(|log| log.synced_ms = now_ms);
            }
            match (&mut channel.sync, position, is_linked) {
                // The home loads what came meanwhile, and what was under way when the link was lost. It reads the
                // newest publication of the cache again: the cluster may have been restored to an earlier state, and
                // have appended others since.
                (sync @ (SyncState::Live | SyncState::Loading(_)), Some(position), true) => {
                    if matches!(sync, SyncState::Live) {
                        *sync = SyncState::Loading(Loading::default());
                    }
                    let number = backends.number_load();
                    let mut behind = position.offset;
                    if let Some(log) = &mut channel.log {
                        behind = log.ring.proof();
                        let top = log.ring.newest().unwrap_or_default();
                        log.verification = Verification { load: number, top, next: log.verification.next };
                    }
                    backends.commands.push(BackendCommand::Load {
                        channel: name.clone(),
                        namespace: namespace(),
                        load: LoadId { behind, number },
                    });
                }
                (SyncState::Subscribing, Some(_), true) => {
                    backends.commands.push(BackendCommand::SetInterest { channel: name.clone(), is_wanted: true })
                }
                (SyncState::Subscribing | SyncState::Idle, None, true) => {
                    channel.sync = SyncState::Subscribing;
                    backends.commands.push(BackendCommand::SetInterest { channel: name.clone(), is_wanted: true });
                }
                // A request that is ahead is refused until the link is back.
                (SyncState::Live, _, false)
                    if channel.log.as_ref().is_some_and(|log| matches!(log.ahead, AheadQuery::Asked { .. })) =>
                {
                    channel.log.iter_mut().for_each(|log| log.ahead = AheadQuery::None);
                    backends.ready.push(name.clone());
                }
                (SyncState::Live, _, _) | (_, _, true) => {}
                // What came before the link was lost may be gone when the link is back; what is still there is loaded
                // then.
                (SyncState::Loading(loading), _, false) => {
                    *loading = Loading::default();
                    backends.ready.push(name.clone());
                }
                // Waiting requests are refused now.
                (_, _, false) => backends.ready.push(name.clone()),
            }
        }
    }

    /// Other nodes may have stored publications without a report, or the store may have been restored to an earlier
    /// state: every cache of a durable channel loads its log, and the home compares the two.
    pub fn catch_up(&mut self) {
        let mut durable: Vec<_> =
            self.table.keys().filter(|name| self.log_backend(name) == LogBackend::Store).cloned().collect();
        durable.sort_unstable();
        durable.iter().for_each(|name| self.catch_up_with(name));
    }

    fn catch_up_with(&mut self, name: &ChannelName) {
        let load = self.backends.next_load();
        match self.table.get_mut(name) {
            Some(Channel { sync: sync @ SyncState::Live, log: Some(log), .. }) => {
                *sync = SyncState::Loading(Loading::default());
                log.verification = Verification { load, top: log.ring.position().offset, next: log.verification.next };
                let floor = log.ring.floor();
                self.load(name, floor);
            }
            _ => self.catch_up_to(name, Offset::END),
        }
    }

    /// A namespace's stream in the cluster has grown: the home checks whether each cache has all that it should have
    /// received.
    pub fn check_namespace(&mut self, namespace: &NamespaceName) {
        for (name, channel) in in_order(&mut self.table) {
            let is_in_cluster = self
                .namespaces
                .resolve(name)
                .is_ok_and(|options| self.backends.log_backend(name, options) == LogBackend::Cluster);
            // What is loading now may have been read before the stream grew; a channel that is subscribing is loaded
            // after it.
            if let (SyncState::Live | SyncState::Loading(_), Some(log)) = (&channel.sync, &channel.log)
                && is_in_cluster
                && *self.namespaces.namespace_of(name) == **namespace
            {
                let (behind, backends) = (log.ring.position().offset, &mut self.backends);
                let number = backends.number_load();
                backends.commands.push(BackendCommand::Check {
                    channel: name.clone(),
                    namespace: namespace.clone(),
                    load: LoadId { behind, number },
                });
            }
        }
    }

    /// Another node has stored a publication. If it is of another epoch, or its offset is in the cache, the home checks
    /// the log backend: the report may be late, or the log backend may have been restored to an earlier state.
    pub(super) fn handle_advanced(&mut self, channel: &ChannelName, advanced: StreamPosition) {
        let StreamPosition { offset: top, epoch } = advanced;
        if let Some(Channel { sync: SyncState::Live | SyncState::Loading(_), log: Some(log), .. }) =
            self.table.get(channel)
        {
            let position = log.ring.position();
            let is_of_other = epoch != Epoch::default() && epoch != position.epoch;
            if is_of_other || top < position.offset {
                self.verify(channel, if is_of_other { position.offset.next() } else { top });
                return;
            }
        }
        self.catch_up_to(channel, top);
    }

    /// Loads what the cache does not have of a channel whose log has an offset `top`.
    pub(super) fn catch_up_to(&mut self, channel: &ChannelName, top: Offset) {
        let Some(Channel { sync, log: Some(log), .. }) = self.table.get_mut(channel) else { return };
        let behind = log.ring.position().offset;
        match sync {
            SyncState::Live if behind < top => {
                *sync = SyncState::Loading(Loading::default());
                self.load(channel, behind);
            }
            SyncState::Loading(loading) => loading.top = loading.top.max(top),
            _ => {}
        }
    }
}
