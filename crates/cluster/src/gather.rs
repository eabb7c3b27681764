//! Broadcasts to all other nodes and gathers their replies.

use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use crate::command::IsEnough;
use crate::pieces::Pieces;

/// How long other nodes have to reply.
const GATHER: Duration = Duration::from_secs(1);

/// Sends a message and returns the replies. It ends when `nodes` nodes have replied, when one reply is sufficient, or
/// when the time is over.
pub(crate) async fn gather(
    client: &Client,
    subject: String,
    message: Bytes,
    (nodes, is_enough): (usize, IsEnough),
) -> Vec<Bytes> {
    let reply_subject = client.new_inbox();
    let Ok(mut subscriber) = client.subscribe(reply_subject.clone()).await else { return Vec::new() };
    if client.publish_with_reply(subject, reply_subject, message).await.is_err() {
        return Vec::new();
    }
    let (mut replies, mut pieces) = (Vec::new(), Pieces::default());
    let until = Instant::now() + GATHER;
    while replies.len() < nodes {
        match timeout_at(until, subscriber.next()).await {
            Ok(Some(message)) => replies.extend(pieces.take(message.payload)),
            _ => break,
        }
        if replies.last().is_some_and(|reply| is_enough(reply)) {
            break;
        }
    }
    replies
}
