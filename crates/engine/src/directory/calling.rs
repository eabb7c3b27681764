//! Messages and calls to names, and the replies to calls.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::Error;
use touchline_registry::OwnerId;

use super::calls::{CallError, CallOrigin, CallReply, FinishedCall};
use super::effect::DirectoryEffect;
use super::reply::{DirectoryReply, Listed};
use super::request::{Requester, Target};
use super::state::Directory;
use super::{answer, remote};
use crate::work::Work;

impl<A> Directory<A> {
    /// Sends a message to a name.
    pub(super) fn send(&mut self, requester: &Requester, target: &Target, data: &Bytes) -> Result<Vec<u8>, Error> {
        let entry = self.resolve(target)?;
        let message = answer::message(requester, &target.key, data);
        self.fits(message.len())?;
        self.effects.push(if *entry.node() == self.node {
            DirectoryEffect::Push(entry.owner(), message)
        } else {
            DirectoryEffect::Node(Arc::clone(entry.node()), remote::send(&[entry.owner()], &message))
        });
        Ok(answer::sent(1))
    }

    /// Checks whether `more` calls of a scope may wait. Returns how long they may wait, milliseconds.
    pub(super) fn check_call(
        &mut self,
        requester: &Requester,
        target: &Target,
        calls: usize,
        timeout_ms: u64,
    ) -> Result<u64, Error> {
        let (waiting, own) =
            (self.calls.len(), if requester.is_backend { 0 } else { self.calls.of_caller(requester.owner) });
        let options = &self.scope(target.scope)?.options;
        let fits = waiting + calls <= options.calls_limit
            && calls <= options.call_members_limit.max(1)
            && (requester.is_backend || own + calls <= options.client_calls_limit);
        fits.then_some(timeout_ms.min(options.call_timeout_max.as_millis() as u64)).ok_or(Error::TOO_MANY_CALLS)
    }

    /// Calls a name, and notes where the reply must be sent.
    pub(super) fn call(
        &mut self,
        requester: &Requester,
        target: &Target,
        data: &Bytes,
        timeout_ms: u64,
        asker: Option<A>,
        now_ms: u64,
    ) {
        let Some(asker) = asker else { return };
        let message = answer::message(requester, &target.key, data);
        let resolved = self.fits(message.len()).and_then(|()| self.resolve(target));
        let checked = resolved.and_then(|entry| Ok((self.check_call(requester, target, 1, timeout_ms)?, entry)));
        let (timeout_ms, entry) = match checked {
            Ok(checked) => checked,
            Err(error) => return self.effects.push(DirectoryEffect::Reply(asker, Err(error))),
        };
        let is_here = *entry.node() == self.node;
        let node = (!is_here).then(|| Arc::clone(entry.node()));
        let (by, until_ms) = ((!requester.is_backend).then_some(requester.owner), now_ms.saturating_add(timeout_ms));
        let call = self.calls.open(CallOrigin::Here(asker), by, entry.owner(), node, until_ms);
        self.effects.push(if is_here {
            DirectoryEffect::Call(entry.owner(), call, message.into())
        } else {
            DirectoryEffect::Node(Arc::clone(entry.node()), remote::call(&[entry.owner()], call, timeout_ms, &message))
        });
    }

    /// Handles a client's reply to a call: its data or its own error, both JSON.
    ///
    /// # Errors
    /// 107 if the reply does not fit into a message to another node, 4008 if no such call waits for this client.
    pub(super) fn handle_client_reply(
        &mut self,
        callee: OwnerId,
        call: u64,
        outcome: Result<Bytes, Bytes>,
    ) -> Result<(), Error> {
        let (Ok(json) | Err(json)) = &outcome;
        // Messages to clients are checked when they are written; entries are checked by their replica.
        self.fits(json.len())?;
        if !self.calls.is_awaited(call, callee) {
            return Err(Error::NO_SUCH_CALL);
        }
        let done = self.calls.finish(call, outcome.map_err(CallError::Client));
        self.finish_all(done);
        Ok(())
    }

    /// Sends the results of finished calls to their callers.
    pub(super) fn finish_all(&mut self, done: impl IntoIterator<Item = FinishedCall<A>>) {
        for done in done {
            self.effects.push(match done {
                FinishedCall::One(asker, reply) => {
                    DirectoryEffect::Reply(asker, answer::reply(reply).map(DirectoryReply::from))
                }
                FinishedCall::All(asker, replies) => {
                    let size = |reply: &CallReply| reply.as_ref().map_or(0, Bytes::len);
                    let bytes = replies.iter().map(|(_, reply)| size(reply)).sum();
                    let work = Work { items: replies.len(), copies: replies.len(), bytes };
                    DirectoryEffect::Reply(asker, Ok(DirectoryReply::list(Listed::Replies(replies), work)))
                }
                FinishedCall::Node(node, call, reply) => DirectoryEffect::Node(node, remote::reply(call, &reply)),
            });
        }
    }
}
