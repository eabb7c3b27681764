//! Channels whose home is this shard and whose log is in a log backend (JetStream or the store): requests that wait for
//! the backend, and commands to it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use touchline_cluster::StreamError;
use touchline_engine::Response;
use touchline_engine::channels::{BackendCommand, Submitted, removal};
use touchline_engine::request::{ChannelRequest, WaitingRequest};
use touchline_protocol::Error;
use touchline_protocol::publication::Content;
use touchline_protocol::stored::Unreadable;
use touchline_protocol::stream::{ChannelName, NamespaceName, StreamPosition};

use super::state::Shard;
use crate::backend::store;
use crate::node::Node;
use crate::runtime::ends_process::EndsProcess;
use crate::runtime::reply_to::ReplyTo;

/// How many bytes a message to the other nodes adds to the content of a publication at most: names of fields, numbers,
/// headers.
const PUBLICATION_OVERHEAD: usize = 1_024;

/// A channel whose home panics, for tests.
#[cfg(test)]
pub(crate) const FAULTY_CHANNEL: &str = "faulty";

/// The least time between two log lines about unreadable payloads, in milliseconds.
const UNREADABLE_REPORT_INTERVAL_MS: u64 = 10_000;

/// Logs that a payload can't be read, at most once in ten seconds, because every subscriber of the channel meets it.
fn report_unreadable(node: &Node, channel: &str, Unreadable { format }: Unreadable, now_ms: u64) {
    let reported_ms = node.unreadable_reported_ms.load(Relaxed);
    if now_ms >= reported_ms.saturating_add(UNREADABLE_REPORT_INTERVAL_MS)
        && node.unreadable_reported_ms.compare_exchange(reported_ms, now_ms, Relaxed, Relaxed).is_ok()
    {
        tracing::error!(
            channel,
            format,
            "a payload is of a later version, or damaged: this node can't serve the channel"
        );
    }
}

impl Shard {
    /// Runs a request to a channel, now or as soon as the channel is live.
    pub(super) fn submit(&mut self, channel: &ChannelName, request: WaitingRequest, reply_to: ReplyTo) {
        let _ends = EndsProcess::of("channels");
        #[cfg(test)]
        assert!(&**channel != FAULTY_CHANNEL, "a fault that a test has put in");
        // The requests of a session for one channel stay in order. In a live channel, a request waits only behind
        // requests of the same subscriber.
        if let Some(subscriber) = request.request().subscriber()
            && let Some(waiting) = self.waiting.get_mut(channel)
            && (!self.channels.is_live(channel) || waiting.subscribers.contains(&subscriber))
        {
            return waiting.push(request, reply_to);
        }
        if let Some(refusal) = self.refused_by_cluster(channel, request.request()) {
            return self.node.reply(reply_to, Response::Refused(refusal));
        }
        let bytes = match request.request() {
            ChannelRequest::Publish(publish) => publish.content.data.len(),
            _ => 0,
        };
        let are_followed = self.node.frame_traces.follow_channels();
        let traced = are_followed.then(|| self.traced_publication(channel, request.request())).flatten();
        match self.channels.submit(channel, request, self.now_ms) {
            Submitted::Done(response) => {
                let is_repetition = self.channels.take_repetition();
                if let Response::Published(position) = &response
                    && !is_repetition
                {
                    self.count_publication(channel, bytes);
                    traced.into_iter().for_each(|traced| traced.show(&self.node, position.as_ref()));
                }
                self.node.reply(reply_to, response);
            }
            Submitted::Wait(request) => self.waiting.entry(channel.clone()).or_default().push(request, reply_to),
            Submitted::Append { namespace, payload, idempotency_key: key } => {
                let Some(cluster) = &self.node.cluster else { return };
                let (node, counts) = (Arc::clone(&self.node), self.namespace_counts(channel).cloned());
                // The cluster logs why it does not store a publication.
                let done = move |appended: Result<StreamPosition, StreamError>| {
                    let response = match appended {
                        Ok(position) => {
                            counts.inspect(|counts| counts.published(bytes));
                            traced.into_iter().for_each(|traced| traced.show(&node, Some(&position)));
                            Response::Published(Some(position))
                        }
                        Err(_) => Response::Refused(Error::CLUSTER_UNREACHABLE),
                    };
                    node.reply(reply_to, response);
                };
                cluster.append(channel.clone(), namespace, payload, key, Box::new(done));
            }
            Submitted::Purge(namespace) => self.purge(channel.clone(), namespace, reply_to),
            Submitted::Store(publication) => {
                let counts = self.namespace_counts(channel).cloned();
                let traced = traced.map(|traced| (traced, Arc::clone(&self.node)));
                let taken = move || {
                    counts.inspect(|counts| counts.published(bytes));
                    traced.into_iter().for_each(|(traced, node)| traced.show(&node, None));
                };
                store::append(&self.node, channel, publication, reply_to, taken);
            }
            Submitted::Remove => store::remove(&self.node, channel, reply_to),
        }
    }

    /// Removes the history of a channel from JetStream.
    fn purge(&self, channel: ChannelName, namespace: NamespaceName, reply_to: ReplyTo) {
        let Some(cluster) = &self.node.cluster else { return };
        let node = Arc::clone(&self.node);
        let done = move |purged: Result<(), StreamError>| {
            let refused = |_| Response::Refused(Error::CLUSTER_UNREACHABLE);
            node.reply(reply_to, purged.map_or_else(refused, |()| Response::Done));
        };
        cluster.purge(channel, namespace, removal, Box::new(done));
    }

    /// Why a publication cannot be sent to the other nodes: it is too large, or too much waits for NATS already.
    fn refused_by_cluster(&self, channel: &str, request: &ChannelRequest) -> Option<Error> {
        let cluster = self.node.cluster.as_ref()?;
        if self.is_too_large(channel, request) {
            return Some(Error::BAD_REQUEST);
        }
        let is_publish = matches!(request, ChannelRequest::Publish(_));
        let has_room = if self.node.is_linked.load(Relaxed) { cluster.has_room() } else { cluster.has_room_here() };
        if is_publish && !has_room && !self.is_in_database(channel, request) {
            cluster.count_refused();
            return Some(Error::CLUSTER_UNREACHABLE);
        }
        None
    }

    /// Whether a publication goes to the database, and not through NATS.
    fn is_in_database(&self, channel: &str, request: &ChannelRequest) -> bool {
        let ChannelRequest::Publish(publish) = request else { return false };
        let options = self.generation.session.namespaces.resolve(channel);
        options.is_ok_and(|options| options.durable && options.has_history() && !publish.skip_history)
    }

    /// Whether a publication is larger than one message to the other nodes may be. Publications of durable channels go
    /// to the database and have no such limit.
    fn is_too_large(&self, channel: &str, request: &ChannelRequest) -> bool {
        let ChannelRequest::Publish(publish) = request else { return false };
        let Content { data, tags, info, .. } = &publish.content;
        let tags = tags.iter().map(|(key, value)| 2 * (key.len() + value.len())).sum::<usize>();
        let info = info.as_ref().map_or(0, |info| {
            info.user.len()
                + info.conn_info.as_ref().map_or(0, Bytes::len)
                + info.chan_info.as_ref().map_or(0, Bytes::len)
        });
        self.node.is_too_large(data.len() + tags + info + publish.idempotency_key.len() + PUBLICATION_OVERHEAD)
            && !self.is_in_database(channel, request)
    }

    /// Runs the channels' commands to their log backends, resumes requests that have waited, and sends deliveries.
    pub(super) fn run_backend_commands(&mut self) {
        let _ends = EndsProcess::of("channels");
        self.send_deliveries();
        if self.node.cluster.is_none() && self.node.store().is_none() {
            return;
        }
        loop {
            let ready = self.channels.take_ready();
            for channel in &ready {
                for (request, reply_to) in self.waiting.remove(channel).unwrap_or_default().requests {
                    self.submit(channel, request, reply_to);
                }
            }
            self.send_deliveries();
            for command in self.channels.backend_commands() {
                match (command, &self.node.cluster) {
                    (BackendCommand::LoadStored { channel, load }, _) => store::load(&self.node, channel, load),
                    (BackendCommand::SetInterest { channel, is_wanted }, Some(cluster)) => {
                        cluster.set_interest(channel, is_wanted)
                    }
                    (BackendCommand::Load { channel, namespace, load }, Some(cluster)) => {
                        cluster.load(channel, namespace, load);
                    }
                    (BackendCommand::Check { channel, namespace, load }, Some(cluster)) => {
                        cluster.check(channel, namespace, load);
                    }
                    (BackendCommand::Broadcast { channel, payload }, Some(cluster)) => {
                        cluster.publish_ephemeral(channel, payload)
                    }
                    (BackendCommand::BeginRun { channel, lost: run, first }, _) => {
                        store::begin_run(&self.node, channel, run, first)
                    }
                    (BackendCommand::BeginStreamRun { namespace, lost: run }, Some(cluster)) => {
                        cluster.begin_run(namespace, run)
                    }
                    (BackendCommand::Unreadable { channel, unreadable }, _) => {
                        report_unreadable(&self.node, &channel, unreadable, self.now_ms)
                    }
                    (_, None) => {}
                }
            }
            if ready.is_empty() {
                return;
            }
        }
    }
}
