//! What the server API asks of a shard: things to do with a user's connections, and questions.

use touchline_engine::Response;
use touchline_engine::directory::{message_push, numbered};
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use super::Shard;
use super::connections::Stage;
use crate::mailbox::{ClientCommand, Inspection, UserAction, UserCommand};
use crate::registry_actor::RegistryMessage;

impl Shard {
    /// Does something with the connections of one user.
    pub(super) fn obey(&mut self, order: UserCommand) {
        let mut outcome = Ok(());
        for slot in self.users.connections_of(&order.user, &self.connections) {
            let Some(client) = self.connections.get(slot).map(|c| c.session.client_id()) else { continue };
            if order.client.is_empty() || *order.client == *client {
                let done = self.act(slot, &client, &order.action);
                outcome = outcome.and(done);
            }
        }
        let _ = order.reply.send(outcome);
    }

    /// Gives one client what it is to have. Its slot may have another tenant by now.
    pub(super) fn obey_for_client(&mut self, owner: OwnerId, slot: u32, order: ClientCommand) {
        let is_there = self.connections.get(slot).is_some_and(|c| c.stage == Stage::Open && c.session.owner() == owner);
        match order {
            ClientCommand::Act { asker, .. } if !is_there => {
                self.node.reply(asker, Response::Refused(Error::NOT_REGISTERED))
            }
            ClientCommand::Commands(_) if !is_there => {}
            _ if !is_there => self.node.send_to_registry(RegistryMessage::OwnerGone(owner)),
            ClientCommand::Push(message) => self.push(slot, &message),
            ClientCommand::Call { call, message } => self.push(slot, &numbered(call, &message)),
            ClientCommand::Commands(commands) => self.receive_commands(slot, &commands),
            ClientCommand::Disconnect(why) => self.disconnect(slot, why),
            ClientCommand::Act { ask, asker } => {
                let Some(connection) = self.connections.get_mut(slot) else { return };
                let (who, ask) = connection.session.act(ask);
                self.node.send_to_registry(RegistryMessage::Ask { who, ask, asker });
            }
        }
    }

    /// Gives a client a message that is for it alone, JSON. One that is still connecting is given it behind its connect
    /// reply.
    fn push(&mut self, slot: u32, message: &[u8]) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.session.is_holding() {
            let frame = message_push(message).framed(connection.wire);
            connection.session.hold(frame, self.node.settings.client.queue_max_size);
        } else {
            self.with_session(slot, |session, context| session.message(message, context));
        }
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
            UserAction::Refresh { is_expired, expire_at_s, info } => {
                self.with_session(slot, |session, context| {
                    session.server_refresh(*is_expired, *expire_at_s, info.clone(), context)
                });
            }
        }
        outcome
    }

    /// Answers a question about this shard.
    pub(super) fn inspect(&mut self, inspection: Inspection) {
        match inspection {
            Inspection::Channels { pattern, reply } => {
                let fits = |name: &str| pattern.as_ref().is_none_or(|pattern| pattern.fits(name));
                let found = self.channels.active().filter(|(name, _)| fits(name));
                let _ = reply.send(found.map(|(name, subscribers)| (name.clone(), subscribers)).collect());
            }
            Inspection::Turn { reply } => {
                let _ = reply.send(());
            }
            Inspection::ActiveChannels { reply } => {
                let _ = reply.send(self.channels.active().count() as u64);
            }
        }
    }
}
