//! Broadcasts to all other nodes and gathers their replies.

use std::time::Duration;

use bytes::Bytes;

use crate::command::{ChargedBytes, IsEnough};
use crate::nats::NatsClient;
use crate::pieces::Pieces;
use crate::time::{now, timeout_at};

/// How long other nodes have to reply.
const GATHER: Duration = Duration::from_secs(1);

/// Sends a message and returns the replies. It ends when `nodes` nodes have replied, when one reply is sufficient, or
/// when the time is over.
pub(crate) async fn gather(
    client: &NatsClient,
    subject: String,
    (message, _charge): ChargedBytes,
    (nodes, is_enough): (usize, IsEnough),
) -> Vec<Bytes> {
    let until = now() + GATHER;
    let reply_subject = client.new_inbox();
    let asked = async {
        let subscription = client.subscribe(reply_subject.clone()).await?;
        client.publish_with_reply(subject, reply_subject.clone(), message).await.then_some(subscription)
    };
    let Ok(Some(mut subscription)) = timeout_at(until, asked).await else { return Vec::new() };
    let (mut replies, mut pieces) = (Vec::new(), Pieces::default());
    while replies.len() < nodes {
        match timeout_at(until, subscription.next()).await {
            Ok(Some(message)) => replies.extend(pieces.take(message.payload)),
            _ => break,
        }
        if replies.last().is_some_and(|reply| is_enough(reply)) {
            break;
        }
    }
    replies
}
