//! Hears of what other nodes have written.

use std::time::Duration;

use super::connection::{Address, Failure, Link};
use crate::{Hand, Incoming};

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);
/// Between two looks at whether the connection is still there.
const LOOK: Duration = Duration::from_secs(2);

/// Listens for ever; `me` marks what this node has written itself.
pub(super) async fn serve(address: Address, me: String, hand: Hand) {
    loop {
        if let Err(error) = listen(&address, me.clone(), Hand::clone(&hand)).await {
            tracing::warn!(%error, "what other nodes write into PostgreSQL can't be heard of");
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn listen(address: &Address, me: String, hand: Hand) -> Result<(), Failure> {
    let of_hand = Hand::clone(&hand);
    let hear = move |text: String| {
        let mut words = text.splitn(3, ' ');
        if let (Some(from), Some(Ok(top)), Some(channel)) = (words.next(), words.next().map(str::parse), words.next())
            && from != me
        {
            let channel = channel.into();
            of_hand(if top == 0 { Incoming::Cleared { channel } } else { Incoming::Grown { channel, top } });
        }
    };
    let link = Link::hearing(address, hear).await?;
    link.client.batch_execute("LISTEN touchline").await?;
    // What was written while nobody listened is found by asking.
    hand(Incoming::Missed);
    loop {
        tokio::time::sleep(LOOK).await;
        tokio::time::timeout(LOOK, link.client.batch_execute("")).await??;
    }
}
