//! What a home does without a log backend: requests to channels whose log is in memory, or whose cache is up to date.

use std::sync::Arc;

use touchline_protocol::publication::LogPosition;
use touchline_protocol::stream::{ChannelName, Offset, StreamPosition};
use touchline_protocol::{Error, Publication};

use super::delivery::deliver_publication;
use super::table::{Channels, EXPIRY_STEP_MS};
use crate::namespace::ChannelOptions;
use crate::request::{ChannelRequest, History, Publish, Response};

impl Channels {
    /// Executes a request. The caller sends the response to the requester first, then the [`Channels::deliveries`] to
    /// the shards.
    pub fn execute(&mut self, channel: &ChannelName, request: ChannelRequest, now_ms: u64) -> Response {
        let namespaces = Arc::clone(&self.namespaces);
        let options = match namespaces.resolve(channel) {
            Ok(options) => options,
            Err(error) => return self.refuse(channel, &request, error, now_ms),
        };
        match request {
            ChannelRequest::Subscribe(subscribe) => self.subscribe(channel, options, *subscribe, now_ms),
            // The refusal was sent, but the session had not received it when the client unsubscribed.
            ChannelRequest::Unsubscribe { connection, is_answered: false }
                if self.backends.refused.take(connection, channel) =>
            {
                Response::Done
            }
            ChannelRequest::Unsubscribe { connection, .. } => self.unsubscribe(channel, connection, now_ms),
            ChannelRequest::Announce(push) => self.announce(channel, push),
            ChannelRequest::Publish(publish) => self.publish(channel, options, *publish, now_ms),
            ChannelRequest::History(_) | ChannelRequest::HistoryRemove if !options.has_history() => {
                Response::Refused(Error::NOT_AVAILABLE)
            }
            ChannelRequest::History(history) => self.history(channel, options, &history, now_ms),
            ChannelRequest::HistoryRemove => self.history_remove(channel),
        }
    }

    /// Refuses a request to a channel whose namespace is unknown. If the namespace existed before, its subscribers
    /// leave.
    pub(super) fn refuse(
        &mut self,
        channel: &ChannelName,
        request: &ChannelRequest,
        error: Error,
        now_ms: u64,
    ) -> Response {
        match request {
            ChannelRequest::Unsubscribe { connection, is_answered }
                if *is_answered || !self.backends.refused.take(*connection, channel) =>
            {
                self.unsubscribe(channel, *connection, now_ms)
            }
            ChannelRequest::Subscribe(subscribe) => {
                self.note_refused(subscribe.connection, channel, now_ms);
                Response::Refused(error)
            }
            _ => Response::Refused(error),
        }
    }

    fn publish(&mut self, name: &ChannelName, options: &ChannelOptions, mut publish: Publish, now_ms: u64) -> Response {
        // A repetition stores nothing, so it makes no room either.
        let key = std::mem::take(&mut publish.idempotency_key);
        if !key.is_empty()
            && let Some(result) = self.idempotency.get(name, &key, now_ms)
        {
            self.is_repetition = true;
            return Response::Published(result);
        }
        if options.has_history()
            && !publish.skip_history
            && let Err(error) = self.make_room(name)
        {
            return Response::Refused(error);
        }
        let position = if options.has_history() && !publish.skip_history {
            self.publish_stored(name, options, publish, now_ms)
        } else {
            if let Some(channel) = self.table.get_mut(name) {
                let publication = Publication::encode(name, &publish.content, None).excluding(publish.exclusion);
                deliver_publication(&mut self.outgoing, channel, Arc::new(publication));
            }
            StreamPosition::default()
        };
        let position = (!position.epoch.as_str().is_empty()).then_some(position);
        if !key.is_empty() {
            self.idempotency.put(name, key, position, now_ms);
        }
        Response::Published(position)
    }

    fn publish_stored(
        &mut self,
        name: &ChannelName,
        options: &ChannelOptions,
        publish: Publish,
        now_ms: u64,
    ) -> StreamPosition {
        self.channel(name, options, now_ms);
        let Some(channel) = self.table.get_mut(name) else { return Default::default() };
        let Some(log) = &mut channel.log else { return Default::default() };
        if publish.version > 0 {
            if log.version_epoch == publish.version_epoch && publish.version <= log.version {
                self.is_repetition = true;
                return log.ring.position();
            }
            log.version = publish.version;
            log.version_epoch = publish.version_epoch;
        }
        let epoch = log.ring.position().epoch;
        let place = LogPosition { offset: log.ring.next_offset(), epoch: epoch.as_str(), time_ms: now_ms };
        let publication = Publication::encode(name, &publish.content, Some(place)).excluding(publish.exclusion);
        let publication = Arc::new(publication);
        log.ring.trim(now_ms);
        log.ring.append(Arc::clone(&publication), log.retention.size, now_ms.saturating_add(log.retention.ttl_ms));
        log.forgotten_ms = now_ms.saturating_add(log.retention.meta_ttl_ms);
        log.schedule_expiry(name, now_ms + EXPIRY_STEP_MS, &mut self.expiries);
        let position = log.ring.position();
        deliver_publication(&mut self.outgoing, channel, publication);
        position
    }

    fn history(&mut self, name: &ChannelName, options: &ChannelOptions, history: &History, now_ms: u64) -> Response {
        if let Err(error) = self.make_room(name) {
            return Response::Refused(error);
        }
        let response = self.read_history(name, options, history, now_ms);
        self.keep_or_forget(name, now_ms);
        response
    }

    fn read_history(
        &mut self,
        name: &ChannelName,
        options: &ChannelOptions,
        history: &History,
        now_ms: u64,
    ) -> Response {
        let channel = self.channel(name, options, now_ms);
        let Some(log) = &mut channel.log else { return Response::Refused(Error::NOT_AVAILABLE) };
        log.ring.trim(now_ms);
        let position = log.ring.position();
        let since = history.since.as_ref().map(|since| since.offset);
        if history.since.as_ref().is_some_and(|since| !log.ring.can_read(since.offset, &since.epoch, history.reverse)) {
            return Response::Refused(Error::UNRECOVERABLE_POSITION);
        }
        if history.reverse && since == Some(Offset::START) {
            return Response::Refused(Error::BAD_REQUEST);
        }
        let mut publications = log.ring.read(
            since,
            history.reverse,
            history.limit.unwrap_or(usize::MAX),
            history.size_max.unwrap_or(usize::MAX),
        );
        publications.retain(|publication| !publication.is_expired(now_ms));
        Response::History { publications, position }
    }

    fn history_remove(&mut self, name: &ChannelName) -> Response {
        if let Some(log) = self.table.get_mut(name).and_then(|channel| channel.log.as_mut()) {
            log.ring.clear();
        }
        Response::Done
    }
}
