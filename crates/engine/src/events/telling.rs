//! What a teller is given, and what it puts out.

use std::sync::Arc;

use bytes::Bytes;
use touchline_registry::ReplicaTiming;

use super::state_key::StateKey;

/// What the teller is made of.
#[derive(Debug, Clone)]
pub struct TellerOptions {
    /// How long a key must be held by nobody until that is told, milliseconds.
    pub delay_ms: u64,
    /// The times of the registry.
    pub timing: ReplicaTiming,
    /// The node takes part in a cluster.
    pub is_clustered: bool,
}

/// A change that is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    /// The channel or user.
    pub key: StateKey,
    /// The number of the change: odd = held.
    pub generation: u64,
    /// Why, as the registry says it: `normal`, `node_down`, `node_up`.
    pub reason: &'static str,
    /// Since when nobody holds it, Unix milliseconds; `None` = somebody does.
    pub empty_since_ms: Option<u64>,
    /// When it is told, Unix milliseconds.
    pub time_ms: u64,
}

impl StateChange {
    /// Whether somebody holds the key.
    pub fn is_held(&self) -> bool {
        self.generation % 2 == 1
    }
}

/// What the host does.
#[derive(Debug, PartialEq)]
pub enum TellerOutput {
    /// Sends a message to the tellers of other nodes.
    Send {
        /// The node; `None` = all.
        to: Option<Arc<str>>,
        /// The message.
        message: Bytes,
    },
    /// Another node that tells is in sight, or is not any more.
    Node {
        /// Which.
        node: Arc<str>,
        /// Whether it is in sight.
        is_up: bool,
        /// The life in which it tells, or told ([`super::StateTeller::life`]).
        life: u32,
        /// When it was last heard, Unix milliseconds.
        heard_ms: u64,
    },
    /// Tells a change. Other nodes have been told before.
    Tell(StateChange),
    /// What was told before may be wrong: a node is lost that may have told something alone, or nobody knows what was
    /// told.
    Doubt {
        /// Why.
        why: &'static str,
        /// Nothing that was told before is in doubt, Unix milliseconds; `None` = all is.
        since_ms: Option<u64>,
    },
}
