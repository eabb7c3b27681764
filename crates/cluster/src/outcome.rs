//! Changes in NATS with a caller that waits for the outcome. Each runs as a separate task and reports its result.

use std::sync::Arc;
use std::time::Duration;

use touchline_protocol::fact::{FactChange, FactsEvent};

use crate::command::{HistoryRemoval, OnFactChanged, OnPurged, StreamAppend};
use crate::errors::{FactError, StreamError};
use crate::events::{ClusterEvent, ClusterEventSink};
use crate::fact_bucket::FactBucket;
use crate::history::Streams;
use crate::loader::Checks;
use crate::outage::OutageLog;
use crate::room::OutgoingCharge;
use crate::time::timeout;

/// How long the removal of a history or the change of a fact may take. Then its result is unknown.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Changes a shared fact and reports the result. A failure is logged.
pub(crate) async fn change_fact(
    bucket: FactBucket,
    (events, outages): (ClusterEventSink, Arc<OutageLog>),
    (change, _charge): (FactChange, OutgoingCharge),
    done: OnFactChanged,
) {
    let changed = timeout(CHANGE_TIMEOUT, bucket.change(&change)).await;
    match changed.unwrap_or(Err(FactError::TimedOut)) {
        Ok(revision) => {
            if let Some(revision) = revision {
                events(ClusterEvent::Facts(FactsEvent::Written { change, revision }));
            }
            done(Ok(()));
        }
        Err(error) => {
            outages.fail(&error);
            done(Err(error));
        }
    }
}

/// Stores a publication and reports the result. A failure is logged, and the streams are inspected soon.
pub(crate) async fn append(
    (streams, checks, outages): (Streams, Arc<Checks>, Arc<OutageLog>),
    StreamAppend { channel, namespace, payload: (payload, _charge), id, done }: StreamAppend,
) {
    let appended = streams.store(&channel, &namespace, payload, &id).await;
    match &appended {
        Ok(_) => outages.succeed(),
        Err(error) => {
            outages.fail(error);
            checks.trouble.notify_one();
        }
    }
    done(appended);
}

/// Removes a history and reports the result. A failure is logged.
pub(crate) async fn purge(
    streams: Streams,
    outages: Arc<OutageLog>,
    HistoryRemoval { channel, namespace, marker, charge: _charge }: HistoryRemoval,
    done: OnPurged,
) {
    let purged = timeout(CHANGE_TIMEOUT, streams.purge(&channel, &namespace, marker)).await;
    let purged = purged.unwrap_or(Err(StreamError::TimedOut));
    if let Err(error) = &purged {
        outages.fail(error);
    }
    done(purged);
}
