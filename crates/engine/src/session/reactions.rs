//! Reactions of a client: they are checked and counted on its shard, and no other shard is involved.

use touchline_protocol::command::{RpcCommand, SendCommand};
use touchline_protocol::message::Reply;
use touchline_protocol::payload::RawPayload;
use touchline_protocol::{Disconnect, Error, Publication};

use super::context::Context;
use super::state::Session;
use super::ticket::Ticket;
use crate::hub::DeliveryForm;
use crate::reactions::{ReactionRate, ReactionRefusal, ReactionRequest};

impl Session {
    /// Counts a reaction and replies to it.
    pub(super) fn rpc_reaction(&mut self, command: u32, rpc: &RpcCommand<'_>, context: &mut Context<'_>) {
        let request = rpc.data.map(RawPayload::text).and_then(ReactionRequest::read);
        match self.react(request.as_ref(), context) {
            Ok(()) => context.effects.messages.reply(command, &Reply::Rpc(b"{}")),
            Err(why) => {
                let (error, cause) = error_of(why);
                if let Some(cause) = cause {
                    context.because(cause, request.as_ref().map_or("", |request| &request.channel));
                }
                context.effects.refuse(command, error);
            }
        }
    }

    /// Counts a reaction that gets no reply. Only reactions can be sent without a reply.
    pub(super) fn sent(&mut self, send: &SendCommand<'_>, context: &mut Context<'_>) {
        match send.data.map(RawPayload::text).and_then(ReactionRequest::read_sent) {
            // A refusal is counted, but there is no reply that could report it.
            Some(request) => drop(self.react(request.as_ref(), context)),
            None => context.disconnect(Disconnect::NOT_AVAILABLE),
        }
    }

    /// Counts the reaction of a client that sends it by HTTP: a [`ReactionRequest`], JSON.
    pub fn receive_reaction(&mut self, request: &[u8], context: &mut Context<'_>) {
        if self.is_connected() {
            let request = std::str::from_utf8(request).ok().and_then(ReactionRequest::read);
            let _ = self.react(request.as_ref(), context);
        }
    }

    /// The form in which the subscriber of a ticket gets the reactions that its home's response contains; `None` = it
    /// gets none.
    pub fn reaction_form(&self, ticket: Ticket, reactions: &Publication) -> Option<DeliveryForm> {
        let serial = match ticket {
            Ticket::Subscribe { serial, .. } | Ticket::Connect { serial } | Ticket::Server { serial } => serial,
            Ticket::Reply { .. } | Ticket::Directory { .. } | Ticket::Registrations => return None,
        };
        let subscription = &self.subscriptions[self.subscriptions.find_serial(serial)?];
        let fits = subscription.filter().is_none_or(|filter| filter.fits(&reactions.tags()));
        let form = if subscription.is_delta { DeliveryForm::Whole } else { DeliveryForm::Plain };
        (fits && subscription.membership.is_some()).then_some(form)
    }

    /// Counts a reaction; `None` = the reaction was malformed.
    fn react(
        &mut self,
        request: Option<&ReactionRequest<'_>>,
        context: &mut Context<'_>,
    ) -> Result<(), ReactionRefusal> {
        let outcome = request.ok_or(ReactionRefusal::Invalid).and_then(|request| self.try_react(request, context));
        if let Err(why) = outcome {
            context.reactions.refuse(why);
        }
        outcome
    }

    fn try_react(&mut self, request: &ReactionRequest<'_>, context: &mut Context<'_>) -> Result<(), ReactionRefusal> {
        let subscription = self.find(&request.channel, context.hub).map(|index| &self.subscriptions[index]);
        // The subscription may still be under way: it was permitted.
        let channel = subscription.ok_or(ReactionRefusal::NotSubscribed)?.channel;
        let open = context.reactions.open(&request.channel, context.now_ms)?;
        let option = open.find(&request.option).ok_or(ReactionRefusal::Invalid)?;
        if request.n > ReactionRate::burst(open.rate) {
            return Err(ReactionRefusal::Invalid);
        }
        let rate = &mut self.rare.get_or_insert_default().reactions;
        if !rate.take(request.n, open.rate, context.now_us) {
            return Err(ReactionRefusal::Rate);
        }
        context.reactions.add(context.hub.name(channel), open, option, request.n.into())
    }
}

/// The error of a refusal, and its cause if the client or the configuration is responsible.
fn error_of(why: ReactionRefusal) -> (Error, Option<&'static str>) {
    match why {
        ReactionRefusal::Invalid => (
            Error::BAD_REQUEST,
            Some("a reaction needs a channel, one of its options, and n from 1 to 100, at most 5 s of reactions_rate"),
        ),
        ReactionRefusal::NotSubscribed => {
            (Error::PERMISSION_DENIED, Some("only subscribers of the channel may react in it"))
        }
        ReactionRefusal::NotOpen => (
            Error::NOT_AVAILABLE,
            Some("the namespace has no reactions, and the server API has opened none in the channel"),
        ),
        ReactionRefusal::Closed => (Error::REACTIONS_CLOSED, Some("the reactions of the channel are closed")),
        ReactionRefusal::Rate => (Error::TOO_MANY_REQUESTS, None),
        ReactionRefusal::Limit => (Error::LIMIT_EXCEEDED, Some("reactions.channel_limit is reached")),
    }
}
