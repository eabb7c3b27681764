//! The connections that a command of the server API selects, how the command reaches them, and what its answer
//! contains.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use touchline_engine::directory::{client_from_text, client_text};
use touchline_protocol::Error;

use super::operation::{OperationError, OtherNodes};
use super::params::plain;
use crate::node::Node;
use crate::runtime::mailbox::{ConnectionAction, ConnectionCommand, Message, Selection};
use crate::runtime::pacer::{PACE_MAX, Pacer};

/// The most users that one command may name.
pub(in crate::api) const USERS_MAX: usize = 1_000;

/// The fields of a request that select connections.
///
/// `user` and `users` select users, and `client` and `session` narrow the selection. Without `user` and `users`, they
/// select one connection of any user.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::api) struct Targets<'a> {
    /// The user; empty = the anonymous user; None = no user is named.
    pub(in crate::api) user: Option<&'a str>,
    pub(in crate::api) users: Option<&'a [String]>,
    /// The client id; empty = no client is named.
    pub(in crate::api) client: &'a str,
    /// The session; empty = no session is named.
    pub(in crate::api) session: &'a str,
    /// Connections per second on each node; None = as soon as possible.
    pub(in crate::api) rate: Option<u32>,
}

impl Targets<'_> {
    /// Whether the answer contains the number of connections on each node. A request with only `user` is broadcast
    /// instead, because nodes of earlier versions understand only this form.
    pub(in crate::api) fn is_gathered(&self) -> bool {
        self.users.is_some() || self.rate.is_some() || self.user.is_none() && self.names_connection()
    }

    /// Whether a field selects connections; `rate` alone does not.
    pub(in crate::api) fn is_any(&self) -> bool {
        self.user.is_some() || self.users.is_some() || self.names_connection()
    }

    fn names_connection(&self) -> bool {
        !self.client.is_empty() || !self.session.is_empty()
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// 107 with the field at fault; `user` if no field selects connections.
    pub(in crate::api) fn check(&self) -> Result<CheckedTargets, OperationError> {
        let Targets { user, users, client, session, rate } = *self;
        plain("user", user)?;
        plain("users", users.unwrap_or_default())?;
        plain("client", [client])?;
        plain("session", [session])?;
        if users.is_some_and(|users| user.is_some() || users.is_empty() || users.len() > USERS_MAX) {
            return Err(OperationError::bad("users"));
        }
        if rate.is_some_and(|rate| !(1..=PACE_MAX).contains(&rate)) {
            return Err(OperationError::bad("rate"));
        }
        let users = match (user, users) {
            (Some(user), _) => Some(vec![user.to_owned()]),
            (None, Some(users)) => Some(users.to_vec()),
            // A forgotten id must not stand for all connections of the anonymous user.
            (None, None) if client.is_empty() && session.is_empty() => return Err(OperationError::bad("user")),
            (None, None) => None,
        };
        let users = users.map(|mut users| {
            // Each connection gets the command only once.
            users.sort_unstable();
            users.dedup();
            users
        });
        let (client, session, is_counted) = (client.to_owned(), session.to_owned(), self.is_gathered());
        Ok(CheckedTargets { users, client, session, rate, is_counted })
    }
}

/// The connections that a checked command selects.
pub(in crate::api) struct CheckedTargets {
    /// None = the command names only a connection.
    users: Option<Vec<String>>,
    client: String,
    session: String,
    rate: Option<u32>,
    is_counted: bool,
}

impl CheckedTargets {
    /// Carries out a command on this node.
    ///
    /// # Errors
    /// The error of a connection that refuses the command; 111 when too many commands are running.
    pub(in crate::api) async fn command(
        self,
        node: &Node,
        action: ConnectionAction,
    ) -> Result<CommandReply, OperationError> {
        let is_counted = self.is_counted;
        let counted = self.counted(node, action).await?;
        Ok(if is_counted { counted } else { CommandReply::default() })
    }

    /// Carries out the command, and always returns the number of connections.
    ///
    /// # Errors
    /// The errors of [`CheckedTargets::command`].
    pub(in crate::api) async fn counted(
        self,
        node: &Node,
        action: ConnectionAction,
    ) -> Result<CommandReply, OperationError> {
        let rate = self.rate;
        let count = match self.selection(node) {
            Some(selection) => send(node, selection, action, rate).await?,
            None => 0,
        };
        Ok(CommandReply::of(node, count))
    }

    /// Returns the selected connections; None = this node has none of them.
    fn selection(self, node: &Node) -> Option<Selection> {
        let CheckedTargets { users, client, session, .. } = self;
        let mut client = match client.as_str() {
            "" => None,
            client => Some(client_from_text(client)?),
        };
        if !session.is_empty() {
            // The session of a connection is its signed client id, and only its own node can verify the signature.
            let owner = client_from_text(&node.signer.open(&session).map(client_text)?)?;
            if client.is_some_and(|client| client != owner) {
                return None;
            }
            client = Some(owner);
        }
        match users {
            Some(users) => Some(Selection::Users { users, client }),
            None => client.map(Selection::Client),
        }
    }
}

/// Sends a command to all shards. Returns the number of connections.
async fn send(
    node: &Node,
    selection: Selection,
    action: ConnectionAction,
    rate: Option<u32>,
) -> Result<u64, OperationError> {
    let pacer = match rate {
        Some(rate) => Some(Pacer::begin(rate, &node.paced).ok_or(Error::TOO_MANY_REQUESTS)?),
        None => None,
    };
    // Done before the connections end, because their clients may reconnect at once.
    if let (Selection::Users { users, .. }, Some((channel, is_shared))) = (&selection, action.forgets()) {
        users.iter().for_each(|user| node.forget_hook_answers(user, channel, is_shared));
    }
    let (selection, action) = (Arc::new(selection), Arc::new(action));
    let mut replies = Vec::with_capacity(node.shards.len());
    for shard in 0..node.shards.len() {
        let (reply, answer) = oneshot::channel();
        let (selection, action, pacer) = (Arc::clone(&selection), Arc::clone(&action), pacer.clone());
        let command = ConnectionCommand { selection, action, pacer, reply };
        node.send(shard as touchline_engine::ShardId, Message::Command(Box::new(command)));
        replies.push(answer);
    }
    // All replies are awaited, even after an error: a shard gives up a command that nobody waits for.
    let mut count = Ok(0);
    for reply in replies {
        let reached = reply.await.unwrap_or(Err(Error::INTERNAL));
        count = count.and_then(|count| reached.map(|reached| count + reached));
    }
    Ok(count?)
}

/// The number of connections that a command selects; empty if it names one user and has no rate.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct CommandReply {
    /// The connections on all nodes that answered. With a rate, these are the connections that the command will reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub(in crate::api) connections: Option<u64>,
    /// The connections on each node that answered, by the name of the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::api) nodes: BTreeMap<String, u64>,
    /// The nodes that did not answer in time, refused, or are of an earlier version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) missing_nodes: Vec<Box<str>>,
}

impl CommandReply {
    fn of(node: &Node, count: u64) -> Self {
        let nodes = BTreeMap::from([(node.id.clone(), count)]);
        CommandReply { connections: Some(count), nodes, missing_nodes: Vec::new() }
    }

    /// Adds the results of other nodes, and names the nodes without a result.
    pub(in crate::api) fn merge(&mut self, others: &OtherNodes<'_>) {
        let results = others.results.iter();
        for other in results.filter_map(|(_, result)| serde_json::from_str::<CommandReply>(result.get()).ok()) {
            self.nodes.extend(other.nodes);
        }
        self.connections = Some(self.nodes.values().sum());
        self.missing_nodes.clone_from(&others.missing);
    }
}
