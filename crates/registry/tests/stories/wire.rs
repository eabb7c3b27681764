//! The wire format of `docs/internals/replication.md`, written and read a second time: according to that page, and not
//! with the crate's own code.

use touchline_registry::OwnerId;

/// The order and the birth number of a node's life.
pub(crate) type Life = (u64, u64);

/// The content of a message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    Delta { first: u64, count: u64, operations: Vec<u8> },
    Heartbeat { last: u64, digest: u64, entries: u64, limits: (u64, u64), lives: Vec<(String, Life)> },
    Want { to: String, life: Life, first: u64, nonce: u64 },
    Snapshot { last: u64, doubt: u64, nonce: u64, part: u64, parts: u64, operations: Vec<u8> },
    Goodbye,
    Outdated { to: String, past: Life, known: Life },
}

/// A whole message with its head.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) node: String,
    pub(crate) life: Life,
    pub(crate) clock: u64,
    pub(crate) policy: u8,
    pub(crate) body: Body,
}

fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value > 127 {
        out.push((value % 128) as u8 + 128);
        value /= 128;
    }
    out.push(value as u8);
}

fn put_numbers(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|value| put_number(out, *value));
}

fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

impl Message {
    pub(crate) fn write(&self) -> Vec<u8> {
        let kind = match self.body {
            Body::Delta { .. } => 1,
            Body::Heartbeat { .. } => 2,
            Body::Want { .. } => 3,
            Body::Snapshot { .. } => 4,
            Body::Goodbye => 5,
            Body::Outdated { .. } => 6,
        };
        let mut out = vec![1, kind];
        put_blob(&mut out, self.node.as_bytes());
        put_numbers(&mut out, &[self.life.0, self.life.1, self.clock]);
        out.push(self.policy);
        match &self.body {
            Body::Delta { first, count, operations } => {
                put_numbers(&mut out, &[*first, *count]);
                out.extend(operations);
            }
            Body::Heartbeat { last, digest, entries, limits, lives } => {
                put_numbers(&mut out, &[*last, *digest, *entries, limits.0, limits.1]);
                let mut blob = Vec::new();
                for (node, (order, birth)) in lives {
                    put_blob(&mut blob, node.as_bytes());
                    put_numbers(&mut blob, &[*order, *birth]);
                }
                put_blob(&mut out, &blob);
            }
            Body::Want { to, life, first, nonce } => {
                put_blob(&mut out, to.as_bytes());
                put_numbers(&mut out, &[life.0, life.1, *first, *nonce]);
            }
            Body::Snapshot { last, doubt, nonce, part, parts, operations } => {
                put_numbers(&mut out, &[*last, *doubt, *nonce, *part, *parts]);
                out.extend(operations);
            }
            Body::Goodbye => {}
            Body::Outdated { to, past, known } => {
                put_blob(&mut out, to.as_bytes());
                put_numbers(&mut out, &[past.0, past.1, known.0, known.1]);
            }
        }
        out
    }

    pub(crate) fn read(bytes: &[u8]) -> Message {
        let (version, kind, mut rest) = (bytes[0], bytes[1], Reader(&bytes[2..]));
        assert_eq!(version, 1);
        let (node, life, clock, policy) = (rest.text(), rest.life(), rest.number(), rest.byte());
        let body = match kind {
            1 => Body::Delta { first: rest.number(), count: rest.number(), operations: rest.all() },
            2 => Body::Heartbeat {
                last: rest.number(),
                digest: rest.number(),
                entries: rest.number(),
                limits: (rest.number(), rest.number()),
                lives: rest.lives(),
            },
            3 => Body::Want { to: rest.text(), life: rest.life(), first: rest.number(), nonce: rest.number() },
            4 => Body::Snapshot {
                last: rest.number(),
                doubt: rest.number(),
                nonce: rest.number(),
                part: rest.number(),
                parts: rest.number(),
                operations: rest.all(),
            },
            5 => Body::Goodbye,
            6 => Body::Outdated { to: rest.text(), past: rest.life(), known: rest.life() },
            other => panic!("no such kind: {other}"),
        };
        assert!(rest.0.is_empty(), "nothing is behind a message");
        Message { node, life, clock, policy, body }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().expect("a byte");
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        let byte = u64::from(self.byte());
        if byte > 127 { byte - 128 + 128 * self.number() } else { byte }
    }

    fn blob(&mut self) -> Vec<u8> {
        let length = self.number() as usize;
        let (blob, rest) = self.0.split_at(length);
        self.0 = rest;
        blob.to_vec()
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.blob()).expect("a text")
    }

    fn life(&mut self) -> Life {
        (self.number(), self.number())
    }

    fn lives(&mut self) -> Vec<(String, Life)> {
        let blob = self.blob();
        let mut rest = Reader(&blob);
        std::iter::from_fn(|| (!rest.0.is_empty()).then(|| (rest.text(), rest.life()))).collect()
    }

    fn all(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }
}

/// The bytes of an entry in a message.
pub(crate) fn record(owner: OwnerId, stamp: u64, revision: u32, key: &str, meta: &str) -> Vec<u8> {
    let length = (key.len() as u16).to_le_bytes();
    [&owner.0[..], &stamp.to_le_bytes(), &revision.to_le_bytes(), &length, key.as_bytes(), meta.as_bytes()].concat()
}

pub(crate) fn claim(rank: u8, record: &[u8]) -> Vec<u8> {
    let mut out = vec![1, rank];
    put_blob(&mut out, record);
    out
}

pub(crate) fn unclaim(name: &str, reason: u8) -> Vec<u8> {
    let mut out = vec![2];
    put_blob(&mut out, name.as_bytes());
    out.push(reason);
    out
}

pub(crate) fn join(record: &[u8]) -> Vec<u8> {
    let mut out = vec![3];
    put_blob(&mut out, record);
    out
}

pub(crate) fn leave(group: &str, owner: OwnerId, reason: u8) -> Vec<u8> {
    let mut out = vec![4];
    put_blob(&mut out, group.as_bytes());
    out.extend(owner.0);
    out.push(reason);
    out
}

pub(crate) fn close(owner: OwnerId, reason: u8) -> Vec<u8> {
    [&[5], &owner.0[..], &[reason]].concat()
}

/// The operation that ends all doubts.
pub(crate) const TRUST: [u8; 1] = [6];
