//! Whom a command of the server API is for, how it reaches them, and what its answer says.

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

/// Users that one command names.
pub(in crate::api) const USERS_MAX: usize = 1_000;

/// The fields of a request that say whom it is for.
///
/// `user` and `users` select users, `client` and `session` narrow within them; without either they select one
/// connection, whoever its user is.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::api) struct Targets<'a> {
    /// Empty = the anonymous user; None = no user is named.
    pub(in crate::api) user: Option<&'a str>,
    pub(in crate::api) users: Option<&'a [String]>,
    /// A client id; empty = none is named.
    pub(in crate::api) client: &'a str,
    /// A session; empty = none is named.
    pub(in crate::api) session: &'a str,
    /// Connections a second on each node; None = as soon as possible.
    pub(in crate::api) rate: Option<u32>,
}

impl Targets<'_> {
    /// Whether the answer says how many connections there are on each node. A request that names one user and nothing
    /// new is broadcast instead, as it always was: nodes of earlier versions understand it.
    pub(in crate::api) fn is_gathered(&self) -> bool {
        self.users.is_some() || self.rate.is_some() || self.user.is_none() && self.names_connection()
    }

    /// Whether one of the fields says whom it is for: `rate` alone does not.
    pub(in crate::api) fn is_any(&self) -> bool {
        self.user.is_some() || self.users.is_some() || self.names_connection()
    }

    fn names_connection(&self) -> bool {
        !self.client.is_empty() || !self.session.is_empty()
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// 107 with the field at fault; `user` if none says whom the command is for.
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
            // An id that a caller forgot must not stand for everybody without one.
            (None, None) if client.is_empty() && session.is_empty() => return Err(OperationError::bad("user")),
            (None, None) => None,
        };
        let users = users.map(|mut users| {
            // No connection has a command twice.
            users.sort_unstable();
            users.dedup();
            users
        });
        let (client, session, is_counted) = (client.to_owned(), session.to_owned(), self.is_gathered());
        Ok(CheckedTargets { users, client, session, rate, is_counted })
    }
}

/// Whom a command is for.
pub(in crate::api) struct CheckedTargets {
    /// None = the connection alone is named.
    users: Option<Vec<String>>,
    client: String,
    session: String,
    rate: Option<u32>,
    is_counted: bool,
}

impl CheckedTargets {
    /// Carries a command out on this node.
    ///
    /// # Errors
    /// The error of a connection that refuses the command; 111 when too many commands are under way.
    pub(in crate::api) async fn command(
        self,
        node: &Node,
        action: ConnectionAction,
    ) -> Result<CommandReply, OperationError> {
        let is_counted = self.is_counted;
        let counted = self.counted(node, action).await?;
        Ok(if is_counted { counted } else { CommandReply::default() })
    }

    /// The same, always with the number of connections.
    ///
    /// # Errors
    /// As [`CheckedTargets::command`].
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

    /// The connections; None = this node has none of them.
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
    // Before the connections end: they may come back at once.
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
    // All are waited for, also behind an error: a shard gives up a command that nobody waits for.
    let mut count = Ok(0);
    for reply in replies {
        let reached = reply.await.unwrap_or(Err(Error::INTERNAL));
        count = count.and_then(|count| reached.map(|reached| count + reached));
    }
    Ok(count?)
}

/// How many connections a command is for; empty where it names one user and has no rate.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct CommandReply {
    /// Connections on all nodes that have answered; with a rate those that the command will reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub(in crate::api) connections: Option<u64>,
    /// The connections of each node that has answered.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::api) nodes: BTreeMap<String, u64>,
    /// Nodes that have not answered in time, have refused, or are of an earlier version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::api) missing_nodes: Vec<Box<str>>,
}

impl CommandReply {
    fn of(node: &Node, count: u64) -> Self {
        let nodes = BTreeMap::from([(node.id.clone(), count)]);
        CommandReply { connections: Some(count), nodes, missing_nodes: Vec::new() }
    }

    /// Adds the results of other nodes, and names those without one.
    pub(in crate::api) fn merge(&mut self, others: &OtherNodes<'_>) {
        let results = others.results.iter();
        for other in results.filter_map(|(_, result)| serde_json::from_str::<CommandReply>(result.get()).ok()) {
            self.nodes.extend(other.nodes);
        }
        self.connections = Some(self.nodes.values().sum());
        self.missing_nodes.clone_from(&others.missing);
    }
}
