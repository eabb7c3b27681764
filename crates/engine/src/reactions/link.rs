//! The messages between the books of nodes, JSON.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::records::{Contributor, ReactionRecord};

/// The greatest size of the records in one message, bytes; one further record may follow.
const RECORDS_SIZE_MAX: usize = 128 * 1024;
/// The bytes of a record in addition to its channel, options and totals.
const RECORD_HEAD: usize = 96;

/// Error: the message or the row cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedReactions;

/// A message of another node's book.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkMessage {
    /// The node that sent the message.
    pub(super) from: Box<str>,
    #[serde(flatten)]
    pub(super) body: LinkBody,
}

/// The content of a message between books.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LinkBody {
    /// All records of a contributor that have changed after `since` up to `upto`.
    Delta { of: Contributor, since: u64, upto: u64, records: Vec<ReactionRecord> },
    /// What the sender knows about each contributor. `is_new`: it has just started, and wants to get the same from
    /// others.
    Known { known: BTreeMap<Contributor, Knowledge>, is_new: bool },
    /// The sender asks for the changes of contributors after these numbers.
    Ask(BTreeMap<Contributor, u64>),
}

/// What a book knows about a contributor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Knowledge {
    /// The last change that the book has seen; it may have missed earlier ones.
    #[serde(rename = "v")]
    pub(super) version: u64,
    /// A hash of the contributor's channels and counts. Two books with the same hash know the same.
    #[serde(rename = "h")]
    pub(super) digest: u64,
}

impl LinkMessage {
    pub(super) fn read(message: &[u8]) -> Result<Self, MalformedReactions> {
        serde_json::from_slice(message).map_err(|_| MalformedReactions)
    }

    /// The message as JSON; empty if it cannot be written. That never happens, because all keys of its maps are texts.
    pub(super) fn write(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// All records of a contributor after `since` up to `upto`, as messages that are not much larger than the limit. Each
/// message says where it begins and ends, so that a loss is noticed.
pub(super) fn deltas(
    of: &Contributor,
    since: u64,
    upto: u64,
    mut records: Vec<ReactionRecord>,
) -> impl Iterator<Item = LinkBody> {
    records.sort_by_key(|record| record.version);
    let mut bodies = Vec::new();
    let (mut part, mut size, mut begin) = (Vec::new(), 0, since);
    for record in records {
        size += size_of_record(&record);
        let version = record.version;
        part.push(record);
        if size >= RECORDS_SIZE_MAX {
            let records = std::mem::take(&mut part);
            bodies.push(LinkBody::Delta { of: of.clone(), since: begin, upto: version, records });
            (size, begin) = (0, version);
        }
    }
    bodies.push(LinkBody::Delta { of: of.clone(), since: begin, upto, records: part });
    bodies.into_iter()
}

fn size_of_record(record: &ReactionRecord) -> usize {
    let totals: usize = record.totals.keys().map(|option| option.len() + 24).sum();
    let opening = record.opening.as_ref();
    let options: usize = opening.into_iter().flat_map(|opening| &opening.options).map(|option| option.len() + 3).sum();
    RECORD_HEAD + record.channel.len() + totals + options
}

#[cfg(test)]
mod tests {
    use super::super::opening::{ReactionOpening, RoundId};
    use super::*;

    fn record(version: u64) -> ReactionRecord {
        ReactionRecord {
            channel: format!("match:{version}").into(),
            version,
            changed_ms: 5,
            opening: None,
            closed_ms: 0,
            is_published: false,
            is_begun: false,
            is_complete: false,
            totals: BTreeMap::from([("applause".into(), version)]),
        }
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let of = Contributor::new("n1", 255);
        assert_eq!(of.as_str(), "n1/00000000000000ff");
        let opening = ReactionOpening {
            round: RoundId { opened_ms: 9, opener: "n1".into() },
            options: ["a".into()].into(),
            rate: 3,
            closes_at_ms: 0,
        };
        let open = ReactionRecord { opening: Some(opening), closed_ms: 4, is_published: true, ..record(2) };
        let bodies = [
            LinkBody::Delta { of: of.clone(), since: 0, upto: 2, records: vec![record(1), open] },
            LinkBody::Known {
                known: BTreeMap::from([(of.clone(), Knowledge { version: 3, digest: 4 })]),
                is_new: true,
            },
            LinkBody::Ask(BTreeMap::from([(of, 3)])),
        ];
        for body in bodies {
            let message = LinkMessage { from: "n1".into(), body };
            assert_eq!(LinkMessage::read(&message.write()), Ok(message));
        }
        assert_eq!(LinkMessage::read(b"{}"), Err(MalformedReactions));
    }

    #[test]
    fn many_records_go_in_parts_that_join() {
        let records: Vec<_> = (1..=3_000).rev().map(record).collect();
        let of = Contributor::new("n1", 1);
        let (mut at, mut count) = (0, 0);
        for body in deltas(&of, 0, 3_100, records) {
            let message = LinkMessage { from: "n1".into(), body: body.clone() }.write();
            assert!(message.len() < RECORDS_SIZE_MAX + 4_096, "{}", message.len());
            let LinkBody::Delta { since, upto, records, .. } = body else { panic!("only records were asked for") };
            assert_eq!(since, at);
            assert!(records.iter().all(|record| record.version > since && record.version <= upto));
            (at, count) = (upto, count + records.len());
        }
        assert_eq!((at, count), (3_100, 3_000));
    }
}
