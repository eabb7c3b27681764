//! What brings the caches of replicated channels up to date: the link is back, a channel or a stream is reported to
//! have grown, or a store may have more than it reported.

use std::sync::Arc;

use touchline_protocol::stream::{ChannelName, Epoch, LoadId, NamespaceName, Offset, StreamPosition};

use super::backend::{BackendCommand, LogBackend};
use super::cache::{AheadQuery, Verification};
use super::replicated_log::Cargo;
use super::sync::{Growth, SyncEvent};
use super::table::{Channel, Channels};
use crate::namespace::ChannelOptions;

/// The time for events whose effects only ask the log backend and record no time.
const NO_TIME: u64 = 0;

impl Channels {
    /// Notes that the link to the cluster is established or lost. When it is back, every cache catches up: it loads
    /// what it missed, and repeats what was under way when the link was lost.
    pub fn set_linked(&mut self, is_linked: bool, now_ms: u64) {
        self.backends.is_linked = is_linked;
        if is_linked {
            self.backends.linked_ms = now_ms;
        }
        self.for_each_of(LogBackend::Cluster, |channels, name, options| {
            let Some(known) = channels.table.get(name) else { return };
            let has_query = known.log.as_ref().is_some_and(|log| matches!(log.cache.ahead, AheadQuery::Asked { .. }));
            let event = if is_linked {
                SyncEvent::Linked { has_log: known.log.is_some() }
            } else {
                SyncEvent::Unlinked { has_query }
            };
            channels.step(name, options, event, Cargo::None, now_ms);
        });
    }

    /// Loads the log of every cached durable channel and compares it with the cache. Other nodes may have stored
    /// publications without a report, or the store may have been restored to an earlier state.
    pub fn catch_up(&mut self) {
        self.for_each_of(LogBackend::Store, |channels, name, options| {
            if channels.table.get(name).is_some_and(|known| known.log.is_some()) {
                channels.step(name, options, SyncEvent::Missed, Cargo::Offset(Offset::END), NO_TIME);
            }
        });
    }

    /// Checks the caches of a namespace after its stream in the cluster has grown: each should have received all its
    /// publications. A channel that is still subscribing is loaded afterwards anyway.
    pub fn check_namespace(&mut self, namespace: &NamespaceName) {
        let namespaces = Arc::clone(&self.namespaces);
        self.for_each_of(LogBackend::Cluster, |channels, name, options| {
            if *namespaces.namespace_of(name) == **namespace {
                channels.step(name, options, SyncEvent::StreamGrown, Cargo::None, NO_TIME);
            }
        });
    }

    /// Calls `act` for each channel of a log backend, in the order of the table.
    fn for_each_of(&mut self, backend: LogBackend, mut act: impl FnMut(&mut Self, &ChannelName, &ChannelOptions)) {
        let namespaces = Arc::clone(&self.namespaces);
        let names: Vec<ChannelName> = self.table.keys().cloned().collect();
        for name in &names {
            if let Ok(options) = namespaces.resolve(name)
                && self.backends.log_backend(name, options) == backend
            {
                act(self, name, options);
            }
        }
    }

    /// Handles a report that another node has stored a publication. If its epoch differs, or its offset is already in
    /// the cache, the home checks the log backend: the report may be late, or the backend may have been restored to an
    /// earlier state.
    pub(super) fn handle_advanced(
        &mut self,
        channel: &ChannelName,
        options: &ChannelOptions,
        advanced: StreamPosition,
        now_ms: u64,
    ) {
        let StreamPosition { offset: top, epoch } = advanced;
        let Some(Channel { log: Some(log), .. }) = self.table.get(channel) else { return };
        let position = log.ring.position();
        let is_of_other = epoch != Epoch::default() && epoch != position.epoch;
        if is_of_other || top < position.offset {
            let from = if is_of_other { position.offset.next() } else { top };
            let event = SyncEvent::Reported(Growth::Contradicting);
            return self.step(channel, options, event, Cargo::Offset(from), now_ms);
        }
        self.catch_up_to(channel, options, top, now_ms);
    }

    /// Loads what the cache is missing of a channel whose log reaches the offset `top`.
    pub(super) fn catch_up_to(&mut self, channel: &ChannelName, options: &ChannelOptions, top: Offset, now_ms: u64) {
        let Some(Channel { log: Some(log), .. }) = self.table.get(channel) else { return };
        let growth = if log.ring.position().offset < top { Growth::Beyond } else { Growth::Known };
        self.step(channel, options, SyncEvent::Reported(growth), Cargo::Offset(top), now_ms);
    }

    /// Requests everything after the cache's top.
    pub(super) fn load_gap(&mut self, channel: &ChannelName) {
        let Some(Channel { log: Some(log), .. }) = self.table.get(channel) else { return };
        let top = log.ring.position().offset;
        self.load(channel, top);
    }

    /// Requests what the cache keeps and everything after it: the store may have been restored to an earlier state.
    pub(super) fn load_kept(&mut self, channel: &ChannelName) {
        let load = self.backends.next_load();
        let Some(Channel { log: Some(log), .. }) = self.table.get_mut(channel) else { return };
        let top = log.ring.position().offset;
        log.cache.verification = Verification { load, top, next: log.cache.verification.next };
        let floor = log.ring.floor();
        self.load(channel, floor);
    }

    /// Requests the newest publication of the cache and everything after it. The cluster may have been restored to an
    /// earlier state and have appended other publications since.
    pub(super) fn load_newest(&mut self, channel: &ChannelName) {
        let load = self.backends.next_load();
        let Some(Channel { log: Some(log), .. }) = self.table.get_mut(channel) else { return };
        let top = log.ring.newest().unwrap_or_default();
        log.cache.verification = Verification { load, top, next: log.cache.verification.next };
        let proof = log.ring.proof();
        self.load(channel, proof);
    }

    /// Asks the cluster whether it has anything after the cache's top.
    pub(super) fn check(&mut self, channel: &ChannelName) {
        let Some(Channel { log: Some(log), .. }) = self.table.get(channel) else { return };
        let behind = log.ring.position().offset;
        let load = LoadId { behind, number: self.backends.number_load() };
        let namespace = self.namespaces.namespace_of(channel).into();
        self.backends.commands.push(BackendCommand::Check { channel: channel.clone(), namespace, load });
    }
}
