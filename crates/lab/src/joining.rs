//! Waits until the nodes of a cluster see each other.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::publisher::PublishClient;

/// Maximum time for nodes to see each other.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// Waits until each of these nodes sees all of them.
///
/// # Errors
/// When one does not answer, or does not see all within a minute.
pub(crate) fn wait_until_joined(nodes: &[&PublishClient]) -> Result<()> {
    let began = Instant::now();
    for node in nodes {
        loop {
            let seen = nodes_in_sight(node)?;
            if seen == nodes.len() {
                break;
            }
            if began.elapsed() > PATIENCE {
                bail!("the node at {} sees {seen} of {} nodes after {PATIENCE:?}", node.address, nodes.len());
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// How many nodes a node sees, itself included.
fn nodes_in_sight(node: &PublishClient) -> Result<usize> {
    let info = node.ask("info", "{}")?;
    let nodes = info["nodes"].as_array().context("info has no nodes")?;
    let missing = info["missing_nodes"].as_array().map_or(0, Vec::len);
    Ok(nodes.len().saturating_sub(missing))
}
