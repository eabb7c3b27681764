//! A fact that all nodes of a cluster share, such as a ban: what a node knows of it, and the one codec of its value in
//! a bucket of NATS.
//!
//! A value in a bucket is a JSON object: `format`, `expires_at` (Unix seconds; 0 = never) and `value`, a JSON object of
//! its own. Members that this version does not know are passed over.
//!
//! ```
//! use touchline_protocol::fact::{Fact, FactKey};
//!
//! let key = FactKey { kind: "user_block".into(), name: "ann".into() };
//! let fact = Fact { key: key.clone(), value: "{}".into(), expires_s: 1_800_000_000 };
//! let bytes = fact.encode();
//! assert_eq!(bytes, br#"{"format":1,"expires_at":1800000000,"value":{}}"#);
//! assert_eq!(Fact::decode(key, &bytes), Ok(fact));
//! ```

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::data::is_plain_text;
use crate::encode::{self, ObjectWriter};

/// The format of values that this version writes, and the highest that it reads.
pub const FORMAT: u32 = 1;
/// The maximum age of a node's knowledge. A node that may lack a change older than this is cut off.
pub const AGE_MAX: Duration = Duration::from_secs(5);
/// The maximum length of a fact's name in bytes.
pub const NAME_LEN_MAX: usize = 1_024;

/// Whether a fact can be about this name. A node does not accept a client if no ban can name its user or its token's
/// id. The empty text means "nobody", and is not a name.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_LEN_MAX && is_plain_text(name)
}

/// The kind and the name that identify a fact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FactKey {
    /// The kind of the fact: letters, digits and `_`.
    pub kind: Box<str>,
    /// The subject of the fact, for example a user or a token id. At most [`NAME_LEN_MAX`] bytes.
    pub name: Box<str>,
}

/// A fact that all nodes share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The kind and name of the fact.
    pub key: FactKey,
    /// The content of the fact: a JSON object.
    pub value: Box<str>,
    /// When the fact expires, Unix seconds. 0 = it holds until it is removed.
    pub expires_s: u64,
}

/// A change of one fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactChange {
    /// The fact holds from now on, and replaces an earlier one of the same key.
    Put(Fact),
    /// A fact of this key no longer holds.
    Remove(FactKey),
}

/// What a backend of facts reports to its node. Revisions grow with each change of the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactsEvent {
    /// All facts up to a revision. The node discards what it knew before.
    Loaded {
        /// All facts. Expired ones may be among them.
        facts: Vec<Fact>,
        /// The revision up to which the facts are complete.
        revision: u64,
    },
    /// The changes since the last `Changed` or `Loaded` event, oldest first.
    Changed {
        /// The changed facts, oldest first.
        changes: Vec<FactChange>,
        /// The revision up to which the changes are complete.
        revision: u64,
    },
    /// A change that this node wrote. The backend reports it again among the other changes, unless the backend serves
    /// only one node.
    Written {
        /// The change that this node wrote.
        change: FactChange,
        /// The revision of the change.
        revision: u64,
    },
    /// The node cannot reach the backend, or its knowledge is older than [`AGE_MAX`]. It does not learn of other nodes'
    /// changes until the next load.
    CutOff,
    /// The node can reach the backend, but the backend cannot store facts. It may have stored some before: the facts
    /// are unknown until the next load.
    Unsupported,
}

/// A value that cannot be read because a newer version wrote it, or because it is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadableFact {
    /// The value's format. 0 = the value is damaged.
    pub format: u32,
}

impl fmt::Display for UnreadableFact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format {
            0 => f.write_str("a shared fact is damaged: write it again, or remove it"),
            format => write!(
                f,
                "a shared fact has format {format}, and this program reads {FORMAT}: a later version wrote it, run that"
            ),
        }
    }
}

impl std::error::Error for UnreadableFact {}

impl FactChange {
    /// The kind and name of the changed fact.
    pub fn key(&self) -> &FactKey {
        match self {
            FactChange::Put(fact) => &fact.key,
            FactChange::Remove(key) => key,
        }
    }
}

impl Fact {
    /// Encodes the value for a bucket.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.value.len() + 64);
        let mut object = ObjectWriter::open(&mut out);
        encode::number(object.key("format"), u64::from(FORMAT));
        encode::number(object.key("expires_at"), self.expires_s);
        object.raw("value", Some(self.value.as_bytes()));
        object.close();
        out
    }

    /// Decodes a value that a bucket stored under a key.
    ///
    /// # Errors
    /// Fails if a later version wrote the value, or the value is damaged.
    pub fn decode(key: FactKey, bytes: &[u8]) -> Result<Self, UnreadableFact> {
        #[derive(Deserialize)]
        struct Kept<'a> {
            format: u32,
            #[serde(default)]
            expires_at: u64,
            #[serde(borrow)]
            value: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let damaged = UnreadableFact { format: 0 };
        let head: Head = serde_json::from_slice(bytes).map_err(|_| damaged)?;
        if head.format > FORMAT {
            return Err(UnreadableFact { format: head.format });
        }
        let kept: Kept<'_> = serde_json::from_slice(bytes).map_err(|_| damaged)?;
        let value = kept.value.map(RawValue::get).filter(|value| value.starts_with('{')).ok_or(damaged)?;
        match kept.format {
            FORMAT => Ok(Fact { key, value: value.into(), expires_s: kept.expires_at }),
            _ => Err(damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> FactKey {
        FactKey { kind: "token_revoke".into(), name: "a \"b\"".into() }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for (value, expires_s) in [("{}", 0), (r#"{"issued_before":17}"#, u64::from(u32::MAX))] {
            let fact = Fact { key: key(), value: value.into(), expires_s };
            assert_eq!(Fact::decode(key(), &fact.encode()), Ok(fact));
        }
    }

    #[test]
    fn what_a_fact_cannot_be_about_is_no_name() {
        let (long, longer) = ("x".repeat(NAME_LEN_MAX), "x".repeat(NAME_LEN_MAX + 1));
        let names = ["ann", "a b", "ä", long.as_str(), "", "a\nb", "a\0", longer.as_str()];
        assert_eq!(names.map(is_name), [true, true, true, true, false, false, false, false]);
    }

    #[test]
    fn members_of_later_versions_are_passed_over_and_later_formats_are_refused() {
        let later = br#"{"format":1,"by":"console","value":{"why":"spam"}}"#;
        let fact = Fact { key: key(), value: r#"{"why":"spam"}"#.into(), expires_s: 0 };
        assert_eq!(Fact::decode(key(), later), Ok(fact));
        assert_eq!(Fact::decode(key(), br#"{"format":2,"value":[]}"#), Err(UnreadableFact { format: 2 }));
        for damaged in ["", "{}", "[]", r#"{"format":1}"#, r#"{"format":1,"value":7}"#, r#"{"format":0,"value":{}}"#] {
            assert_eq!(Fact::decode(key(), damaged.as_bytes()), Err(UnreadableFact { format: 0 }), "{damaged}");
        }
    }
}
