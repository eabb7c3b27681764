//! Commands of the server API for some connections. They reach a limited number of connections in a turn, and in a
//! second if the command has a rate.

use std::sync::Arc;

use touchline_engine::directory::message_of_backend;
use touchline_protocol::Error;

use super::state::{Shard, take_one};
use super::stepwise::CommandUnderWay;
use crate::runtime::mailbox::{ConnectionAction, ConnectionCommand, Selection};
use crate::runtime::pacer::Pacer;
use crate::runtime::registry_mailbox::route;

impl Shard {
    /// Begins a command. The shard carries out at once as much of it as this turn has room for.
    pub(super) fn run_command(&mut self, command: ConnectionCommand) {
        let ConnectionCommand { selection, action, pacer, reply } = command;
        if pacer.is_none() && self.stepwise.commands.is_full() {
            let _ = reply.send(Err(Error::TOO_MANY_REQUESTS));
            return;
        }
        let is_ending = pacer.is_some() && self.drain.is_some();
        let targets = if is_ending { Vec::new() } else { self.select(&selection, &action) };
        let reply = match pacer {
            None => Some(reply),
            Some(_) => {
                let _ = reply.send(Ok(targets.len() as u64));
                None
            }
        };
        let size = CommandUnderWay::size_of(targets.len(), &action);
        let command = CommandUnderWay { targets, action, pacer, reply, size, reached: 0, result: Ok(()) };
        self.go_on_with(command);
        self.stepwise.commands.note_due();
    }

    /// Continues the commands that are under way.
    pub(super) fn continue_commands(&mut self) {
        if !self.stepwise.commands.is_due {
            return;
        }
        for _ in 0..self.stepwise.commands.count() {
            let Some(command) = self.stepwise.commands.take_next() else { break };
            if !command.is_given_up() {
                self.go_on_with(command);
            }
        }
        self.stepwise.commands.note_due();
    }

    /// Carries out a part of a command. It keeps the rest, or sends the outcome.
    fn go_on_with(&mut self, mut command: CommandUnderWay) {
        while let Some((slot, generation)) = command.targets.last().copied() {
            if self.connections.generation(slot) != generation {
                // The connection is gone meanwhile.
                command.targets.pop();
                continue;
            }
            let has_turn = |pacer: &Arc<Pacer>| pacer.admits(self.now_us);
            if self.stepwise.commands.left == 0 || !command.pacer.as_ref().is_none_or(has_turn) {
                return self.stepwise.commands.keep(command);
            }
            take_one(&mut self.stepwise.commands.left);
            command.targets.pop();
            command.reached += 1;
            let mut done = Ok(());
            self.guarded(slot, |shard, slot| done = shard.run_action(slot, &command.action));
            command.result = command.result.and(done);
        }
        if let Some(reply) = command.reply {
            let _ = reply.send(command.result.map(|()| command.reached));
        }
    }

    /// The slots of the connections to which a command applies, with their generations.
    fn select(&self, selection: &Selection, action: &ConnectionAction) -> Vec<(u32, u32)> {
        let mut slots = Vec::new();
        match selection {
            Selection::Users { users, client } => {
                for user in users {
                    slots.extend(self.users.connections_of(user, &self.connections));
                }
                if let Some(client) = client {
                    slots.retain(|slot| self.connections.get(*slot).is_some_and(|c| c.session.owner() == *client));
                }
            }
            Selection::Client(owner) => {
                let place = route(*owner, self.node.shards.len()).filter(|(shard, _)| *shard == self.id);
                let connection = place.and_then(|(_, slot)| Some((slot, self.connections.get(slot)?)));
                if let Some((slot, connection)) = connection.filter(|(_, c)| c.is_listed && c.session.owner() == *owner)
                {
                    if let Some((channel, is_shared)) = action.forgets() {
                        self.node.forget_hook_answers(connection.session.user(), channel, is_shared);
                    }
                    slots.push(slot);
                }
            }
        }
        if let ConnectionAction::Disconnect { except, .. } = action
            && !except.is_empty()
        {
            slots.retain(|slot| {
                let client = self.connections.get(*slot).map(|connection| connection.session.owner());
                client.is_some_and(|client| !except.contains(&client))
            });
        }
        slots.into_iter().map(|slot| (slot, self.connections.generation(slot))).rev().collect()
    }

    /// Runs an action on one connection.
    fn run_action(&mut self, slot: u32, action: &ConnectionAction) -> Result<(), Error> {
        let mut result = Ok(());
        match action {
            ConnectionAction::Subscribe { channel, subscription } => self.with_session(slot, |session, context| {
                result = session.server_subscribe(channel, subscription.clone(), context);
            }),
            ConnectionAction::Unsubscribe { channel } => {
                self.with_session(slot, |session, context| session.server_unsubscribe(channel, context));
            }
            ConnectionAction::Disconnect { why, .. } => self.disconnect(slot, why.clone()),
            ConnectionAction::Refresh { is_expired, expire_at_s, info } => {
                self.with_session(slot, |session, context| {
                    session.server_refresh(*is_expired, *expire_at_s, info.clone(), context)
                });
            }
            ConnectionAction::Send(data) => {
                let message = self.connections.get(slot).map(|c| message_of_backend(c.session.user(), data));
                message.iter().for_each(|message| self.push(slot, message));
            }
        }
        result
    }
}
