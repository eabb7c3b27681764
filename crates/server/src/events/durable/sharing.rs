//! Decides which lanes this node delivers, and what it learns about other nodes in doing so.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use touchline_store::ledger::{LedgerError, LedgerShare};

use super::super::writing::reset_draft;
use super::journal::Journal;
use super::outage::OutageNote;
use super::outbox::OutboxHub;
use super::silent::SilentNodes;
use crate::node::Node;
use crate::runtime::event_metrics::EventMetrics;

/// The time between two searches for lanes that no node delivers, and for the wishes of other nodes.
const SHARE: Duration = Duration::from_secs(2);

/// The task that takes lanes and watches other nodes.
pub(super) struct LaneSharing {
    pub(super) node: Arc<Node>,
    pub(super) journal: Rc<Journal>,
    pub(super) hub: Rc<OutboxHub>,
    pub(super) metrics: Arc<EventMetrics>,
    pub(super) silent: SilentNodes,
    /// How many times this task has reported that events may be missing.
    pub(super) resets: u64,
}

impl LaneSharing {
    /// Takes lanes that no node delivers, without end.
    pub(super) async fn run(mut self) {
        let outage = OutageNote::new("durable endpoints receive no events");
        loop {
            let Some(incarnation) = self.journal.incarnation() else {
                self.hub.set_own(None, &[]);
                self.journal.entered().await;
                continue;
            };
            match self.share(incarnation).await {
                Ok(()) => outage.works(),
                Err(error) => outage.fails(&error),
            }
            // real time: leases and ages of the ledger follow the database's clock.
            let _ = tokio::time::timeout(SHARE, self.journal.entered()).await;
        }
    }

    async fn share(&mut self, incarnation: u64) -> Result<(), LedgerError> {
        let (wanted, order) = (self.hub.wanted(), self.hub.hold().await);
        let (idle, knows) = (self.hub.idle(), self.journal.knows());
        let share = self.journal.ledger().share(incarnation, (&wanted, &idle), knows).await?;
        self.hub.set_own(Some(incarnation), &share.lanes);
        drop(order);
        let LedgerShare { wishes, differing, nodes, is_settling, .. } = share;
        if let Some(list) = wishes {
            self.journal.apply(list);
        }
        self.note_differing(&differing);
        self.note_silent(&nodes);
        if is_settling && self.journal.ledger().settle().await? {
            self.hub.ring();
        }
        Ok(())
    }

    /// Logs once which endpoints other nodes describe differently.
    fn note_differing(&self, differing: &[String]) {
        for figures in self.metrics.endpoints() {
            let is_differing = differing.contains(&figures.name);
            let endpoint = &figures.name;
            match (figures.is_differing.swap(is_differing, Relaxed), is_differing) {
                (false, true) => tracing::warn!(
                    %endpoint,
                    "another node has other types, namespaces, lanes or delay for this durable endpoint: the endpoint \
                     receives what any of the nodes asks for"
                ),
                (true, false) => tracing::info!(%endpoint, "all nodes describe this endpoint in the same way again"),
                _ => {}
            }
        }
    }

    /// Reports the nodes of the cluster that take no part, because events may be missing or wrong without them.
    fn note_silent(&mut self, in_ledger: &[String]) {
        let now_ms = self.node.clock.now_ms();
        let Some(silent) = self.silent.note(&self.node.peers_in_order(), in_ledger, now_ms) else { return };
        if silent.is_empty() {
            tracing::info!("all nodes of the cluster take part in durable events now");
        } else {
            tracing::warn!(
                nodes = %silent.join(", "),
                "nodes of the cluster have no durable endpoint, or another primary database: what their clients do is \
                 not reported, and users who are only on them are reported as offline"
            );
        }
        *self.metrics.silent_nodes.lock() = silent.to_vec();
        self.resets += 1;
        let mut reset = reset_draft(&self.node, now_ms, None, "node_silent", self.resets);
        reset.id = format!("reset:{}:s{}", self.node.id, self.resets);
        self.journal.tell(reset, None);
    }
}
