//! Listens to the notifications of other nodes that write into the same database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use touchline_protocol::fact::{AGE_MAX, FactsEvent};
use touchline_protocol::stream::{Epoch, Offset, RunId, StreamPosition};

use super::address::PostgresAddress;
use super::connection::PostgresClient;
use super::facts::FactFollower;
use super::failure::PostgresError;
use super::inbox;
use crate::events::{EventSink, StoreEvent};
use crate::metrics::StoreMetrics;

/// The first character of a notification that a shared fact has changed.
const FACT: char = '!';
/// The interval between two attempts to connect.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// If a connection lasted at least this long, its failure is logged again.
const STABLE: Duration = Duration::from_secs(20);
/// The interval between two checks of the connection, and the time limit of one check.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
// After a check, changes can still be read before the known facts are too old.
const _: () = assert!(CHECK_INTERVAL.as_millis() * 2 < AGE_MAX.as_millis());
// A connection that fails repeatedly at once is logged once, and not at each attempt or check.
const _: () =
    assert!(RETRY_INTERVAL.as_millis() < STABLE.as_millis() && CHECK_INTERVAL.as_millis() < STABLE.as_millis());

/// Listens until the runtime ends. Notifications from the node `me` itself are skipped. With `has_facts`, the shared
/// facts are followed.
pub(super) async fn serve(
    address: PostgresAddress,
    (me, has_facts): (String, bool),
    events: EventSink,
    metrics: Arc<StoreMetrics>,
) {
    let mut told = String::new();
    loop {
        let began = Instant::now();
        if let Err(error) = listen(&address, (me.clone(), has_facts), EventSink::clone(&events)).await {
            if has_facts {
                events(StoreEvent::Facts(FactsEvent::CutOff));
            }
            let text = error.to_string();
            // The connection is tried every second, and each outage is logged in one line.
            if text != told || began.elapsed() > STABLE {
                if error.is_away() {
                    metrics.tell_away(&error);
                } else {
                    tracing::warn!(%error, "the notifications of other nodes cannot be received from PostgreSQL");
                }
                told = text;
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn listen(
    address: &PostgresAddress,
    (me, has_facts): (String, bool),
    events: EventSink,
) -> Result<(), PostgresError> {
    let notified_events = EventSink::clone(&events);
    let facts_changed = Arc::<Notify>::default();
    let bell = Arc::clone(&facts_changed);
    let on_notification = move |text: String| {
        if text.starts_with(FACT) {
            bell.notify_one();
        } else if let Some(event) = read(&text, &me) {
            notified_events(event);
        }
    };
    let link = PostgresClient::listening(address, on_notification).await?;
    link.client.batch_execute("LISTEN touchline").await?;
    // Other nodes may have written while this one did not listen.
    events(StoreEvent::Missed);
    for (scope, name) in inbox::names_with_messages(&link.client).await? {
        events(StoreEvent::MessageQueued { scope: scope.into(), name: name.into() });
    }
    let mut facts = has_facts.then(FactFollower::default);
    loop {
        if let Some(facts) = &mut facts {
            facts.follow(&link.client, address.timeout, &events).await?;
        }
        // Changed facts are read at once, and at each check.
        let _ = tokio::time::timeout(CHECK_INTERVAL, facts_changed.notified()).await;
        tokio::time::timeout(CHECK_INTERVAL, link.client.batch_execute("")).await??;
    }
}

/// Parses a notification. `<node> <top>/<epoch>/<run> <channel>` means new publications. `<node> 0 <channel>` means a
/// removed history. `<node> @<length of the scope> <scope><name>` means an inbox message. `None` = it is this node's
/// own notification, or is not valid.
fn read(text: &str, me: &str) -> Option<StoreEvent> {
    let mut fields = text.splitn(3, ' ');
    let (from, what, target) = (fields.next()?, fields.next()?, fields.next()?);
    if from == me {
        return None;
    }
    if let Some(length) = what.strip_prefix('@') {
        let (scope, name) = target.split_at_checked(length.parse().ok()?)?;
        return Some(StoreEvent::MessageQueued { scope: scope.into(), name: name.into() });
    }
    let channel = target.into();
    if what == "0" {
        return Some(StoreEvent::Cleared { channel });
    }
    let mut numbers = what.splitn(3, '/').map(|number| number.parse::<i64>().ok().map(|number| number as u64));
    let (offset, epoch, run) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(StoreEvent::Advanced {
        channel,
        position: StreamPosition { offset: Offset(offset), epoch: Epoch::from_bits(epoch).in_run(RunId(run)) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_of_other_nodes_are_read() {
        let expected = StreamPosition { offset: Offset(7), epoch: Epoch::from_bits(u64::MAX - 1).in_run(RunId(5)) };
        let Some(StoreEvent::Advanced { channel, position }) = read("a 7/-2/5 match: 1", "b") else {
            panic!("a notification of new publications")
        };
        assert_eq!((&*channel, position), ("match: 1", expected));
        assert!(matches!(read("a 0 x", "b"), Some(StoreEvent::Cleared { channel }) if &*channel == "x"));
        let queued = read("a @3 my phone 7", "b");
        assert!(
            matches!(queued, Some(StoreEvent::MessageQueued { scope, name }) if &*scope == "my " && &*name == "phone 7")
        );
        for skipped in ["b 7/1/2 x", "a x", "a x y", "a 7 x", "a 7/1 x", "a @9 short", ""] {
            assert!(read(skipped, "b").is_none(), "{skipped}");
        }
    }
}
