//! Applies changed options to channels that are in use.

use std::sync::Arc;

use touchline_protocol::stream::{ChannelName, Epoch};

use super::backend::{BackendCommand, LogBackend};
use super::replicated_log::Cargo;
use super::sync::{SyncEvent, SyncState};
use super::table::{Channel, ChannelLog, Channels, EXPIRY_STEP_MS};
use crate::namespace::{ChannelOptions, Namespaces};

impl Channels {
    /// Replaces the options of channels. A log in memory begins, ends, or changes its size without a break. If a log in
    /// a log backend begins or ends, the subscribers are asked to subscribe again.
    pub fn set_namespaces(&mut self, namespaces: Arc<Namespaces>, now_ms: u64) {
        let before = std::mem::replace(&mut self.namespaces, Arc::clone(&namespaces));
        let has_changed = |name: &&ChannelName| match (before.resolve(name), namespaces.resolve(name)) {
            (Ok(before), Ok(now)) => !std::ptr::eq(before, now) && layout(before) != layout(now),
            (before, now) => before.is_ok() != now.is_ok(),
        };
        let names: Vec<ChannelName> = self.table.keys().filter(has_changed).cloned().collect();
        for name in names {
            match (before.resolve(&name), namespaces.resolve(&name)) {
                (_, Ok(now)) => self.refit(&name, now, now_ms),
                (Ok(before), Err(_)) => self.close(&name, before),
                (Err(_), Err(_)) => {}
            }
        }
    }

    /// Adapts a channel to its options.
    fn refit(&mut self, name: &ChannelName, options: &ChannelOptions, now_ms: u64) {
        let meta_ttl_ms = self.unused_ttl_ms(name);
        let has_none = self.table.get(name).is_some_and(|channel| channel.log.is_none());
        let epoch = if has_none && options.has_history() { self.new_epoch() } else { Epoch::default() };
        let Channels { table, expiries, empties, .. } = self;
        let Some(channel) = table.get_mut(name) else { return };
        channel.has_changes = !options.allowed_delta_types.is_empty();
        if let (Some(log), true) = (&mut channel.log, options.has_history()) {
            let (before, retention) = (log.retention, options.retention());
            log.retention = retention;
            log.retention.meta_ttl_ms = meta_ttl_ms.unwrap_or(retention.meta_ttl_ms);
            log.ring.refit(retention.size, (before.ttl_ms, retention.ttl_ms), now_ms);
            if log.expiry_ms > now_ms + EXPIRY_STEP_MS {
                // The check that is already scheduled finds another time and does nothing.
                log.expiry_ms = 0;
                log.schedule_expiry(name, now_ms + EXPIRY_STEP_MS, expiries);
            }
            return;
        }
        // After a log has ended, no delta has a base.
        channel.latest = None;
        if channel.log.take().is_some_and(|log| log.empty_number > 0) {
            empties.leave();
        }
        if options.has_history() {
            let mut log = ChannelLog::new(options, epoch, now_ms);
            log.retention.meta_ttl_ms = meta_ttl_ms.unwrap_or(log.retention.meta_ttl_ms);
            log.schedule_expiry(name, now_ms + EXPIRY_STEP_MS, expiries);
            channel.log = Some(Box::new(log));
        }
        if meta_ttl_ms.is_some() {
            self.step(name, options, SyncEvent::Relogged, Cargo::None, now_ms);
        } else {
            self.keep_or_forget(name, now_ms);
        }
    }

    /// Closes a channel whose namespace no longer exists. The sessions notify its subscribers.
    fn close(&mut self, name: &ChannelName, before: &ChannelOptions) {
        if self.backends.log_backend(name, before) == LogBackend::Cluster {
            self.command(BackendCommand::SetInterest { channel: name.clone(), is_wanted: false });
        }
        self.make_ready(name);
        let Some(channel) = self.table.get_mut(name) else { return };
        (channel.sync, channel.latest) = (SyncState::Idle, None);
        if channel.log.take().is_some_and(|log| log.empty_number > 0) {
            self.empties.leave();
        }
        if self.table.get(name).is_some_and(is_unused) {
            self.forget(name);
        }
    }
}

/// The options that determine how a channel is set up.
fn layout(options: &ChannelOptions) -> impl PartialEq {
    (options.has_history(), options.retention(), options.allowed_delta_types.is_empty())
}

fn is_unused(channel: &Channel) -> bool {
    channel.subscribers.iter().all(|n| *n == 0)
}
