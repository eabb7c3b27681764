//! Encodes and decodes messages between nodes. The format is in `docs/internals/replication.md`.
//!
//! Numbers are LEB128; strings and blobs are preceded by their length. A message has the version, its kind, the
//! sender's node and incarnation, the sender's clock and policy, and then the content of the kind. Bytes after a known
//! body are fields of a later version, which this version may skip. A body that this version cannot read has another
//! version byte.

use std::sync::Arc;

use crate::clock::Stamp;
use crate::entry::FIXED;
use crate::event::Reason;
use crate::owners::OwnerId;
use crate::peer::Incarnation;
use crate::settings::ConflictPolicyKind;

/// The version byte of this format.
const VERSION: u8 = 1;
/// The maximum length of a node's name in bytes. The name is a part of subjects.
const NODE_LEN_MAX: usize = 255;
/// The maximum size of a message without operations and the sender's name, in bytes. It consists of two single bytes,
/// the policy and fourteen numbers.
pub(crate) const HEAD_ROOM: usize = 160;
// A number of 64 bits takes at most ten bytes.
const _: () = assert!(HEAD_ROOM >= 2 + 1 + 14 * 10);
/// The maximum size of an operation without key and metadata, in bytes. It consists of kind, rank, a length and the
/// fixed part of a record.
pub(crate) const ENTRY_OVERHEAD: usize = 48;
// Kind and rank are one byte each, and a length takes at most ten bytes.
const _: () = assert!(ENTRY_OVERHEAD >= 1 + 1 + 10 + FIXED);

/// The fields at the start of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageHead<'a> {
    pub(crate) node: &'a str,
    pub(crate) incarnation: Incarnation,
    /// The stamp of the sender's clock.
    pub(crate) stamp: Stamp,
    /// The conflict policy from the sender's own settings.
    pub(crate) policy: ConflictPolicyKind,
}

/// The content of a message, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageBody<'a> {
    /// Operations of the sender, from the number `first` on.
    Delta { first: u64, count: u64, operations: &'a [u8] },
    /// The regular report of the sender: the number of its last operation, a digest of its entries, its limits for keys
    /// and metadata, and the incarnations of other nodes whose entries it has ([`lives`]).
    Heartbeat { last: u64, digest: u64, entries: u64, limits: (u64, u64), lives: &'a [u8] },
    /// A request for operations from the number `first` on. 0 = a request for a snapshot, which repeats the `nonce`.
    Want { to: &'a str, incarnation: Incarnation, first: u64, nonce: u64 },
    /// One part of a snapshot that includes the operations up to `last`. Other nodes had purged the entries up to the
    /// stamp `doubt`.
    Snapshot { last: u64, doubt: Stamp, nonce: u64, part: u64, parts: u64, operations: &'a [u8] },
    /// The sender leaves the cluster.
    Goodbye,
    /// The sender has purged the receiver's incarnation `past`, or knows a later one. It accepts only an incarnation
    /// above `known`.
    Outdated { to: &'a str, past: Incarnation, known: Incarnation },
}

/// A change of an authority's entries.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReplicatedOperation<'a> {
    Claim {
        rank: u8,
        record: &'a [u8],
    },
    Unclaim {
        name: &'a str,
        reason: Reason,
    },
    Join {
        record: &'a [u8],
    },
    Leave {
        group: &'a str,
        owner: OwnerId,
        reason: Reason,
    },
    Close {
        owner: OwnerId,
        reason: Reason,
    },
    /// The authority's entries are no longer doubtful: all other nodes have applied the snapshot that marked them.
    Trust,
}

fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_incarnation(out: &mut Vec<u8>, incarnation: Incarnation) {
    put_number(out, incarnation.order);
    put_number(out, incarnation.birth);
}

/// Appends the incarnation of another node to the content of a heartbeat.
pub(crate) fn put_life(out: &mut Vec<u8>, node: &str, incarnation: Incarnation) {
    put_bytes(out, node.as_bytes());
    put_incarnation(out, incarnation);
}

/// Reads the incarnations of other nodes in a heartbeat.
pub(crate) fn lives(bytes: &[u8]) -> impl Iterator<Item = (&str, Incarnation)> {
    let mut reader = MessageReader(bytes);
    std::iter::from_fn(move || Some((reader.text()?, reader.incarnation()?)))
}

/// Encodes a whole message.
pub(crate) fn encode(head: MessageHead<'_>, body: MessageBody<'_>) -> Arc<[u8]> {
    let mut out = Vec::with_capacity(64);
    let kind = match body {
        MessageBody::Delta { .. } => 1,
        MessageBody::Heartbeat { .. } => 2,
        MessageBody::Want { .. } => 3,
        MessageBody::Snapshot { .. } => 4,
        MessageBody::Goodbye => 5,
        MessageBody::Outdated { .. } => 6,
    };
    out.extend_from_slice(&[VERSION, kind]);
    put_bytes(&mut out, head.node.as_bytes());
    put_incarnation(&mut out, head.incarnation);
    put_number(&mut out, head.stamp.0);
    out.push(head.policy.strictness());
    match body {
        MessageBody::Delta { first, count, operations } => {
            put_number(&mut out, first);
            put_number(&mut out, count);
            out.extend_from_slice(operations);
        }
        MessageBody::Heartbeat { last, digest, entries, limits: (key_max, meta_max), lives } => {
            for number in [last, digest, entries, key_max, meta_max] {
                put_number(&mut out, number);
            }
            put_bytes(&mut out, lives);
        }
        MessageBody::Want { to, incarnation, first, nonce } => {
            put_bytes(&mut out, to.as_bytes());
            put_incarnation(&mut out, incarnation);
            put_number(&mut out, first);
            put_number(&mut out, nonce);
        }
        MessageBody::Snapshot { last, doubt, nonce, part, parts, operations } => {
            put_number(&mut out, last);
            put_number(&mut out, doubt.0);
            put_number(&mut out, nonce);
            put_number(&mut out, part);
            put_number(&mut out, parts);
            out.extend_from_slice(operations);
        }
        MessageBody::Goodbye => {}
        MessageBody::Outdated { to, past, known } => {
            put_bytes(&mut out, to.as_bytes());
            put_incarnation(&mut out, past);
            put_incarnation(&mut out, known);
        }
    }
    out.into()
}

/// Appends one operation.
pub(crate) fn put_operation(out: &mut Vec<u8>, operation: ReplicatedOperation<'_>) {
    match operation {
        ReplicatedOperation::Claim { rank, record } => {
            out.extend_from_slice(&[1, rank]);
            put_bytes(out, record);
        }
        ReplicatedOperation::Unclaim { name, reason } => {
            out.push(2);
            put_bytes(out, name.as_bytes());
            out.push(reason as u8);
        }
        ReplicatedOperation::Join { record } => {
            out.push(3);
            put_bytes(out, record);
        }
        ReplicatedOperation::Leave { group, owner, reason } => {
            out.push(4);
            put_bytes(out, group.as_bytes());
            out.extend_from_slice(&owner.0);
            out.push(reason as u8);
        }
        ReplicatedOperation::Close { owner, reason } => {
            out.push(5);
            out.extend_from_slice(&owner.0);
            out.push(reason as u8);
        }
        ReplicatedOperation::Trust => out.push(6),
    }
}

/// Reads the output of the functions above. `None` = the bytes are not valid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn owner(&mut self) -> Option<OwnerId> {
        let (id, rest) = self.0.split_first_chunk::<16>()?;
        self.0 = rest;
        Some(OwnerId(*id))
    }

    fn incarnation(&mut self) -> Option<Incarnation> {
        Some(Incarnation { order: self.number()?, birth: self.number()? })
    }

    fn operation(&mut self) -> Option<ReplicatedOperation<'a>> {
        Some(match self.byte()? {
            1 => ReplicatedOperation::Claim { rank: self.byte()?, record: self.bytes()? },
            2 => ReplicatedOperation::Unclaim { name: self.text()?, reason: Reason::from_byte(self.byte()?)? },
            3 => ReplicatedOperation::Join { record: self.bytes()? },
            4 => ReplicatedOperation::Leave {
                group: self.text()?,
                owner: self.owner()?,
                reason: Reason::from_byte(self.byte()?)?,
            },
            5 => ReplicatedOperation::Close { owner: self.owner()?, reason: Reason::from_byte(self.byte()?)? },
            6 => ReplicatedOperation::Trust,
            _ => return None,
        })
    }
}

/// Reads the operations of a message one by one. `Err` = the bytes are not an operation.
pub(crate) fn operations(bytes: &[u8]) -> impl Iterator<Item = Result<ReplicatedOperation<'_>, ()>> {
    let mut reader = MessageReader(bytes);
    std::iter::from_fn(move || {
        if reader.0.is_empty() {
            return None;
        }
        let read = reader.operation().ok_or(());
        if read.is_err() {
            reader.0 = &[];
        }
        Some(read)
    })
}

/// Decodes a message. `None` = it is not a registry message, or this version does not support its version.
pub(crate) fn decode(bytes: &[u8]) -> Option<(MessageHead<'_>, MessageBody<'_>)> {
    let mut reader = MessageReader(bytes);
    if reader.byte()? != VERSION {
        return None;
    }
    let kind = reader.byte()?;
    let head = MessageHead {
        node: reader.text().filter(|node| node.len() <= NODE_LEN_MAX)?,
        incarnation: reader.incarnation()?,
        stamp: Stamp(reader.number()?),
        policy: ConflictPolicyKind::from_strictness(reader.byte()?)?,
    };
    let body = match kind {
        1 => MessageBody::Delta { first: reader.number()?, count: reader.number()?, operations: reader.0 },
        2 => MessageBody::Heartbeat {
            last: reader.number()?,
            digest: reader.number()?,
            entries: reader.number()?,
            limits: (reader.number()?, reader.number()?),
            lives: reader.bytes()?,
        },
        3 => MessageBody::Want {
            to: reader.text()?,
            incarnation: reader.incarnation()?,
            first: reader.number()?,
            nonce: reader.number()?,
        },
        4 => MessageBody::Snapshot {
            last: reader.number()?,
            doubt: Stamp(reader.number()?),
            nonce: reader.number()?,
            part: reader.number()?,
            parts: reader.number()?,
            operations: reader.0,
        },
        5 => MessageBody::Goodbye,
        6 => MessageBody::Outdated { to: reader.text()?, past: reader.incarnation()?, known: reader.incarnation()? },
        _ => return None,
    };
    Some((head, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            node in ".{0,20}",
            incarnation: u64,
            stamp: u64,
            first: u64,
            count: u64,
            digest: u64,
        ) {
            let life = Incarnation { order: incarnation, birth: digest };
            let policy = ConflictPolicyKind::Oldest;
            let head = MessageHead { node: &node, incarnation: life, stamp: Stamp(stamp), policy };
            let mut lives = Vec::new();
            put_life(&mut lives, &node, life);
            put_life(&mut lives, "other", life);
            prop_assert_eq!(self::lives(&lives).collect::<Vec<_>>(), [(&*node, life), ("other", life)]);
            let doubt = Stamp(stamp);
            let bodies = [
                MessageBody::Delta { first, count, operations: b"abc" },
                MessageBody::Heartbeat { last: first, digest, entries: count, limits: (stamp, 0), lives: &lives },
                MessageBody::Want { to: &node, incarnation: life, first, nonce: digest },
                MessageBody::Snapshot { last: first, doubt, nonce: count, part: 1, parts: count, operations: b"" },
                MessageBody::Goodbye,
                MessageBody::Outdated { to: &node, past: life, known: life },
            ];
            for body in bodies {
                let written = encode(head, body);
                prop_assert_eq!(decode(&written), Some((head, body)));
                if !matches!(body, MessageBody::Delta { .. } | MessageBody::Snapshot { .. }) {
                    let later = [&*written, b"a field of a later version"].concat();
                    prop_assert_eq!(decode(&later), Some((head, body)), "what is behind is skipped");
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some((_, body)) = decode(&bytes)
                && let MessageBody::Delta { operations: all, .. } | MessageBody::Snapshot { operations: all, .. } = body
            {
                let _ = operations(all).count();
            }
            let _ = operations(&bytes).count();
        }
    }
}
