//! A cache for the encodings of one push. Each encoding is made when the first client needs it.

use bytes::Bytes;
use touchline_lock::Lock;

use crate::wire::Wire;

/// The encodings that have been made so far.
#[derive(Debug, Default)]
pub(super) struct EncodingCache(Lock<Vec<(EncodingKey, Bytes)>>);

/// Identifies one encoding of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EncodingKey {
    /// The whole push.
    Framed(Wire, PushKind),
    /// The push as JSON, with its payload as text.
    Json(PushKind),
    /// The push as JSON, with its payload as the notation of bytes.
    Bytes(PushKind),
    /// The publication alone as Protobuf, without the push around it.
    Object(PushKind),
}

/// Which form of its publication a push carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PushKind {
    Plain,
    Whole,
    /// The delta to a publication with this payload. A hash of the payload is not enough: a publisher that knows the
    /// hash key can find two payloads with the same hash. A subscriber would then get the delta to the wrong one.
    From(Bytes),
}

impl EncodingCache {
    pub(super) fn get(&self, form: EncodingKey, make: impl FnOnce() -> Bytes) -> Bytes {
        let found = |forms: &Vec<(EncodingKey, Bytes)>| {
            forms.iter().find(|(made, _)| *made == form).map(|(_, bytes)| bytes.clone())
        };
        if let Some(bytes) = found(&self.0.lock()) {
            return bytes;
        }
        // Two shards may make the same encoding at the same time. That is better than letting one wait.
        let bytes = make();
        let mut forms = self.0.lock();
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
