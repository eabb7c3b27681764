//! The state of the link to NATS: when it is made, when it is lost, and what follows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use async_nats::Event;
use bytes::Bytes;
use tokio::task::JoinSet;
use touchline_protocol::fact::FactsEvent;
use touchline_protocol::stream::ChannelName;

use crate::bucket_follower::BucketFollower;
use crate::connection::ConnectedNode;
use crate::events::ClusterEvent;
use crate::versions::say_what_nats_keeps;

impl ConnectedNode {
    /// Reports that the cluster can be reached, if this node has joined and its streams are open.
    pub(crate) fn report_link(&self) {
        if self.members.is_joined() && (self.settings.streams.is_empty() || self.streams.is_some()) {
            (self.events)(ClusterEvent::Linked(true));
        }
    }

    pub(crate) fn on_nats_event(&mut self, event: &Event) {
        match event {
            Event::Connected | Event::Disconnected => self.follow_link(),
            Event::SlowConsumer(_) => {
                tracing::warn!("messages of other nodes arrived faster than they could be processed: some are lost");
                self.checks.trouble.notify_one();
            }
            other => {
                self.log.note(other);
                self.checks.trouble.notify_one();
            }
        }
    }

    /// Notices that the connection was lost or made. Each tick calls it too, because the client drops events when there
    /// are many, for example those of a slow consumer that the server then disconnects.
    pub(crate) fn follow_link(&mut self) {
        let is_up = self.client.is_up();
        let connects = self.client.connects();
        if self.link.is_some_and(|known| !is_up || known != connects) {
            self.link = None;
            self.on_lost();
        }
        if is_up && self.link.is_none() {
            self.link = Some(connects);
            self.on_connected();
        }
    }

    fn on_connected(&mut self) {
        let info = self.client.server_info();
        self.log.connected(&info);
        say_what_nats_keeps(&self.settings, &info.version);
        let steps = self.members.linked(true, self.now_ms());
        self.run_steps(steps);
        if !self.settings.streams.is_empty() {
            self.open_streams();
        }
        self.follow_facts();
        // An echo that was under way when the connection was lost does not arrive.
        self.has_new |= !self.unconfirmed.is_empty();
        self.ask_echo();
    }

    fn on_lost(&mut self) {
        self.log.lost();
        self.is_joined.store(false, Relaxed);
        self.return_unwritten();
        (self.events)(ClusterEvent::Linked(false));
        if self.settings.has_facts {
            self.fact_follower = JoinSet::new();
            (self.events)(ClusterEvent::Facts(FactsEvent::CutOff));
        }
        self.marks_before = Some(Arc::new(match (&self.marks_before, self.streams()) {
            (Some(before), Some(open)) => before.with(&self.marks, open.lives()),
            (Some(before), None) => before.copy(),
            (None, _) => self.marks.copy(),
        }));
        // Requests that were sent over the lost connection would only time out.
        if let Some(opening) = self.opening.take() {
            opening.abort();
        }
        self.lost += 1;
        // The callers load again when the connection is back.
        self.waiting_loads.clear();
        let steps = self.members.linked(false, self.now_ms());
        self.run_steps(steps);
    }

    /// Returns the publications that wait to be written to the subscribers on this node. They were accepted, so they
    /// come before later ones.
    pub(crate) fn return_unwritten(&mut self) {
        self.returned.end_link();
        for (channel, payload) in self.writer.take_unwritten() {
            self.deliver_here(channel, payload);
        }
    }

    /// Delivers a publication to the subscribers on this node alone.
    pub(crate) fn deliver_here(&self, channel: ChannelName, payload: Bytes) {
        if self.channels.contains_key(&channel) {
            self.returned.note(&channel);
        }
        (self.events)(ClusterEvent::Ephemeral { channel, payload });
    }

    /// Loads and follows the shared facts until the connection is lost, or warns of facts that are left in NATS.
    fn follow_facts(&mut self) {
        if !self.settings.has_facts && self.lost == 0 {
            let bucket = self.facts.clone();
            self.fact_follower = JoinSet::from_iter([async move { bucket.warn_of_what_is_left().await }]);
        }
        if self.settings.has_facts {
            let follower = BucketFollower {
                bucket: self.facts.clone(),
                client: self.client.clone(),
                events: Arc::clone(&self.events),
                outages: Arc::clone(&self.fact_outages),
                is_first: Arc::clone(&self.is_first),
                needs_jetstream: !self.settings.streams.is_empty(),
            };
            self.fact_follower = JoinSet::from_iter([follower.run()]);
        }
    }
}
