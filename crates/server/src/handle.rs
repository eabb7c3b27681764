//! The handle of a running server, for the program that embeds it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::api::{open_metrics, turns};
use crate::draining::forecast;
use crate::node::Node;
use crate::runtime::mailbox::Message;
use crate::runtime::reload::{ReloadRefusal, Reloaded};

/// Calls operations of the server API without HTTP and without a key. Clones are handles of the same server. A handle
/// does not keep the server running.
///
/// The futures need no runtime of their own: any executor may wait for them.
#[derive(Clone)]
pub struct ServerHandle {
    node: Weak<Node>,
}

/// Why an operation was refused.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct OperationRefusal {
    /// The number of the error, as in the documentation of the server API.
    pub code: u32,
    /// The text of the error.
    pub message: String,
}

impl OperationRefusal {
    fn new(code: u32, message: &str) -> Self {
        OperationRefusal { code, message: message.to_owned() }
    }
}

impl ServerHandle {
    pub(crate) fn new(node: &Arc<Node>) -> Self {
        ServerHandle { node: Arc::downgrade(node) }
    }

    /// Runs an operation of the server API on all nodes that it concerns. `params`: the fields of its request. Returns
    /// the `result` of its answer.
    ///
    /// # Errors
    /// The error of the operation. 107: the operation does not have these fields. 100: the server has stopped.
    pub async fn call(&self, operation: &str, params: Value) -> Result<Value, OperationRefusal> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            result: Value,
            error: Option<OperationRefusal>,
        }
        let (reply, answer) = oneshot::channel();
        let done = move |bytes: Option<Vec<u8>>| {
            let _ = reply.send(bytes);
        };
        match self.node.upgrade() {
            Some(node) => {
                let (operation, params) = (operation.into(), Bytes::from(params.to_string()));
                node.send_to_any_shard(Message::Operate { operation, params, reply: Box::new(done) });
            }
            None => return Err(OperationRefusal::new(100, "the server has stopped")),
        }
        let stopped = |_| OperationRefusal::new(100, "the server has stopped");
        let Some(bytes) = answer.await.map_err(stopped)? else {
            return Err(OperationRefusal::new(107, "the operation does not have these fields"));
        };
        let answer: Answer = serde_json::from_slice(&bytes).map_err(|_| OperationRefusal::new(100, "not an answer"))?;
        match answer.error {
            Some(error) => Err(error),
            None => Ok(answer.result),
        }
    }

    /// Publishes into a channel. Returns the offset of the publication; 0 in a channel without history.
    ///
    /// # Errors
    /// The same errors as [`ServerHandle::call`] returns.
    pub async fn publish(&self, channel: &str, data: &impl Serialize) -> Result<u64, OperationRefusal> {
        let data = serde_json::to_value(data).map_err(|_| OperationRefusal::new(107, "data is not JSON"))?;
        let result = self.call("publish", json!({ "channel": channel, "data": data })).await?;
        Ok(result["offset"].as_u64().unwrap_or_default())
    }

    /// Subscribes the connections of a user to a channel.
    ///
    /// # Errors
    /// The same errors as [`ServerHandle::call`] returns.
    pub async fn subscribe(&self, user: &str, channel: &str) -> Result<(), OperationRefusal> {
        self.call("subscribe", json!({ "user": user, "channel": channel })).await.map(drop)
    }

    /// Ends the subscriptions of a user's connections to a channel. An empty `channel` means all channels.
    ///
    /// # Errors
    /// The same errors as [`ServerHandle::call`] returns.
    pub async fn unsubscribe(&self, user: &str, channel: &str) -> Result<(), OperationRefusal> {
        self.call("unsubscribe", json!({ "user": user, "channel": channel })).await.map(drop)
    }

    /// Disconnects all connections of a user with code 3503, after which clients do not reconnect.
    ///
    /// # Errors
    /// The same errors as [`ServerHandle::call`] returns.
    pub async fn disconnect(&self, user: &str) -> Result<(), OperationRefusal> {
        self.call("disconnect", json!({ "user": user })).await.map(drop)
    }

    /// Returns the clients in a channel: an object whose keys are the client ids.
    ///
    /// # Errors
    /// The same errors as [`ServerHandle::call`] returns.
    pub async fn presence(&self, channel: &str) -> Result<Value, OperationRefusal> {
        let mut result = self.call("presence", json!({ "channel": channel })).await?;
        Ok(result["presence"].take())
    }

    /// Returns the latest publications of a channel, at most `limit`, the oldest first.
    ///
    /// # Errors
    /// The same errors as [`ServerHandle::call`] returns.
    pub async fn history(&self, channel: &str, limit: u32) -> Result<Vec<Value>, OperationRefusal> {
        let params = json!({ "channel": channel, "limit": limit, "reverse": true });
        let mut result = self.call("history", params).await?;
        let mut publications = match result["publications"].take() {
            Value::Array(publications) => publications,
            _ => Vec::new(),
        };
        publications.reverse();
        Ok(publications)
    }

    /// Reads the settings again and applies them. Returns when every event loop works with them. This call blocks while
    /// it reads the settings and fetches keys.
    ///
    /// # Errors
    /// [`ReloadRefusal`] says why nothing was changed.
    pub fn reload(&self) -> Result<Reloaded, ReloadRefusal> {
        let node = self.node.upgrade().ok_or(ReloadRefusal::Stopping)?;
        node.reload.get().ok_or(ReloadRefusal::NoSource)?()
    }

    /// Whether every event loop of the node responds within 5 seconds; false if the server has stopped. Needs a Tokio
    /// runtime with time enabled.
    pub async fn turns(&self) -> bool {
        match self.node.upgrade() {
            Some(node) => turns(&node).await,
            None => false,
        }
    }

    /// How many clients the node has, and how long a drain that begins now would take to disconnect all of them. Both
    /// are zero if the server has stopped.
    pub fn drain_forecast(&self) -> (u64, Duration) {
        let forecast = self.node.upgrade().map(|node| forecast(&node)).unwrap_or_default();
        (forecast.clients, Duration::from_secs_f64(forecast.seconds))
    }

    /// The metrics of the node in the OpenMetrics text format; empty if the server has stopped.
    pub fn metrics(&self) -> String {
        self.node.upgrade().and_then(|node| open_metrics(&node)).unwrap_or_default()
    }
}
