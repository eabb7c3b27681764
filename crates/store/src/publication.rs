//! The publications of durable channels, in the forms for appending and for reading.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::data::checked_payload;
use touchline_protocol::notation::base64_of;
use touchline_protocol::stored::{StoredPayload, decode, encode_publication, exclusion};
use touchline_protocol::stream::{ChannelName, Epoch, Offset, Retention, Runs, StreamPosition};

use crate::refusal::StoreRefusal;

/// A callback for the result of an append.
pub type OnAppended = Box<dyn FnOnce(Result<StreamPosition, StoreRefusal>) + Send>;
/// A publication to store.
pub struct Append {
    /// The channel of the publication.
    pub channel: ChannelName,
    /// A publication in the encoding of [`touchline_protocol::stored`]. Only its JSON object is stored;
    /// [`crate::StoreEvent::Appended`] returns the payload unchanged. Anything else is refused as
    /// [`StoreRefusal::Invalid`].
    pub payload: Bytes,
    /// When the publication was published, Unix milliseconds.
    pub time_ms: u64,
    /// The idempotency key. The same key within five minutes returns the first position and stores nothing. Empty = no
    /// key.
    pub key: Box<str>,
    /// The application's version of the data. A version at or below the channel's version stores nothing. 0 = no
    /// version.
    pub version: u64,
    /// The application's epoch of `version`. Versions are compared only within one epoch.
    pub version_epoch: Box<str>,
    /// How much of its log the channel keeps.
    pub retention: Retention,
    /// Called once the publication is on disk, or was refused.
    pub done: OnAppended,
}

/// The longest duration, milliseconds. Longer ones are cut to it, because the databases add durations to times in 63
/// bits.
pub(crate) const DURATION_MAX_MS: u64 = i64::MAX as u64 / 4;

/// Normalizes the notation of bytes in a publication of the outbox, because the database writes white space into JSON.
fn spelled(object: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct OutboxObject<'a> {
        #[serde(borrow)]
        data: &'a RawValue,
        #[serde(borrow)]
        tags: Option<&'a RawValue>,
    }
    if !object.starts_with("{\"data\":{\"$b64\"") {
        return Cow::Borrowed(object);
    }
    let Ok(OutboxObject { data, tags }) = serde_json::from_str(object) else { return Cow::Borrowed(object) };
    let Some(data) = checked_payload(data).ok().filter(|data| base64_of(data).is_some()) else {
        return Cow::Borrowed(object);
    };
    let tags = tags.map_or_else(String::new, |tags| format!(",\"tags\":{tags}"));
    format!("{{\"data\":{}{tags}}}", String::from_utf8_lossy(&data)).into()
}

impl Append {
    /// Creates the append of a publication that an application has put into the outbox. Its result is not awaited.
    pub(crate) fn from_outbox(channel: &str, data: &str, key: &str, retention: Retention, time_ms: u64) -> Self {
        let data = spelled(data);
        let payload = encode_publication(time_ms, data.len(), |out| out.extend_from_slice(data.as_bytes()));
        Append {
            channel: channel.into(),
            payload: payload.into(),
            time_ms,
            key: key.into(),
            version: 0,
            version_epoch: Box::default(),
            retention,
            done: Box::new(|_| ()),
        }
    }

    /// The publication as a JSON object, which a row contains. `None` = the payload is not a publication.
    pub(crate) fn checked_object(&self) -> Option<&[u8]> {
        match decode(&self.payload) {
            Ok(StoredPayload::Publication { object, .. }) => Some(object),
            Ok(StoredPayload::Clear(_)) | Err(_) => None,
        }
    }

    /// The object of an append that was already checked, with the exclusion as its last member, because a row has no
    /// head.
    pub(crate) fn object(&self) -> Cow<'_, [u8]> {
        let object = self.checked_object().unwrap_or_default();
        exclusion(&self.payload).map_or(Cow::Borrowed(object), |left_out| Cow::Owned(left_out.put_into(object)))
    }
}

/// A publication that the store keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptPublication {
    /// The offset of the publication.
    pub offset: Offset,
    /// When it was published, Unix milliseconds.
    pub time_ms: u64,
    /// The publication as a JSON object. If it has an exclusion, that is its last member
    /// ([`touchline_protocol::publication::Exclusion::take_from`]).
    pub object: Bytes,
}

/// The stored history of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHistory {
    /// The channel's epoch in the current run.
    pub epoch: Epoch,
    /// The channel's last offset. 0 = nothing was ever published.
    pub top: Offset,
    /// `kept` contains every publication after this offset.
    pub floor: Offset,
    /// The stored publications, oldest first.
    pub kept: Vec<KeptPublication>,
    /// The runs of the database that assigned the channel's offsets.
    pub runs: Runs,
}

impl StoredHistory {
    /// Drops the publications before a gap, because a history must not have gaps.
    pub(crate) fn whole(mut self) -> Self {
        let expected = (1..=self.top.0).rev();
        let whole =
            self.kept.iter().rev().zip(expected).take_while(|(kept, expected)| kept.offset.0 == *expected).count();
        if (whole as u64) < self.top.0.saturating_sub(self.floor.0) {
            self.kept.drain(..self.kept.len() - whole);
            self.floor = Offset(self.top.0 - whole as u64);
        }
        self
    }
}
