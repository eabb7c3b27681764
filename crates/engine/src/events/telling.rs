//! The options and the outputs of a teller.

use std::sync::Arc;

use bytes::Bytes;
use touchline_registry::ReplicaTiming;

use super::state_key::StateKey;

/// The options of a teller.
#[derive(Debug, Clone)]
pub struct TellerOptions {
    /// How long a key must be empty before that is reported, milliseconds.
    pub delay_ms: u64,
    /// The timing of the registry.
    pub timing: ReplicaTiming,
    /// Whether the node takes part in a cluster.
    pub is_clustered: bool,
}

/// A change that has to be reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    /// The channel or user that has changed.
    pub key: StateKey,
    /// The number of the change: odd = held.
    pub generation: u64,
    /// The registry's reason for the change: `normal`, `node_down`, `node_up`.
    pub reason: &'static str,
    /// Since when no node holds the key, Unix milliseconds; `None` = a node holds it.
    pub empty_since_ms: Option<u64>,
    /// When the change is reported, Unix milliseconds.
    pub time_ms: u64,
}

impl StateChange {
    /// Whether some node holds the key.
    pub fn is_held(&self) -> bool {
        self.generation % 2 == 1
    }
}

/// An action that the host carries out for the teller.
#[derive(Debug, PartialEq)]
pub enum TellerOutput {
    /// Sends a message to the tellers of other nodes.
    Send {
        /// The receiving node; `None` = all nodes.
        to: Option<Arc<str>>,
        /// The message to send.
        message: Bytes,
    },
    /// Another node that reports is now in sight, or is no longer in sight.
    Node {
        /// The id of the other node.
        node: Arc<str>,
        /// Whether the node is in sight.
        is_up: bool,
        /// The present or last life in which it reports ([`super::StateTeller::life`]).
        life: u32,
        /// When the node was last heard, Unix milliseconds.
        heard_ms: u64,
    },
    /// Reports a change. Other nodes already know it.
    Tell(StateChange),
    /// Earlier reports may be wrong: a node is lost that may have reported something alone, or no node knows what was
    /// reported.
    Doubt {
        /// The reason for the doubt.
        why: &'static str,
        /// Reports before this time are not in doubt, Unix milliseconds; `None` = all are.
        since_ms: Option<u64>,
    },
}
