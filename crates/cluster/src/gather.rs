//! A question to all other nodes, and their answers.

use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use crate::IsEnough;
use crate::pieces::Pieces;

/// How long other nodes have for an answer.
const GATHER: Duration = Duration::from_secs(1);

/// Asks; what has come when so many nodes have answered, one answer is enough, or the time is over.
pub(crate) async fn gather(
    client: &Client,
    subject: String,
    message: Bytes,
    (nodes, is_enough): (usize, IsEnough),
) -> Vec<Bytes> {
    let inbox = client.new_inbox();
    let Ok(mut subscriber) = client.subscribe(inbox.clone()).await else { return Vec::new() };
    if client.publish_with_reply(subject, inbox, message).await.is_err() {
        return Vec::new();
    }
    let (mut answers, mut pieces) = (Vec::new(), Pieces::default());
    let until = Instant::now() + GATHER;
    while answers.len() < nodes {
        match timeout_at(until, subscriber.next()).await {
            Ok(Some(message)) => answers.extend(pieces.take(message.payload)),
            _ => break,
        }
        if answers.last().is_some_and(|answer| is_enough(answer)) {
            break;
        }
    }
    answers
}
