//! The names and numbers by which all crates speak of a channel: its name, its namespace, its offsets.
//!
//! They are types of their own so that no border takes one for another: a channel for its namespace, an offset for a
//! time.
//!
//! ```
//! use touchline_protocol::stream::{ChannelName, Offset};
//!
//! let channel = ChannelName::from("match:7");
//! assert_eq!(&*channel, "match:7");
//! assert_eq!(Offset(1).next(), Offset(2));
//! ```

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

/// How long the idempotency key of a publication is remembered, whichever log backend keeps the channel's log.
pub const IDEMPOTENCY_KEY_TTL: Duration = Duration::from_secs(300);

macro_rules! name {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                $name(name.into())
            }
        }

        impl From<String> for $name {
            fn from(name: String) -> Self {
                $name(name.into())
            }
        }

        impl From<Arc<str>> for $name {
            fn from(name: Arc<str>) -> Self {
                $name(name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name! {
    /// The full name of a channel, with its namespace. Clones share one text.
    ChannelName
}

name! {
    /// The name of a namespace; empty = the options of channels without a namespace. Clones share one text.
    NamespaceName
}

/// The number of a publication in its channel's log, from 1 on; 0 = before the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// Before the first publication.
    pub const START: Offset = Offset(0);
    /// Behind every publication.
    pub const END: Offset = Offset(u64::MAX);

    /// The offset behind this one; the highest one stays.
    #[must_use]
    pub fn next(self) -> Self {
        Offset(self.0.saturating_add(1))
    }

    /// The offset before this one; 0 stays.
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

/// A read of a channel's log from a log backend: what the backend is asked for, and what its answer repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LoadId {
    /// The answer holds the publications behind this offset.
    pub behind: Offset,
    /// The number of the load, from 1 on: of one shard's loads, a later one has a higher number.
    pub number: u64,
}

impl std::ops::Add<u64> for Offset {
    type Output = Offset;

    fn add(self, publications: u64) -> Offset {
        Offset(self.0.saturating_add(publications))
    }
}

/// A run of a log backend: a time in which it was not set back to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    /// Its number; a later run has a higher one.
    pub number: u64,
    /// Its id, 40 bits.
    pub id: u64,
}

/// Where a run begins in one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunStart {
    /// The number of the run.
    pub number: u64,
    /// The first offset that the run gave in the channel.
    pub first: Offset,
}

/// How much of its log a channel keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Publications, at most.
    pub size: usize,
    /// How long a publication is kept, milliseconds.
    pub ttl_ms: u64,
    /// How long the position of an empty, unused channel is kept, milliseconds.
    pub meta_ttl_ms: u64,
}
