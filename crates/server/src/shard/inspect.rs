//! The server API's part of a shard: commands for one client, and inspections.

use touchline_engine::Response;
use touchline_engine::directory::{message_push, numbered};
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use super::connections::ConnectionStage;
use super::state::Shard;
use crate::runtime::mailbox::{ClientCommand, Inspection};
use crate::runtime::registry_mailbox::RegistryMessage;

impl Shard {
    /// Runs a command for one client. If another connection occupies the slot by now, the client is gone.
    pub(super) fn run_client_command(&mut self, owner: OwnerId, slot: u32, command: ClientCommand) {
        let is_there =
            self.connections.get(slot).is_some_and(|c| c.stage == ConnectionStage::Open && c.session.owner() == owner);
        match command {
            ClientCommand::Directory { reply_to, .. } if !is_there => {
                self.node.reply(reply_to, Response::Refused(Error::NOT_REGISTERED))
            }
            ClientCommand::Commands(_) | ClientCommand::React(_) | ClientCommand::TellUser(_) if !is_there => {}
            _ if !is_there => self.node.send_to_registry(RegistryMessage::OwnerGone(owner)),
            ClientCommand::Push(message) => self.push(slot, &message),
            ClientCommand::Call { call, message } => self.push(slot, &numbered(call, &message)),
            ClientCommand::Commands(commands) => self.receive_commands(slot, &commands),
            ClientCommand::React(request) => self.receive_reaction(slot, &request),
            ClientCommand::Disconnect(why) => self.disconnect(slot, why),
            ClientCommand::TellUser(reply) => {
                if let Some(connection) = self.connections.get(slot) {
                    let _ = reply.send(connection.session.user().into());
                }
            }
            ClientCommand::Directory { request, reply_to } => {
                let Some(connection) = self.connections.get_mut(slot) else { return };
                let (requester, request) = connection.session.act(request);
                self.node.send_to_registry(RegistryMessage::Request { requester, request, reply_to });
            }
        }
    }

    /// Pushes a message (JSON) to one client. A client that is still connecting gets it after its connect reply.
    pub(super) fn push(&mut self, slot: u32, message: &[u8]) {
        let Some(connection) = self.connections.get_mut(slot) else { return };
        if connection.session.is_holding() {
            let frame = message_push(message).framed(connection.wire);
            connection.session.hold(frame, self.generation.settings.client.queue_max_size);
        } else {
            self.with_session(slot, |session, context| session.message(message, context));
        }
    }

    /// Replies to an inspection of this shard.
    pub(super) fn inspect(&mut self, inspection: Inspection) {
        match inspection {
            Inspection::Channels { pattern, reply } => {
                let fits = |name: &str| pattern.as_ref().is_none_or(|pattern| pattern.fits(name));
                let matching = self.channels.active().filter(|(name, _)| fits(name));
                let _ = reply.send(matching.map(|(name, subscribers)| (name.clone(), subscribers)).collect());
            }
            Inspection::Connections(question) => self.list_connections(*question),
            Inspection::Turn { reply } => {
                let _ = reply.send(());
            }
            Inspection::Channel { channel, reply } => {
                let _ = reply.send(self.channels.facts(&channel));
            }
            Inspection::ActiveChannels { reply } => {
                let _ = reply.send(self.channels.active().count() as u64);
            }
        }
    }
}
