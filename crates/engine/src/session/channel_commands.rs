//! Commands about a channel. Publish and history go to the channel's home, presence goes to the directory.

use bytes::Bytes;
use touchline_protocol::Error;
use touchline_protocol::command::{HistoryCommand, PublishCommand};
use touchline_protocol::message::Reply;
use touchline_protocol::publication::Content;

use super::context::Context;
use super::counts::CommandMethod;
use super::refusal::NO_CHANNEL;
use super::rules::ChannelAction;
use super::state::Session;
use super::ticket::{ReplyKind, Ticket};
use super::weight::Weight;
use crate::directory::DirectoryRequest;
use crate::request::{ChannelRequest, ClientPosition, History, Publish, Response};

impl Session {
    pub(super) fn publish(&mut self, command: u32, request: PublishCommand<'_>, context: &mut Context<'_>) {
        let channel = &*request.channel;
        if channel.is_empty() {
            return context.refuse_input(NO_CHANNEL);
        }
        if request.kind != 0 || !request.key.is_empty() {
            return context.effects.refuse(command, Error::NOT_AVAILABLE);
        }
        match self.allowed_data(channel, &request, context) {
            Ok((data, Some(proxy))) => self.ask_publish(command, channel, proxy, data, context),
            Ok((data, None)) => {
                let content = self.content_of(channel, data, context);
                let publish = Publish { content, ..Publish::default() };
                let ticket = Ticket::Reply { command, method: CommandMethod::Publish, weight: Weight::Small };
                self.request(channel.into(), ticket, ChannelRequest::Publish(Box::new(publish)), context);
            }
            Err(error) => context.effects.refuse(command, error),
        }
    }

    /// The data of a publication that is permitted, or that the backend with this name has to decide about.
    fn allowed_data<'c>(
        &self,
        channel: &str,
        request: &PublishCommand<'_>,
        context: &mut Context<'c>,
    ) -> Result<(Bytes, Option<&'c str>), Error> {
        let Some(data) = request.data else { return context.bad("the publish has no data", channel) };
        let options = context.resolve(channel)?;
        let data = options.publication_data_format.payload(data)?;
        let is_asked = self.check(options, channel, ChannelAction::Publish, context)?;
        Ok((data, is_asked.then_some(options.publish_proxy_name.as_str())))
    }

    /// The content of a publication of this client.
    pub(super) fn content_of(&self, channel: &str, data: Bytes, context: &Context<'_>) -> Content {
        let subscription = self.find(channel, context.hub).map(|index| &self.subscriptions[index]);
        let chan_info = subscription.and_then(|s| s.extra.as_ref()).and_then(|extra| extra.chan_info.clone());
        Content { data, info: Some(self.info(chan_info)), ..Content::default() }
    }

    pub(super) fn presence(&mut self, command: u32, channel: &str, kind: ReplyKind, context: &mut Context<'_>) {
        if channel.is_empty() {
            return context.refuse_input(NO_CHANNEL);
        }
        let checked = context.resolve(channel).and_then(|options| {
            self.check(options, channel, ChannelAction::Presence, context)?;
            let is_too_much = kind == ReplyKind::Presence && context.room.is_scarce;
            if is_too_much { Err(Error::TOO_MANY_REQUESTS) } else { Ok(()) }
        });
        match checked {
            Ok(()) => {
                let channel: Box<str> = channel.into();
                let request = match kind {
                    ReplyKind::PresenceStats => DirectoryRequest::PresenceStats { channel },
                    _ => DirectoryRequest::Presence { channel, limit: context.node.client.presence_max_clients },
                };
                self.send_to_directory(command, kind, request, context);
            }
            Err(error) => context.effects.refuse(command, error),
        }
    }

    pub(super) fn history(&mut self, command: u32, request: HistoryCommand<'_>, context: &mut Context<'_>) {
        let channel = &*request.channel;
        if channel.is_empty() {
            return context.refuse_input(NO_CHANNEL);
        }
        let checked =
            context.resolve(channel).and_then(|options| self.check(options, channel, ChannelAction::History, context));
        if let Err(error) = checked {
            return context.effects.refuse(command, error);
        }
        let weight = if request.limit == 0 { Weight::Small } else { Weight::Large };
        if weight == Weight::Large && context.room.is_scarce {
            return context.effects.refuse(command, Error::TOO_MANY_REQUESTS);
        }
        let limit_max = context.node.client.history_max_publication_limit;
        let history = History {
            limit: Some(usize::try_from(request.limit).map_or(limit_max, |limit| limit.min(limit_max))),
            since: request.since.map(|since| ClientPosition { offset: since.offset, epoch: Box::from(&*since.epoch) }),
            reverse: request.reverse,
            size_max: Some(context.node.client.answer_max_size),
        };
        self.request(
            channel.into(),
            Ticket::Reply { command, method: CommandMethod::History, weight },
            ChannelRequest::History(Box::new(history)),
            context,
        );
    }
}

/// Writes the response of a home as the reply to a command.
pub(super) fn reply(command: u32, response: Response, context: &mut Context<'_>) {
    match response {
        Response::Published(_) => context.effects.messages.reply(command, &Reply::Publish),
        Response::History { publications, position } => {
            let (epoch, offset) = (position.epoch.as_str(), position.offset);
            context
                .effects
                .messages
                .reply(command, &Reply::History { publications: &publications, epoch, offset: offset.0 });
        }
        Response::Refused(error) => context.effects.refuse(command, error),
        Response::Subscribed(_) | Response::Done | Response::Directory(_) => {
            context.effects.refuse(command, Error::INTERNAL)
        }
    }
}
