//! What the server API asks of a shard: things to do with a user's connections, and questions.

use touchline_protocol::Error;

use super::Shard;
use crate::inbox::{Inspection, UserAction, UserCensus, UserOrder};
use crate::origin;

impl Shard {
    /// Does something with the connections of one user.
    pub(super) fn obey(&mut self, order: UserOrder) {
        let mut outcome = Ok(());
        for slot in self.users.connections_of(&order.user, &self.connections) {
            let Some(client) = self.connections.get(slot).map(|c| c.session.client_id()) else { continue };
            if order.client.is_empty() || *order.client == *client {
                let done = self.act(slot, &client, &order.action);
                outcome = outcome.and(done);
            }
        }
        let _ = order.done.send(outcome);
    }

    fn act(&mut self, slot: u32, client: &str, action: &UserAction) -> Result<(), Error> {
        let mut outcome = Ok(());
        match action {
            UserAction::Subscribe { channel, subscription } => self.with_session(slot, |session, context| {
                outcome = session.server_subscribe(channel, subscription.clone(), context);
            }),
            UserAction::Unsubscribe { channel } => {
                self.with_session(slot, |session, context| session.server_unsubscribe(channel, context));
            }
            UserAction::Disconnect { why, except } => {
                if !except.iter().any(|id| id == client) {
                    self.disconnect(slot, why.clone());
                }
            }
            UserAction::Refresh { is_expired, expire_at_s } => {
                self.with_session(slot, |session, context| session.server_refresh(*is_expired, *expire_at_s, context));
            }
        }
        outcome
    }

    /// Answers a question about this shard.
    pub(super) fn inspect(&mut self, inspection: Inspection) {
        match inspection {
            Inspection::Channels { pattern, reply } => {
                let fits = |name: &str| pattern.is_empty() || origin::matches(&pattern, name);
                let found = self.channels.active().filter(|(name, _)| fits(name));
                let _ = reply.send(found.map(|(name, subscribers)| (name.clone(), subscribers)).collect());
            }
            Inspection::Users { reply } => {
                let user_of = |slot| self.connections.get(slot).map(|c| c.session.user().into());
                let users = self.users.heads().filter_map(user_of).collect();
                let _ = reply.send(UserCensus { users, channels: self.channels.active().count() as u64 });
            }
        }
    }
}
