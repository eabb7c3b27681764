//! What an answer of JetStream to a publication proves. An acknowledgement without a sequence proves nothing. JetStream
//! sends it for a repeated publication while the first one is still on its way to the other replicas. The first one may
//! be lost with its leader.

/// What is known about a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppendVerdict {
    /// It is stored exactly once, under this sequence.
    Stored(u64),
    /// It may become stored. If it is sent again, it is still stored only once.
    SendAgain,
    /// It is unknown whether it is stored. An application that sends it again with the same key will find out.
    Unknown,
}

/// What an acknowledged sequence proves about a publication. `None` = there was an error, or no answer.
pub(crate) fn verdict(acknowledged: Option<u64>, has_id: bool) -> AppendVerdict {
    match acknowledged {
        Some(sequence @ 1..) => AppendVerdict::Stored(sequence),
        Some(0) if has_id => AppendVerdict::SendAgain,
        Some(0) | None => AppendVerdict::Unknown,
    }
}
