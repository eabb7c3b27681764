//! Changes of shared facts by this node.

use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::oneshot;
use touchline_protocol::Error;
use touchline_protocol::fact::{FactChange, FactsEvent};

use super::facts::{FactBackend, apply};
use super::store::refused;
use crate::node::Node;

/// Changes a fact. When this returns, the backend has the change. This node has it too, unless it is cut off.
///
/// # Errors
/// 4009 or 4010 if the backend does not have the change, or may not have it. 111 if too many requests wait for it.
pub(crate) async fn change(node: &Node, change: FactChange) -> Result<(), Error> {
    let (sender, changed) = oneshot::channel();
    match (FactBackend::of(&node.generation().settings), node.store(), &node.cluster) {
        (FactBackend::Primary, Some(store), _) => {
            let done = |result: Result<(), _>| {
                let _ = sender.send(result.map_err(refused));
            };
            store.change_fact(change, Box::new(done));
        }
        (FactBackend::Cluster, _, Some(cluster)) => {
            let done = |result: Result<(), _>| {
                let _ = sender.send(result.map_err(|_| Error::CLUSTER_UNREACHABLE));
            };
            cluster.change_fact(change, Box::new(done));
        }
        (FactBackend::Memory, ..) => {
            if !node.has_told_of_memory.swap(true, Relaxed) {
                tracing::warn!(
                    "bans are kept in the memory of this node and lost when it stops: set security.use_primary, or \
                     use PostgreSQL as store.primary.url"
                );
            }
            apply(node, FactsEvent::Written { change, revision: 1 });
            return Ok(());
        }
        _ => return Err(Error::INTERNAL),
    }
    changed.await.unwrap_or(Err(Error::INTERNAL))
}
