//! What an answer of JetStream to a publication is worth. An acknowledgement without a sequence is none: a repeated
//! publication is answered so while the first one is still on its way to the other replicas, and may be lost with its
//! leader.

/// What is known of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppendVerdict {
    /// It is stored, once, under this sequence.
    Stored(u64),
    /// It may become so: sent again, it is stored once all the same.
    SendAgain,
    /// Whether it is stored is not known; an application that sends it again with the same key will know.
    Unknown,
}

/// What an acknowledged sequence says of a publication; none = there was an error, or no answer.
pub(crate) fn verdict(acknowledged: Option<u64>, has_id: bool) -> AppendVerdict {
    match acknowledged {
        Some(sequence @ 1..) => AppendVerdict::Stored(sequence),
        Some(0) if has_id => AppendVerdict::SendAgain,
        Some(0) | None => AppendVerdict::Unknown,
    }
}
