//! The registry by `rpc`: names, groups, messages and calls; and what of it a token gives.

use bytes::Bytes;
use touchline_protocol::command::RpcRequest;
use touchline_protocol::message::Reply;
use touchline_protocol::{Error, data};

use super::{AnswerKind, Context, Outbound, Phase, Session, Ticket, Weight};
use crate::claims::EntryClaim;
use crate::directory::{self, DirectoryRequest, Registration, Requester, Scopes};
use crate::request::Response;

impl Session {
    /// This client, as the directory knows it.
    pub fn who(&self) -> Requester {
        Requester { owner: self.owner(), user: self.user.clone(), is_backend: false }
    }

    pub(super) fn rpc(&mut self, command: u32, request: &RpcRequest<'_>, context: &mut Context<'_>) {
        if request.method == "stats.track" {
            return self.track(command, request, context);
        }
        let method = request
            .method
            .strip_prefix("registry.")
            .or(matches!(&*request.method, "reply" | "inbox.ack").then_some(&*request.method));
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
                Some(answer) => reply(
                    command,
                    AnswerKind::Rpc,
                    answer.map_or_else(Response::Refused, |json| Response::Answer(json.into())),
                    context,
                ),
                None if weight_of(&ask) == Weight::Large && context.room.is_scarce => {
                    context.effects.refuse(command, Error::TOO_MANY_REQUESTS);
                }
                None => self.ask(command, AnswerKind::Rpc, ask, context),
            },
            Err(error) => {
                if let Some(cause) = cause_of(error) {
                    context.because(cause, "");
                }
                context.effects.refuse(command, error);
            }
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
    pub fn act(&mut self, ask: DirectoryRequest) -> (Requester, DirectoryRequest) {
        self.is_listed = true;
        (self.who(), ask)
    }

    /// Asks the directory for a command. What it holds, and what may still wait for an answer, ends with the session.
    pub(super) fn ask(&mut self, command: u32, kind: AnswerKind, ask: DirectoryRequest, context: &mut Context<'_>) {
        let weight = weight_of(&ask);
        self.is_listed |= matches!(
            ask,
            DirectoryRequest::Register { .. } | DirectoryRequest::Join { .. } | DirectoryRequest::Call { .. }
        ) || ask.is_walk();
        self.flow.begin(weight);
        context.effects.asks.push((Some(Ticket::Directory { command, kind, weight }), self.who(), ask));
    }

    /// Asks for the names and groups of the token, all or none. Nothing else of the connect may be seen before they are
    /// there, so what the homes of channels were to be asked since `mark` waits with it, and so does the connect
    /// reply.
    pub(super) fn claim(&mut self, claims: Box<[Registration]>, mark: usize, context: &mut Context<'_>) {
        if claims.is_empty() || context.effects.disconnect.is_some() {
            return;
        }
        if let Phase::Connecting(connecting) = &mut self.phase {
            connecting.awaited += 1;
            connecting.deferred = context.effects.requests.split_off(mark);
        }
        self.is_listed = true;
        context.effects.asks.push((Some(Ticket::Claim), self.who(), DirectoryRequest::Take(claims)));
    }

    /// Lets the subscriptions go whose channels' homes have not been asked yet, because the names of the token come
    /// first.
    pub(super) fn drop_deferred(&mut self, context: &mut Context<'_>) {
        let Phase::Connecting(connecting) = &mut self.phase else { return };
        for Outbound { channel, .. } in std::mem::take(&mut connecting.deferred) {
            if let Some(index) = self.find(&channel, context.hub) {
                context.hub.release(self.subscriptions.swap_remove(index).channel);
            }
        }
    }

    /// Whether the home of this channel has not been asked yet for that reason; it is not asked any more then.
    pub(super) fn is_deferred(&mut self, channel: &str) -> bool {
        let Phase::Connecting(connecting) = &mut self.phase else { return false };
        let before = connecting.deferred.len();
        connecting.deferred.retain(|outbound| *outbound.channel != *channel);
        let dropped = before - connecting.deferred.len();
        connecting.awaited -= dropped;
        dropped > 0
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
                context.effects.requests.append(&mut connecting.deferred);
                self.finish_connect(context);
            }
        }
    }
}

/// The names and groups of a token, as they are asked for. None = the token names what cannot be.
pub(super) fn claims_of(
    names: Vec<EntryClaim>,
    groups: Vec<EntryClaim>,
    scopes: &Scopes,
) -> Option<Box<[Registration]>> {
    let entries = names.into_iter().map(|claim| (claim, false)).chain(groups.into_iter().map(|claim| (claim, true)));
    let read = |(claim, is_group): (EntryClaim, bool)| {
        let meta = claim.meta.map(|meta| data::take(&meta)).transpose().ok()?.unwrap_or_else(Bytes::new);
        let scope = scopes.find(&claim.scope).filter(|_| !directory::has_control(&claim.name))?;
        Some(Registration { scope, key: claim.name.into_boxed_str(), meta, is_group })
    };
    entries.map(read).collect()
}

/// Why the registry is refused to a client, where the configuration or its token says so.
fn cause_of(error: Error) -> Option<&'static str> {
    match error {
        Error::PERMISSION_DENIED => {
            Some("the registry's scope lacks the allow_ option for it, and the token's register does not name it")
        }
        Error::NO_SUCH_SCOPE => Some("the scope is not in registry.scopes"),
        Error::NOT_AVAILABLE => Some("there is no RPC of this name: registry.…, reply, inbox.ack and stats.track are"),
        _ => None,
    }
}

/// What the answer to an ask may be.
fn weight_of(ask: &DirectoryRequest) -> Weight {
    match ask {
        DirectoryRequest::Names(_)
        | DirectoryRequest::Groups(_)
        | DirectoryRequest::Members { .. }
        | DirectoryRequest::MemberPage { .. }
        | DirectoryRequest::Changes { .. }
        | DirectoryRequest::Presence { .. } => Weight::Large,
        DirectoryRequest::Call { .. } => Weight::Waiting,
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
