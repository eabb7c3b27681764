//! The subscriptions of a node: what it receives from other nodes, and the channels that it follows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use async_nats::{Message, SubscribeError, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::task::JoinHandle;
use touchline_protocol::stream::{ChannelName, Epoch, Offset};

use crate::connection::{ConnectedNode, NodeSignal};
use crate::events::ClusterEvent;
use crate::members::VERSIONS;
use crate::pieces::split;
use crate::subject::{Subjects, name};
use crate::types::StoredPublication;

impl ConnectedNode {
    /// Makes the subscriptions that a node keeps until it leaves.
    pub(crate) async fn subscribe_all(&self) -> Result<(), SubscribeError> {
        self.listen_to_hellos().await?;
        for version in VERSIONS {
            self.listen_to_nodes(version).await?;
        }
        let echoes = self.echo_sender.clone();
        self.listen(self.subjects.echo(&self.settings.node), move |message| {
            let number = std::str::from_utf8(&message.payload).ok().and_then(|text| text.parse().ok());
            number.map(|number| echoes.send(number));
        })
        .await?;
        Ok(())
    }

    /// Subscribes to the messages of nodes of every version: hellos and probes.
    async fn listen_to_hellos(&self) -> Result<(), SubscribeError> {
        let signals = self.signal_sender.clone();
        self.listen(self.subjects.hello(), move |message| match serde_json::from_slice(&message.payload) {
            Ok(hello) => drop(signals.try_send(NodeSignal::Hello(hello))),
            Err(error) => tracing::debug!(%error, "a hello that can't be read"),
        })
        .await?;
        let client = self.client.clone();
        self.listen(self.subjects.probe(&self.settings.node), move |message| {
            if let Some(subject) = message.reply {
                let client = client.clone();
                tokio::spawn(async move { client.publish(subject, Bytes::new()).await });
            }
        })
        .await?;
        Ok(())
    }

    /// Subscribes to the messages of one version.
    async fn listen_to_nodes(&self, version: u32) -> Result<(), SubscribeError> {
        let me = &self.settings.node;
        for scope in &self.settings.scopes {
            let scope: Arc<str> = scope.as_str().into();
            for subject in [
                self.subjects.scope_message(version, &scope, None),
                self.subjects.scope_message(version, &scope, Some(me)),
            ] {
                let (scope, events) = (Arc::clone(&scope), self.events_if_joined());
                self.listen(subject, move |message| {
                    events(ClusterEvent::ScopeMessage { scope: Arc::clone(&scope), message: message.payload })
                })
                .await?;
            }
        }
        let events = self.events_if_joined();
        self.listen(self.subjects.directory_message(version, me, "*"), move |message| {
            if let Some(from) = last_name(&message) {
                events(ClusterEvent::DirectoryMessage { from: from.into(), message: message.payload });
            }
        })
        .await?;
        let (events, client, me) = (self.events_if_joined(), self.client.clone(), me.clone());
        self.listen(self.subjects.broadcast(version, "*"), move |message| {
            if last_name(&message).is_none_or(|from| from == me) {
                return;
            }
            let (client, me) = (client.clone(), me.clone());
            let reply = message.reply.map(|subject| -> Box<dyn FnOnce(Vec<u8>) + Send> {
                let runtime = tokio::runtime::Handle::current();
                Box::new(move |result| {
                    runtime.spawn(async move {
                        for piece in split(&me, result, client.max_payload()) {
                            if let Err(error) = client.publish(subject.clone(), piece).await {
                                return tracing::warn!(%error, "a reply to another node could not be sent");
                            }
                        }
                    });
                })
            });
            events(ClusterEvent::Broadcast { message: message.payload, reply });
        })
        .await?;
        Ok(())
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
    async fn listen(
        &self,
        subject: String,
        mut on_message: impl FnMut(Message) + Send + 'static,
    ) -> Result<JoinHandle<()>, SubscribeError> {
        let mut subscriber: Subscriber = self.client.subscribe(subject).await?;
        Ok(tokio::spawn(async move {
            while let Some(message) = subscriber.next().await {
                on_message(message);
            }
        }))
    }

    /// The server has processed all commands before the echo, so the subscriptions that waited for it are confirmed.
    pub(crate) fn on_echo(&mut self, number: u64) {
        let (confirmed, unconfirmed) =
            std::mem::take(&mut self.unconfirmed).into_iter().partition(|(waiting, _)| *waiting <= number);
        self.unconfirmed = unconfirmed;
        for (_, channel) in confirmed {
            (self.events)(ClusterEvent::Subscribed { channel });
        }
    }

    pub(crate) async fn ask_echo(&mut self) {
        if std::mem::take(&mut self.has_new) {
            self.publish(self.subjects.echo(&self.settings.node), self.echo.to_string().into()).await;
            self.echo += 1;
        }
    }

    pub(crate) async fn subscribe_channel(&mut self, channel: ChannelName) {
        if !self.channels.contains_key(&channel) {
            let (events, of, subjects) = (Arc::clone(&self.events), channel.clone(), self.subjects.clone());
            let marks = Arc::clone(&self.marks);
            let task = self.listen(self.subjects.channel_events(&channel), move |message| {
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
            let Ok(task) = task.await else { return };
            self.channels.insert(channel.clone(), task);
        }
        self.unconfirmed.push((self.echo, channel));
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
