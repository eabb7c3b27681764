//! The registry by `rpc`: names, groups, messages and calls; and what of it a token gives.

use bytes::Bytes;
use touchline_protocol::command::RpcRequest;
use touchline_protocol::message::Reply;
use touchline_protocol::{Disconnect, Error, data};

use super::{AnswerKind, Context, Phase, Session, Ticket, Weight};
use crate::claims::EntryClaim;
use crate::directory::{self, Ask, Who};
use crate::request::Response;

impl Session {
    /// This client, as the directory knows it.
    pub fn who(&self) -> Who {
        Who { owner: self.owner(), user: self.user.clone(), is_backend: false }
    }

    pub(super) fn rpc(&mut self, command: u32, request: &RpcRequest<'_>, context: &mut Context<'_>) {
        if request.method == "stats.track" {
            return self.track(command, request, context);
        }
        let method =
            request.method.strip_prefix("registry.").or(matches!(&*request.method, "reply" | "inbox.ack").then_some(&*request.method));
        let scopes = &context.node.scopes;
        let ask = method.ok_or(Error::NOT_AVAILABLE).and_then(|method| {
            let ask = directory::read(method, request.data.map_or("{}", |data| data.get()), scopes)?;
            if !self.is_insecure(context) {
                directory::permit(&ask, &self.user, self.rare.as_ref().map_or(&[], |rare| &*rare.granted), scopes)?;
            }
            Ok(ask)
        });
        match ask {
            Ok(ask) => match scopes.answer(&ask) {
                Some(answer) => {
                    reply(command, AnswerKind::Rpc, answer.map_or_else(Response::Refused, |json| Response::Answer(json.into())), context)
                }
                None if weight_of(&ask) == Weight::Large && context.room.is_scarce => {
                    context.effects.refuse(command, Error::TOO_MANY_REQUESTS);
                }
                None => self.ask(command, AnswerKind::Rpc, ask, context),
            },
            Err(error) => context.effects.refuse(command, error),
        }
    }

    fn track(&mut self, command: u32, request: &RpcRequest<'_>, context: &mut Context<'_>) {
        let params = request.data.map_or("{}", |data| data.get());
        let Context { tracker, id, node, now_ms, .. } = context;
        match tracker.track(id.slot, &self.user, params, node.track, *now_ms) {
            Ok(()) => reply(command, AnswerKind::Rpc, Response::Answer(b"{}".to_vec().into()), context),
            Err(error) => context.effects.refuse(command, error),
        }
    }

    /// Acts for the client, as the server API wants it; the answer goes there.
    pub fn act(&mut self, ask: Ask) -> (Who, Ask) {
        self.is_listed = true;
        (self.who(), ask)
    }

    /// Asks the directory for a command. What it holds, and what may still wait for an answer, ends with the session.
    pub(super) fn ask(&mut self, command: u32, kind: AnswerKind, ask: Ask, context: &mut Context<'_>) {
        let weight = weight_of(&ask);
        self.is_listed |= matches!(ask, Ask::Register { .. } | Ask::Join { .. } | Ask::Call { .. }) || ask.is_walk();
        self.flow.begin(weight);
        context.effects.asks.push((Some(Ticket::Directory { command, kind, weight }), self.who(), ask));
    }

    /// Takes the names and groups of the token. The connect reply waits for them.
    pub(super) fn claim(&mut self, names: Vec<EntryClaim>, groups: Vec<EntryClaim>, context: &mut Context<'_>) {
        let entries = names.into_iter().map(|claim| (claim, false)).chain(groups.into_iter().map(|claim| (claim, true)));
        for (claim, is_group) in entries {
            let scope = context.node.scopes.find(&claim.scope);
            let meta = claim.meta.map(|meta| data::take(&meta)).transpose();
            let (Some(scope), Ok(meta)) = (scope, meta) else { return context.disconnect(Disconnect::BAD_REQUEST) };
            if directory::has_control(&claim.name) {
                return context.disconnect(Disconnect::BAD_REQUEST);
            }
            let (key, meta) = (claim.name.into_boxed_str(), meta.unwrap_or_else(Bytes::new));
            let ask =
                if is_group { Ask::Join { scope, group: key, meta } } else { Ask::Register { scope, name: key, meta, take_over: true } };
            if let Phase::Connecting(connecting) = &mut self.phase {
                connecting.awaited += 1;
            }
            self.is_listed = true;
            context.effects.asks.push((Some(Ticket::Claim), self.who(), ask));
        }
    }

    pub(super) fn claimed(&mut self, response: Response, context: &mut Context<'_>) {
        let Phase::Connecting(connecting) = &mut self.phase else { return };
        match response {
            Response::Refused(error) => {
                let command = connecting.command;
                self.refuse_connect(command, error, context);
            }
            _ => {
                connecting.awaited -= 1;
                self.finish_connect(context);
            }
        }
    }
}

/// What the answer to an ask may be.
fn weight_of(ask: &Ask) -> Weight {
    match ask {
        Ask::Names(_) | Ask::Groups(_) | Ask::Members { .. } | Ask::Presence { .. } => Weight::Large,
        Ask::Call { .. } => Weight::Waiting,
        _ => Weight::Small,
    }
}

/// Writes the directory's answer as the reply to a command.
pub(super) fn reply(command: u32, kind: AnswerKind, response: Response, context: &mut Context<'_>) {
    let json = match response {
        Response::Answer(answered) => answered.json(),
        Response::Refused(error) => return context.effects.refuse(command, error),
        _ => return context.effects.refuse(command, Error::INTERNAL),
    };
    let reply = match kind {
        AnswerKind::Presence => Reply::Presence(&json),
        AnswerKind::PresenceStats => Reply::PresenceStats(&json),
        AnswerKind::Rpc => Reply::Rpc(&json),
    };
    context.effects.messages.reply(command, &reply);
}
