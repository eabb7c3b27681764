//! The offsets of publications in a channel's log.

use std::fmt;

use serde::Deserialize;

/// The number of a publication in its channel's log, from 1 on. 0 = before the first publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// The offset before the first publication.
    pub const START: Offset = Offset(0);
    /// The offset after every publication.
    pub const END: Offset = Offset(u64::MAX);

    /// The next offset. The highest offset stays the same.
    #[must_use]
    pub fn next(self) -> Self {
        Offset(self.0.saturating_add(1))
    }

    /// The previous offset. 0 stays 0.
    #[must_use]
    pub fn previous(self) -> Self {
        Offset(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::ops::Add<u64> for Offset {
    type Output = Offset;

    fn add(self, publications: u64) -> Offset {
        Offset(self.0.saturating_add(publications))
    }
}
