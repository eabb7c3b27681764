//! The subscriptions of a node: what it receives from other nodes, and the channels that it follows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use async_nats::Message;
use bytes::Bytes;
use tokio::task::JoinHandle;
use touchline_protocol::stream::{ChannelName, Epoch, Offset};

use crate::connection::{ConnectedNode, NodeSignal};
use crate::events::ClusterEvent;
use crate::handle::ReplySender;
use crate::members::VERSIONS;
use crate::pieces::split;
use crate::subject::{Subjects, name};
use crate::time::now;
use crate::types::StoredPublication;

impl ConnectedNode {
    /// Makes the subscriptions that a node keeps until it leaves.
    pub(crate) fn subscribe_all(&mut self, replies: &ReplySender) {
        self.listen_to_hellos(replies);
        for version in VERSIONS {
            self.listen_to_nodes(version, replies);
        }
        let echoes = self.echo_sender.clone();
        self.listen(self.subjects.echo(&self.settings.node), move |message| {
            let number = std::str::from_utf8(&message.payload).ok().and_then(|text| text.parse().ok());
            number.map(|number| echoes.send(number));
        });
    }

    /// Subscribes to the messages of nodes of every version: hellos and probes.
    fn listen_to_hellos(&mut self, replies: &ReplySender) {
        let signals = self.signal_sender.clone();
        self.listen(self.subjects.hello(), move |message| match serde_json::from_slice(&message.payload) {
            Ok(hello) => drop(signals.try_send(NodeSignal::Hello(hello))),
            Err(error) => tracing::debug!(%error, "a hello that can't be read"),
        });
        let replies = replies.clone();
        self.listen(self.subjects.probe(&self.settings.node), move |message| {
            if let Some(subject) = message.reply {
                replies.send(&subject, Bytes::new());
            }
        });
    }

    /// Subscribes to the messages of one version.
    fn listen_to_nodes(&mut self, version: u32, replies: &ReplySender) {
        let settings = Arc::clone(&self.settings);
        let me = &settings.node;
        for scope in &settings.scopes {
            let scope: Arc<str> = scope.as_str().into();
            for subject in [
                self.subjects.scope_message(version, &scope, None),
                self.subjects.scope_message(version, &scope, Some(me)),
            ] {
                let (scope, events) = (Arc::clone(&scope), self.events_if_joined());
                self.listen(subject, move |message| {
                    events(ClusterEvent::ScopeMessage { scope: Arc::clone(&scope), message: message.payload })
                });
            }
        }
        let events = self.events_if_joined();
        self.listen(self.subjects.directory_message(version, me, "*"), move |message| {
            if let Some(from) = last_name(&message) {
                events(ClusterEvent::DirectoryMessage { from: from.into(), message: message.payload });
            }
        });
        let (events, client) = (self.events_if_joined(), self.client.clone());
        let (me, replies) = (me.clone(), replies.clone());
        self.listen(self.subjects.broadcast(version, "*"), move |message| {
            if last_name(&message).is_none_or(|from| from == me) {
                return;
            }
            let (client, me, replies) = (client.clone(), me.clone(), replies.clone());
            let reply = message.reply.map(|subject| -> Box<dyn FnOnce(Vec<u8>) + Send> {
                Box::new(move |result| {
                    split(&me, result, client.max_payload())
                        .into_iter()
                        .for_each(|piece| replies.send(&subject, piece));
                })
            });
            events(ClusterEvent::Broadcast { message: message.payload, reply });
        });
    }

    /// A sink that forwards events while this node is part of the cluster.
    fn events_if_joined(&self) -> impl Fn(ClusterEvent) + Send + 'static {
        let (events, is_joined) = (Arc::clone(&self.events), Arc::clone(&self.is_joined));
        move |event| {
            if is_joined.load(Relaxed) {
                events(event);
            }
        }
    }

    /// Subscribes to a subject. A separate task processes the messages.
    fn listen(&mut self, subject: String, mut on_message: impl FnMut(Message) + Send + 'static) -> JoinHandle<()> {
        let subscriber = self.writer.subscribe(subject);
        tokio::spawn(async move {
            let Ok(mut subscriber) = subscriber.await else { return };
            while let Some(message) = subscriber.next().await {
                on_message(message);
            }
        })
    }

    /// The server has processed all commands before the echo, so the subscriptions that waited for it are confirmed.
    pub(crate) fn on_echo(&mut self, number: u64) {
        for (channel, _) in self.unconfirmed.extract_if(.., |_, waiting| *waiting <= number) {
            (self.events)(ClusterEvent::Subscribed { channel });
        }
    }

    pub(crate) fn ask_echo(&mut self) {
        // While the link is lost, clients could make waiting echoes grow; the next link asks for one.
        if self.link.is_some() && std::mem::take(&mut self.has_new) {
            self.writer.ask_echo(self.subjects.echo(&self.settings.node), self.echo.to_string().into());
            self.echo += 1;
            self.echo_asked = now();
        }
    }

    pub(crate) fn subscribe_channel(&mut self, channel: ChannelName) {
        if !self.channels.contains_key(&channel) {
            let (events, of, subjects) = (Arc::clone(&self.events), channel.clone(), self.subjects.clone());
            let marks = Arc::clone(&self.marks);
            let (returned, me) = (Arc::clone(&self.returned), self.settings.node.clone());
            let subject = self.subjects.channel_events(&channel);
            let task = self.listen(subject, move |message| {
                if subjects.own_link(&message.subject, &me).is_some_and(|link| returned.is_late(&of, link)) {
                    return;
                }
                let channel = of.clone();
                events(match stored_position(&subjects, &message) {
                    Some((offset, previous, epoch)) => {
                        marks.note(epoch, offset, &message.payload);
                        ClusterEvent::Appended {
                            channel,
                            stored: StoredPublication { offset: Offset(offset), payload: message.payload },
                            previous: Offset(previous),
                            epoch: Epoch::from_bits(epoch),
                        }
                    }
                    None => ClusterEvent::Ephemeral { channel, payload: message.payload },
                });
            });
            self.channels.insert(channel.clone(), task);
        }
        self.unconfirmed.insert(channel, self.echo);
        self.has_new = true;
    }
}

/// Decodes the last token of a message's subject to a name.
fn last_name(message: &Message) -> Option<String> {
    name(message.subject.rsplit('.').next()?)
}

/// The sequence, previous sequence and epoch of a message that JetStream has stored and republished.
fn stored_position(subjects: &Subjects, message: &Message) -> Option<(u64, u64, u64)> {
    let headers = message.headers.as_ref()?;
    let number = |name: &str| headers.get(name)?.as_str().parse::<u64>().ok();
    Some((
        number("Nats-Sequence")?,
        number("Nats-Last-Sequence").unwrap_or_default(),
        subjects.stored_epoch(&message.subject)?,
    ))
}
