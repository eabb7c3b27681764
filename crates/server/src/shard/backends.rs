//! Channels at home here that the cluster or the store keeps: what these have to do before a request is answered, and
//! what they do unasked.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use touchline_engine::channels::{BackendCommand, Submitted, Unreadable, removal};
use touchline_engine::request::StreamPosition;
use touchline_engine::{ConnectionId, Request, Response};
use touchline_protocol::Error;
use touchline_protocol::publication::Content;
use touchline_protocol::stream::ChannelName;

use super::Shard;
use crate::mailbox::ReplyTo;
use crate::{cluster_events, store};

/// Bytes around what a publication says, on its way to the other nodes: names of fields, numbers, headers.
const PUBLICATION_AROUND: usize = 1_024;

/// Between two lines in the log about payloads that can't be read, milliseconds.
const UNREADABLE_STEP_MS: u64 = 10_000;

/// Says that a payload can't be read, not more often than every ten seconds: whoever subscribes meets it.
fn say_unreadable(channel: &str, Unreadable { format }: Unreadable, now_ms: u64) {
    static SAID_MS: AtomicU64 = AtomicU64::new(0);
    let said_ms = SAID_MS.load(Relaxed);
    if now_ms >= said_ms.saturating_add(UNREADABLE_STEP_MS)
        && SAID_MS.compare_exchange(said_ms, now_ms, Relaxed, Relaxed).is_ok()
    {
        tracing::error!(
            channel,
            format,
            "a payload of a later version, or a damaged one: the channel can't be had from this node"
        );
    }
}

/// Requests to one channel that wait, in order.
#[derive(Default)]
pub(super) struct WaitingRequests {
    requests: Vec<(Request, ReplyTo)>,
    /// The subscribers that come or go by one of them: who asks next is not compared with all that wait.
    subscribers: HashSet<ConnectionId>,
}

impl WaitingRequests {
    fn push(&mut self, request: Request, asker: ReplyTo) {
        self.subscribers.extend(request.subscriber());
        self.requests.push((request, asker));
    }
}

impl Shard {
    /// Carries a request to a channel out, now or as soon as the node hears the channel.
    pub(super) fn submit(&mut self, channel: &ChannelName, request: Request, asker: ReplyTo) {
        // What a session says about one channel stays in order. In a channel that is heard only those wait who are
        // ahead of it.
        if let Some(subscriber) = request.subscriber()
            && let Some(waiting) = self.waiting.get_mut(channel)
            && (!self.channels.is_live(channel) || waiting.subscribers.contains(&subscriber))
        {
            return waiting.push(request, asker);
        }
        if self.node.cluster.is_some() && self.is_too_large(channel, &request) {
            return self.node.reply(asker, Response::Refused(Error::BAD_REQUEST));
        }
        match self.channels.submit(channel, request, self.now_ms) {
            Submitted::Done(response) => {
                if matches!(response, Response::Published(_)) {
                    self.count_publication(channel);
                }
                self.node.reply(asker, response);
            }
            Submitted::Wait(request) => self.waiting.entry(channel.clone()).or_default().push(request, asker),
            Submitted::Append { namespace, payload, idempotency_key: key } => {
                let Some(cluster) = &self.node.cluster else { return };
                let node = Arc::clone(&self.node);
                let done = move |stored: Option<touchline_cluster::AppendedAt>| {
                    let response = stored.map_or(Response::Refused(Error::CLUSTER_UNREACHABLE), |at| {
                        let epoch = cluster_events::epoch_of(at.life);
                        Response::Published(Some(StreamPosition { offset: at.offset, epoch }))
                    });
                    node.reply(asker, response);
                };
                cluster.append(channel.clone(), namespace, payload, key, Box::new(done));
                self.count_publication(channel);
            }
            Submitted::Purge(namespace) => {
                let Some(cluster) = &self.node.cluster else { return };
                let node = Arc::clone(&self.node);
                let done = move |is_done: bool| {
                    node.reply(
                        asker,
                        if is_done { Response::Done } else { Response::Refused(Error::CLUSTER_UNREACHABLE) },
                    );
                };
                cluster.purge(channel.clone(), namespace, removal, Box::new(done));
            }
            Submitted::Store(storing) => {
                self.count_publication(channel);
                store::append(&self.node, channel, storing, asker);
            }
            Submitted::Remove => store::remove(&self.node, channel, asker),
        }
    }

    /// Whether a publication is more than one message to the other nodes may carry. Those that a database keeps do not
    /// go that way.
    fn is_too_large(&self, channel: &str, request: &Request) -> bool {
        let Request::Publish(publish) = request else { return false };
        let Content { data, tags, info, .. } = &publish.content;
        let tags = tags.iter().map(|(key, value)| 2 * (key.len() + value.len())).sum::<usize>();
        let info = info.as_ref().map_or(0, |info| {
            info.user.len()
                + info.conn_info.as_ref().map_or(0, Bytes::len)
                + info.chan_info.as_ref().map_or(0, Bytes::len)
        });
        self.node.is_too_large(data.len() + tags + info + publish.idempotency_key.len() + PUBLICATION_AROUND)
            && self.node.session.namespaces.resolve(channel).is_ok_and(|options| !options.durable)
    }

    /// Does what channels want of their keepers, takes up what has waited, and sends what is to be delivered.
    pub(super) fn settle(&mut self) {
        self.send_deliveries();
        if self.node.cluster.is_none() && self.node.store().is_none() {
            return;
        }
        loop {
            let ready = self.channels.take_ready();
            for channel in &ready {
                for (request, asker) in self.waiting.remove(channel).unwrap_or_default().requests {
                    self.submit(channel, request, asker);
                }
            }
            self.send_deliveries();
            for act in self.channels.backend_commands() {
                match (act, &self.node.cluster) {
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
                        say_unreadable(&channel, unreadable, self.now_ms)
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
