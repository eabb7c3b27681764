//! The simulated JetStream: streams with limits by subject, with republishing, and with the losses that happen to them.

use std::collections::BTreeMap;

use async_nats::datetime::DateTime;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::stream::Config;
use async_nats::{HeaderMap, Message};
use bytes::Bytes;

use super::nats::matches;
use crate::nats::StreamInfo;
use crate::subject::token;

/// The Unix time at which the day begins, milliseconds: nothing expires on that day.
const DAY_MS: u64 = 4_000_000_000_000;

/// A message of a stream.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) sequence: u64,
    pub(crate) subject: String,
    headers: HeaderMap,
    pub(crate) payload: Bytes,
    at_ms: u64,
}

impl Kept {
    fn message(&self) -> StreamMessage {
        let at_s = (DAY_MS + self.at_ms) / 1_000;
        let time = DateTime::from_unix_timestamp(at_s.cast_signed()).expect("a time");
        StreamMessage {
            subject: self.subject.as_str().into(),
            sequence: self.sequence,
            headers: self.headers.clone(),
            payload: self.payload.clone(),
            time,
        }
    }
}

pub(crate) struct KeptStream {
    config: Config,
    created_ns: i128,
    pub(crate) last: u64,
    kept: Vec<Kept>,
    /// The last sequence of each idempotency key.
    ids: BTreeMap<String, u64>,
    /// Everything that was stored in this stream and not lost.
    pub(crate) all: Vec<Kept>,
}

impl KeptStream {
    fn info(&self) -> StreamInfo {
        StreamInfo {
            config: self.config.clone(),
            created_ns: self.created_ns,
            first: self.kept.first().map_or(self.last + 1, |kept| kept.sequence),
            last: self.last,
            messages: self.kept.len() as u64,
            cluster: None,
        }
    }

    fn trim(&mut self, subject: &str) {
        let Ok(limit) = usize::try_from(self.config.max_messages_per_subject) else { return };
        let of = self.kept.iter().filter(|kept| kept.subject == subject).count();
        let mut many = of.saturating_sub(limit);
        self.kept.retain(|kept| {
            let is_removed = kept.subject == subject && many > 0;
            many -= usize::from(is_removed);
            !is_removed
        });
    }
}

/// All streams, and what is wrong with JetStream.
#[derive(Default)]
pub(crate) struct SimulatedStreams {
    pub(crate) streams: BTreeMap<String, KeptStream>,
    created: i128,
    pub(crate) republished: Vec<Message>,
    /// JetStream does not answer.
    pub(crate) is_away: bool,
    /// JetStream has no space: it refuses publications.
    pub(crate) is_full: bool,
    /// The percentage of replies that are lost after the request was executed.
    pub(crate) loses_replies: u64,
    /// The percentage of republished messages that arrive twice.
    pub(crate) doubles: u64,
    /// The namespace whose stream has no leader: nothing answers for it.
    pub(crate) unled: Option<&'static str>,
    /// The request that was executed last gets no reply.
    pub(super) is_silent: bool,
    /// Replicas lag behind their leader.
    pub(crate) lags: bool,
}

impl SimulatedStreams {
    pub(super) fn create(&mut self, config: Config) {
        self.created += 1;
        let created_ns = self.created;
        self.streams.entry(config.name.clone()).or_insert_with(|| KeptStream {
            config,
            created_ns,
            last: 0,
            kept: Vec::new(),
            ids: BTreeMap::new(),
            all: Vec::new(),
        });
    }

    pub(super) fn update(&mut self, config: Config) {
        if let Some(stream) = self.streams.get_mut(&config.name) {
            stream.config = config;
        }
    }

    fn is_unled(&self, name: &str) -> bool {
        self.unled.is_some_and(|namespace| name.ends_with(&token(namespace)))
    }

    pub(super) fn info(&mut self, name: &str) -> Option<StreamInfo> {
        self.is_silent |= self.is_unled(name);
        self.streams.get(name).map(KeptStream::info)
    }

    pub(super) fn append(
        &mut self,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
        at_ms: u64,
    ) -> Result<PublishAck, PublishErrorKind> {
        if self.is_full {
            return Err(PublishErrorKind::Other);
        }
        let found = self.streams.values_mut().find(|stream| matches(&stream.config.subjects[0], subject));
        let stream = found.ok_or(PublishErrorKind::StreamNotFound)?;
        let acknowledge = |sequence, duplicate| PublishAck {
            stream: String::new(),
            sequence,
            domain: String::new(),
            duplicate,
            value: None,
        };
        let before = stream.all.iter().rev().find(|kept| kept.subject == subject).map_or(0, |kept| kept.sequence);
        if let Some(expected) = headers.get(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE)
            && expected.as_str() != before.to_string()
        {
            return Err(PublishErrorKind::WrongLastSequence);
        }
        let id = headers.get(async_nats::header::NATS_MESSAGE_ID).map(|id| id.as_str().to_owned());
        if let Some(sequence) = id.as_ref().and_then(|id| stream.ids.get(id)) {
            return Ok(acknowledge(*sequence, true));
        }
        stream.last += 1;
        let sequence = stream.last;
        stream.ids.extend(id.map(|id| (id, sequence)));
        let kept = Kept { sequence, subject: subject.to_owned(), headers: headers.clone(), payload, at_ms };
        stream.kept.push(kept.clone());
        stream.all.push(kept.clone());
        stream.trim(subject);
        let republished = match &stream.config.republish {
            Some(to) => {
                let (from, to) = (to.source.trim_end_matches('>'), to.destination.trim_end_matches('>'));
                let mut headers = headers;
                headers.insert("Nats-Sequence", sequence.to_string().as_str());
                headers.insert("Nats-Last-Sequence", before.to_string().as_str());
                subject.strip_prefix(from).map(|rest| (format!("{to}{rest}"), headers))
            }
            // Clients that are subscribed to the subject of a bucket receive the message itself.
            None => Some((subject.to_owned(), headers)),
        };
        self.republished.extend(republished.map(|(subject, headers)| Message {
            subject: subject.into(),
            reply: None,
            length: kept.payload.len(),
            payload: kept.payload,
            headers: Some(headers),
            status: None,
            description: None,
        }));
        Ok(acknowledge(sequence, false))
    }

    fn kept(&self, name: &str) -> &[Kept] {
        self.streams.get(name).map_or(&[], |stream| &stream.kept)
    }

    /// The first message of a subject, without the last messages of the stream that a replica lacks.
    pub(super) fn first(&self, name: &str, subject: &str, from: u64, lag: u64) -> Option<StreamMessage> {
        let until = self.streams.get(name)?.last.saturating_sub(lag);
        let mut kept = self.kept(name).iter();
        let is_found =
            |kept: &&Kept| kept.sequence >= from && kept.sequence <= until && matches(subject, &kept.subject);
        kept.find(is_found).map(Kept::message)
    }

    pub(super) fn last(&self, name: &str, subject: &str) -> Option<StreamMessage> {
        self.kept(name).iter().rev().find(|kept| kept.subject == subject).map(Kept::message)
    }

    pub(super) fn at(&self, name: &str, sequence: u64) -> Option<StreamMessage> {
        self.kept(name).iter().find(|kept| kept.sequence == sequence).map(Kept::message)
    }

    pub(super) fn end_without(&self, name: &str, subject: &str) -> Option<u64> {
        let last = self.streams.get(name).map_or(0, |stream| stream.last);
        self.kept(name).iter().all(|kept| kept.subject != subject).then_some(last)
    }

    pub(super) fn after(&self, name: &str, from: u64) -> Vec<StreamMessage> {
        self.kept(name).iter().filter(|kept| kept.sequence > from).map(Kept::message).collect()
    }

    pub(super) fn purge(&mut self, name: &str, subject: &str, before: u64) {
        if let Some(stream) = self.streams.get_mut(name) {
            stream.kept.retain(|kept| kept.subject != subject || kept.sequence >= before);
        }
    }

    /// Loses the last messages of a stream: its server is restored to an earlier state.
    pub(crate) fn set_back(&mut self, name: &str, many: u64) {
        if let Some(stream) = self.streams.get_mut(name) {
            stream.last = stream.last.saturating_sub(many);
            let last = stream.last;
            stream.kept.retain(|kept| kept.sequence <= last);
            stream.all.retain(|kept| kept.sequence <= last);
            stream.ids.retain(|_, sequence| *sequence <= last);
        }
    }

    /// Loses all streams: their only server has stopped, and kept them in memory.
    pub(crate) fn forget(&mut self) {
        self.streams.clear();
    }
}
