//! Changes in NATS with a caller that waits for the outcome. Each runs as a separate task and reports its result.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::fact::{FactChange, FactsEvent};
use touchline_protocol::stream::{ChannelName, NamespaceName};

use crate::command::{OnFactChanged, OnStreamAppended};
use crate::events::{ClusterEvent, ClusterEventSink};
use crate::fact_bucket::FactBucket;
use crate::history::Streams;
use crate::loader::Checks;
use crate::outage::OutageLog;

/// Changes a shared fact and reports the result. A failure is logged.
pub(crate) async fn change_fact(
    bucket: FactBucket,
    (events, outages): (ClusterEventSink, Arc<OutageLog>),
    change: FactChange,
    done: OnFactChanged,
) {
    match bucket.change(&change).await {
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
    (channel, namespace, payload, id): (ChannelName, NamespaceName, Bytes, Box<str>),
    done: OnStreamAppended,
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
