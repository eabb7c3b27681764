//! Commands in their Protobuf form. Each is preceded by its length.

use std::borrow::Cow;

use super::types::{
    ChannelCommand, Command, CommandKind, ConnectCommand, HistoryCommand, PublishCommand, RefreshCommand, RpcCommand,
    SendCommand, Since, SubRefreshCommand, SubscribeCommand,
};
use crate::filter;
use crate::payload::RawPayload;
use crate::protobuf::{Malformed, fields, take_varint};
use crate::stream::Offset;

/// Removes the next command from the front of `input`. `None` = nothing is left.
pub(super) fn next<'a>(input: &mut &'a [u8]) -> Option<Result<Command<'a>, Malformed>> {
    if input.is_empty() {
        return None;
    }
    let mut take = || {
        let length = take_varint(input)?.ok_or(Malformed)?;
        let (message, rest) =
            input.split_at_checked(usize::try_from(length).map_err(|_| Malformed)?).ok_or(Malformed)?;
        *input = rest;
        command(message)
    };
    Some(take())
}

fn command(message: &[u8]) -> Result<Command<'_>, Malformed> {
    let mut command = Command::default();
    fields(message, |tag, value| {
        let operation = match tag {
            1 => {
                command.id = value.number()? as u32;
                return Ok(());
            }
            4 => CommandKind::Connect(connect(value.bytes()?)?),
            5 => CommandKind::Subscribe(subscribe(value.bytes()?)?),
            6 => CommandKind::Unsubscribe(channel(value.bytes()?)?),
            7 => CommandKind::Publish(publish(value.bytes()?)?),
            8 => CommandKind::Presence(channel(value.bytes()?)?),
            9 => CommandKind::PresenceStats(channel(value.bytes()?)?),
            10 => CommandKind::History(history(value.bytes()?)?),
            12 => CommandKind::Send(send(value.bytes()?)?),
            13 => CommandKind::Rpc(rpc(value.bytes()?)?),
            14 => CommandKind::Refresh(refresh(value.bytes()?)?),
            15 => CommandKind::SubRefresh(sub_refresh(value.bytes()?)?),
            _ => return Ok(()),
        };
        command.name(operation);
        Ok(())
    })?;
    Ok(command)
}

/// A payload field. Protobuf cannot distinguish an empty payload from an absent one, so both are `None`.
fn payload(bytes: &[u8]) -> Option<RawPayload<'_>> {
    Some(RawPayload::Bytes(bytes)).filter(|_| !bytes.is_empty())
}

fn connect(message: &[u8]) -> Result<ConnectCommand<'_>, Malformed> {
    let mut request = ConnectCommand::default();
    fields(message, |tag, value| {
        match tag {
            1 => request.token = Cow::Borrowed(value.text()?),
            2 => request.data = payload(value.bytes()?),
            3 => {
                let (mut key, mut subscription) = (Cow::default(), SubscribeCommand::default());
                fields(value.bytes()?, |tag, value| {
                    match tag {
                        1 => key = Cow::Borrowed(value.text()?),
                        2 => subscription = subscribe(value.bytes()?)?,
                        _ => {}
                    }
                    Ok(())
                })?;
                request.subs.insert(key, subscription);
            }
            4 => request.name = Cow::Borrowed(value.text()?),
            5 => request.version = Cow::Borrowed(value.text()?),
            6 => {
                let (mut name, mut text) = (String::new(), String::new());
                fields(value.bytes()?, |tag, value| {
                    match tag {
                        1 => name = value.text()?.to_owned(),
                        2 => text = value.text()?.to_owned(),
                        _ => {}
                    }
                    Ok(())
                })?;
                request.headers.insert(name, text);
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}

fn subscribe(message: &[u8]) -> Result<SubscribeCommand<'_>, Malformed> {
    let mut request = SubscribeCommand::default();
    fields(message, |tag, value| {
        match tag {
            1 => request.channel = Cow::Borrowed(value.text()?),
            2 => request.token = Cow::Borrowed(value.text()?),
            3 => request.recover = value.flag()?,
            6 => request.epoch = Cow::Borrowed(value.text()?),
            7 => request.offset = Offset(value.number()?),
            8 => request.data = payload(value.bytes()?),
            9 => request.positioned = value.flag()?,
            10 => request.recoverable = value.flag()?,
            11 => request.join_leave = value.flag()?,
            12 => request.delta = Cow::Borrowed(value.text()?),
            13 => request.tf = Some(Box::new(filter::decode(value.bytes()?)?)),
            14 => request.flag = value.number()? as i64,
            15 => request.kind = value.number()? as i32,
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}

fn send(message: &[u8]) -> Result<SendCommand<'_>, Malformed> {
    let mut request = SendCommand::default();
    fields(message, |tag, value| {
        if tag == 1 {
            request.data = payload(value.bytes()?);
        }
        Ok(())
    })?;
    Ok(request)
}

fn channel(message: &[u8]) -> Result<ChannelCommand<'_>, Malformed> {
    let mut request = ChannelCommand::default();
    fields(message, |tag, value| {
        if tag == 1 {
            request.channel = Cow::Borrowed(value.text()?);
        }
        Ok(())
    })?;
    Ok(request)
}

fn publish(message: &[u8]) -> Result<PublishCommand<'_>, Malformed> {
    let mut request = PublishCommand { data: Some(RawPayload::Bytes(&[])), ..PublishCommand::default() };
    fields(message, |tag, value| {
        match tag {
            1 => request.channel = Cow::Borrowed(value.text()?),
            2 => request.data = Some(RawPayload::Bytes(value.bytes()?)),
            3 => request.kind = value.number()? as i32,
            4 => request.key = Cow::Borrowed(value.text()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}

fn history(message: &[u8]) -> Result<HistoryCommand<'_>, Malformed> {
    let mut request = HistoryCommand::default();
    fields(message, |tag, value| {
        match tag {
            1 => request.channel = Cow::Borrowed(value.text()?),
            7 => request.limit = value.number()? as i32,
            8 => {
                let mut since = Since::default();
                fields(value.bytes()?, |tag, value| {
                    match tag {
                        1 => since.offset = Offset(value.number()?),
                        2 => since.epoch = Cow::Borrowed(value.text()?),
                        _ => {}
                    }
                    Ok(())
                })?;
                request.since = Some(since);
            }
            9 => request.reverse = value.flag()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}

fn rpc(message: &[u8]) -> Result<RpcCommand<'_>, Malformed> {
    let mut request = RpcCommand::default();
    fields(message, |tag, value| {
        match tag {
            1 => request.data = payload(value.bytes()?),
            2 => request.method = Cow::Borrowed(value.text()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}

fn refresh(message: &[u8]) -> Result<RefreshCommand<'_>, Malformed> {
    let mut request = RefreshCommand::default();
    fields(message, |tag, value| {
        if tag == 1 {
            request.token = Cow::Borrowed(value.text()?);
        }
        Ok(())
    })?;
    Ok(request)
}

fn sub_refresh(message: &[u8]) -> Result<SubRefreshCommand<'_>, Malformed> {
    let mut request = SubRefreshCommand::default();
    fields(message, |tag, value| {
        match tag {
            1 => request.channel = Cow::Borrowed(value.text()?),
            2 => request.token = Cow::Borrowed(value.text()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(request)
}
