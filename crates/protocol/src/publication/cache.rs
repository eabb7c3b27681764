//! The encodings of one push that have been made. Each is made when the first client needs it.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::wire::Wire;

/// Encodings that have been made.
#[derive(Debug, Default)]
pub(super) struct EncodingCache(Mutex<Vec<(EncodingKey, Bytes)>>);

/// Which encoding of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EncodingKey {
    /// The whole push.
    Framed(Wire, PushKind),
    /// The push as JSON, its payload as text.
    Json(PushKind),
    /// The push as JSON, its payload as the notation of bytes.
    Bytes(PushKind),
    /// The publication alone as Protobuf.
    Object(PushKind),
}

/// What of its publication a push carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PushKind {
    Plain,
    Whole,
    /// The change to a publication with this payload. Its hash is not enough: if the key of a hash is known, a
    /// publisher can find two payloads that share a hash, and a subscriber would get the change to the wrong one.
    From(Bytes),
}

impl EncodingCache {
    pub(super) fn get(&self, form: EncodingKey, make: impl FnOnce() -> Bytes) -> Bytes {
        let found = |forms: &Vec<(EncodingKey, Bytes)>| {
            forms.iter().find(|(made, _)| *made == form).map(|(_, bytes)| bytes.clone())
        };
        if let Some(bytes) = found(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return bytes;
        }
        // Two shards may make the same one at a time: better than that one waits.
        let bytes = make();
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = found(&forms) {
            return bytes;
        }
        if forms.is_empty() {
            forms.reserve_exact(1);
        }
        forms.push((form, bytes.clone()));
        bytes
    }
}
