//! Messages to receivers outside the cluster: events, under a subject of the operator.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::context::GetStreamByNameErrorKind;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::timeout;

use crate::room::OutgoingCharge;

/// How long a batch may take. Then it counts as not arrived.
const TELL_TIMEOUT: Duration = Duration::from_secs(10);

/// A callback for whether messages to outside receivers have arrived.
pub type OnMessagesTold = Box<dyn FnOnce(bool) + Send>;

/// A message to receivers outside the cluster.
#[derive(Debug, Clone)]
pub struct OutsideMessage {
    /// The id of the message. A stream keeps only one of several messages with the same id.
    pub id: String,
    /// The media type of the payload.
    pub content_type: &'static str,
    /// The payload of the message.
    pub payload: Bytes,
}

impl OutsideMessage {
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("Content-Type", self.content_type);
        headers.insert(NATS_MESSAGE_ID, self.id.as_str());
        headers
    }
}

/// Messages under one subject.
pub(crate) struct OutsideBatch {
    pub(crate) subject: Box<str>,
    pub(crate) messages: Vec<OutsideMessage>,
    pub(crate) charge: OutgoingCharge,
    pub(crate) done: OnMessagesTold,
}

/// Sends messages in their order, and reports whether they have arrived.
pub(crate) async fn tell(client: Client, batch: OutsideBatch) {
    let OutsideBatch { subject, messages, charge, done } = batch;
    let told = timeout(TELL_TIMEOUT, send(&client, &subject, messages)).await;
    drop(charge);
    done(told.unwrap_or(false));
}

async fn send(client: &Client, subject: &str, messages: Vec<OutsideMessage>) -> bool {
    let streams = jetstream::new(client.clone());
    match streams.stream_by_subject(subject).await {
        Ok(_) => store(&streams, subject, messages).await,
        Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => pass(client, subject, messages).await,
        // Without JetStream, no server answers.
        Err(_) if !client.server_info().jetstream => pass(client, subject, messages).await,
        Err(_) => false,
    }
}

async fn store(streams: &Context, subject: &str, messages: Vec<OutsideMessage>) -> bool {
    let mut acknowledgements = Vec::with_capacity(messages.len());
    for message in messages {
        match streams.publish_with_headers(subject.to_owned(), message.headers(), message.payload).await {
            Ok(acknowledgement) => acknowledgements.push(acknowledgement.into_future()),
            Err(_) => return false,
        }
    }
    join_all(acknowledgements).await.iter().all(Result::is_ok)
}

async fn pass(client: &Client, subject: &str, messages: Vec<OutsideMessage>) -> bool {
    for message in messages {
        if client.publish_with_headers(subject.to_owned(), message.headers(), message.payload).await.is_err() {
            return false;
        }
    }
    client.flush().await.is_ok() && client.connection_state() == State::Connected
}
