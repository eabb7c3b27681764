//! Writes to NATS. The task that reads hands its messages to the writer and never waits for them: it polls the writer
//! beside everything else. What waits is bounded by [`OutgoingRoom`].

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::Pin;

use async_nats::Subject;
use async_nats::message::OutboundMessage;
use bytes::Bytes;
use tokio::sync::oneshot;
use touchline_protocol::stream::ChannelName;

use crate::nats::{NatsClient, NatsSubscription};
use crate::room::OutgoingCharge;

/// A message that waits for the writer.
pub(crate) struct OutgoingMessage {
    pub(crate) subject: String,
    pub(crate) payload: Bytes,
    /// The channel, if the message is a publication that is not stored.
    pub(crate) channel: Option<ChannelName>,
    pub(crate) charge: OutgoingCharge,
}

/// A command about subscriptions that waits for the writer. The order is kept: an echo confirms the subscriptions
/// before it.
enum WaitingCommand {
    /// A subject, and the task that receives its messages.
    Subscribe(String, oneshot::Sender<NatsSubscription>),
    Echo(OutboundMessage),
}

impl WaitingCommand {
    fn is_wanted(&self) -> bool {
        !matches!(self, WaitingCommand::Subscribe(_, subscribed) if subscribed.is_closed())
    }
}

type Subscribing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Everything that waits to be written. Hellos and answers to probes come first, because the other nodes need them in
/// time.
pub(crate) struct LinkWriter {
    client: NatsClient,
    hello: Option<OutboundMessage>,
    /// Answers to probes of other nodes.
    probed: VecDeque<OutgoingMessage>,
    commands: VecDeque<WaitingCommand>,
    /// The subscription that is written now.
    subscribing: Option<Subscribing>,
    messages: VecDeque<OutgoingMessage>,
}

impl LinkWriter {
    pub(crate) fn new(client: NatsClient) -> Self {
        LinkWriter {
            client,
            hello: None,
            probed: VecDeque::new(),
            commands: VecDeque::new(),
            subscribing: None,
            messages: VecDeque::new(),
        }
    }

    /// Writes a hello next. It replaces one that still waits.
    pub(crate) fn say_hello(&mut self, subject: String, payload: Bytes) {
        self.hello = Some(outbound(subject, payload));
    }

    /// Answers the probe of another node.
    pub(crate) fn answer_probe(&mut self, answer: OutgoingMessage) {
        self.probed.push_back(answer);
    }

    /// Requests the server's echo after the waiting subscriptions.
    pub(crate) fn ask_echo(&mut self, subject: String, payload: Bytes) {
        self.commands.push_back(WaitingCommand::Echo(outbound(subject, payload)));
    }

    /// Subscribes to a subject. The receiver gets the subscription; if it is dropped before that, there is none.
    pub(crate) fn subscribe(&mut self, subject: String) -> oneshot::Receiver<NatsSubscription> {
        let (subscribed, subscriber) = oneshot::channel();
        // Unwanted subscriptions are removed before the queue grows.
        if self.commands.len() == self.commands.capacity() {
            self.commands.retain(WaitingCommand::is_wanted);
        }
        self.commands.push_back(WaitingCommand::Subscribe(subject, subscribed));
        subscriber
    }

    /// Writes a message after those that wait.
    pub(crate) fn publish(&mut self, message: OutgoingMessage) {
        self.messages.push_back(message);
    }

    /// Removes all messages: the connection is lost. Returns the publications that are not stored, in their order.
    pub(crate) fn take_unwritten(&mut self) -> impl Iterator<Item = (ChannelName, Bytes)> + use<> {
        self.hello = None;
        self.probed.clear();
        self.commands.retain(|waiting| matches!(waiting, WaitingCommand::Subscribe(..)));
        let messages = std::mem::take(&mut self.messages);
        messages.into_iter().filter_map(|message| Some((message.channel?, message.payload)))
    }

    /// Writes everything that waits, and does not end. It may be dropped at any time: then nothing is lost, and the
    /// next call continues.
    pub(crate) async fn run(&mut self) {
        while self.write_next().await {}
        pending().await
    }

    /// Writes everything that waits, and sends it to the server. The hello says that the node leaves, so it comes last.
    pub(crate) async fn finish(&mut self) {
        let hello = self.hello.take();
        while self.write_next().await {}
        self.hello = hello;
        while self.write_next().await {}
        let _ = self.client.flush().await;
    }

    /// Writes what comes next. False = nothing waits.
    async fn write_next(&mut self) -> bool {
        if let Some(subscribing) = &mut self.subscribing {
            subscribing.await;
            self.subscribing = None;
        } else if self.hello.is_some() {
            self.has_room().await;
            self.hello.take().into_iter().for_each(|message| self.client.start_send(message));
        } else if !self.probed.is_empty() {
            self.has_room().await;
            self.probed.pop_front().into_iter().for_each(|answer| self.write_message(answer));
        } else if !self.commands.is_empty() {
            self.has_room().await;
            match self.commands.pop_front() {
                Some(WaitingCommand::Subscribe(subject, subscribed)) if !subscribed.is_closed() => {
                    let client = self.client.clone();
                    self.subscribing = Some(Box::pin(async move {
                        if let Some(subscription) = client.subscribe(subject).await {
                            let _ = subscribed.send(subscription);
                        }
                    }));
                }
                Some(WaitingCommand::Echo(echo)) => self.client.start_send(echo),
                Some(WaitingCommand::Subscribe(..)) | None => {}
            }
        } else if !self.messages.is_empty() {
            self.has_room().await;
            self.messages.pop_front().into_iter().for_each(|message| self.write_message(message));
        } else {
            return false;
        }
        true
    }

    /// Waits until the client takes one message. If it is dropped, its place in the client's queue is kept.
    async fn has_room(&mut self) {
        poll_fn(|context| self.client.poll_ready(context)).await;
    }

    /// Writes a message. Its charge ends.
    fn write_message(&mut self, OutgoingMessage { subject, payload, charge, .. }: OutgoingMessage) {
        self.client.start_send(outbound(subject, payload));
        drop(charge);
    }
}

fn outbound(subject: String, payload: Bytes) -> OutboundMessage {
    OutboundMessage { subject: Subject::from(subject), payload, reply: None, headers: None }
}
