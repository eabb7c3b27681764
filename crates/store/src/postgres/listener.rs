//! Hears of what other nodes have written.

use std::time::{Duration, Instant};

use touchline_protocol::stream::Offset;

use super::connection::{Address, Failure, PostgresClient};
use super::inbox;
use crate::{AppendedAt, EventSink, StoreEvent};

/// Between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);
/// A connection that was there for so long is news when it breaks.
const SETTLED: Duration = Duration::from_secs(20);
/// Between two looks at whether the connection is still there.
const LOOK: Duration = Duration::from_secs(2);

/// Listens for ever; `me` marks what this node has written itself.
pub(super) async fn serve(address: Address, me: String, hand: EventSink) {
    let mut told = String::new();
    loop {
        let began = Instant::now();
        if let Err(error) = listen(&address, me.clone(), EventSink::clone(&hand)).await {
            let error = error.to_string();
            // It is tried again every moment: one line for each outage.
            if error != told || began.elapsed() > SETTLED {
                tracing::warn!(error, "what other nodes write into PostgreSQL can't be heard of");
                told = error;
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn listen(address: &Address, me: String, hand: EventSink) -> Result<(), Failure> {
    let of_hand = EventSink::clone(&hand);
    let hear = move |text: String| {
        if let Some(incoming) = read(&text, &me) {
            of_hand(incoming);
        }
    };
    let link = PostgresClient::hearing(address, hear).await?;
    link.client.batch_execute("LISTEN touchline").await?;
    // What was written while nobody listened is found by asking.
    hand(StoreEvent::Missed);
    for (scope, name) in inbox::addressees(&link.client).await? {
        hand(StoreEvent::MessageQueued { scope: scope.into(), name: name.into() });
    }
    loop {
        tokio::time::sleep(LOOK).await;
        tokio::time::timeout(LOOK, link.client.batch_execute("")).await??;
    }
}

/// What another node says: `<node> <top>/<epoch>/<run> <channel>`, `<node> 0 <channel>` of a history that was removed,
/// or `<node> @<length of the scope> <scope><name>` for a letter.
fn read(text: &str, me: &str) -> Option<StoreEvent> {
    let mut words = text.splitn(3, ' ');
    let (from, what, whom) = (words.next()?, words.next()?, words.next()?);
    if from == me {
        return None;
    }
    if let Some(length) = what.strip_prefix('@') {
        let (scope, name) = whom.split_at_checked(length.parse().ok()?)?;
        return Some(StoreEvent::MessageQueued { scope: scope.into(), name: name.into() });
    }
    let channel = whom.into();
    if what == "0" {
        return Some(StoreEvent::Cleared { channel });
    }
    let mut numbers = what.splitn(3, '/').map(|number| number.parse::<i64>().ok().map(|number| number as u64));
    let (offset, epoch, run) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(StoreEvent::Grown { channel, placed: AppendedAt { offset: Offset(offset), epoch, run } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_other_nodes_are_read() {
        let grown = read("a 7/-2/5 match: 1", "b");
        let expected = AppendedAt { offset: Offset(7), epoch: u64::MAX - 1, run: 5 };
        assert!(
            matches!(grown, Some(StoreEvent::Grown { channel, placed }) if &*channel == "match: 1" && placed == expected)
        );
        assert!(matches!(read("a 0 x", "b"), Some(StoreEvent::Cleared { channel }) if &*channel == "x"));
        let mail = read("a @3 my phone 7", "b");
        assert!(
            matches!(mail, Some(StoreEvent::MessageQueued { scope, name }) if &*scope == "my " && &*name == "phone 7")
        );
        for nothing in ["b 7/1/2 x", "a x", "a x y", "a 7 x", "a 7/1 x", "a @9 short", ""] {
            assert!(read(nothing, "b").is_none(), "{nothing}");
        }
    }
}
