//! Splits replies that are larger than one NATS message into pieces.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

/// The first byte of a piece. Replies are JSON objects, so no reply begins with it.
const PIECE: u8 = b'P';
/// The number of bytes that are reserved for the header of a piece.
const HEADER_SIZE: usize = 128;

/// Splits a reply into messages of at most `size_max` bytes each. A small reply is one unchanged message. Otherwise
/// each piece has a header with the node, the number of the piece and the number of pieces.
pub(crate) fn split(from: &str, reply: Vec<u8>, size_max: usize) -> Vec<Bytes> {
    if reply.len() <= size_max {
        return vec![reply.into()];
    }
    let room = size_max.saturating_sub(HEADER_SIZE + from.len()).max(1);
    let parts = reply.len().div_ceil(room);
    let piece = |(index, part): (usize, &[u8])| {
        let header = format!("{from} {index} {parts}\n");
        Bytes::from([&[PIECE], header.as_bytes(), part].concat())
    };
    reply.chunks(room).enumerate().map(piece).collect()
}

/// Assembles the pieces of several nodes.
#[derive(Default)]
pub(crate) struct Pieces(BTreeMap<String, Vec<Bytes>>);

impl Pieces {
    /// Takes a message, and returns a reply if it is complete. A message that cannot be parsed, or does not follow the
    /// previous piece, is ignored.
    pub(crate) fn take(&mut self, message: Bytes) -> Option<Bytes> {
        if message.first() != Some(&PIECE) {
            return Some(message);
        }
        let end = message.iter().position(|byte| *byte == b'\n')?;
        let mut words = std::str::from_utf8(message.get(1..end)?).ok()?.split(' ');
        let (from, index, parts) =
            (words.next()?, words.next()?.parse::<usize>().ok()?, words.next()?.parse::<usize>().ok()?);
        let pieces = self.0.entry(from.to_owned()).or_default();
        // The messages of one node arrive in order, or not at all.
        if index != pieces.len() || index >= parts {
            return None;
        }
        pieces.push(message.slice(end + 1..));
        if pieces.len() < parts {
            return None;
        }
        let whole = self.0.remove(from)?.into_iter().fold(BytesMut::new(), |mut whole, piece| {
            whole.extend_from_slice(&piece);
            whole
        });
        Some(whole.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_several_nodes_come_whole_whatever_their_size() {
        for size in [0, 1, 999, 1_000, 1_001, 5_000, 100_000] {
            let reply = |node: u8| {
                (0..size).map(|at| if at == 0 { b'{' } else { (at % 251) as u8 ^ node }).collect::<Vec<u8>>()
            };
            let [ours, theirs] = [1, 2].map(|node| split(&format!("node-{node}"), reply(node), 1_000));
            assert!(ours.iter().all(|message| message.len() <= 1_000));
            let (mut pieces, mut whole) = (Pieces::default(), Vec::new());
            for (one, other) in ours.into_iter().zip(theirs) {
                whole.extend([one, other].into_iter().filter_map(|message| pieces.take(message)));
            }
            assert_eq!(whole, [reply(1), reply(2)]);
        }
    }

    #[test]
    fn an_answer_with_a_piece_missing_is_none() {
        let messages = split("node", vec![b'{'; 5_000], 1_000);
        for missing in 0..messages.len() {
            let mut pieces = Pieces::default();
            let received = messages.iter().enumerate().filter(|(index, _)| *index != missing);
            assert!(received.filter_map(|(_, message)| pieces.take(message.clone())).next().is_none());
        }
        let mut pieces = Pieces::default();
        for odd in ["P", "P\n", "Pnode 0\nx", "Pnode 9 3\nx", "Pnode x y\nx", "P\u{0} 0 18446744073709551615\nx"] {
            assert_eq!(pieces.take(Bytes::copy_from_slice(odd.as_bytes())), None, "{odd:?}");
        }
    }
}
