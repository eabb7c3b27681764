//! Compression of one message at a time. All connections that negotiated compression share one compressed form, and a
//! connection holds neither a compressor nor a window. In WebSocket frames the format is permessage-deflate (RFC 7692)
//! without context takeover on either side. In HTTP streams it is gzip (RFC 1952).
//!
//! Hand-written around `flate2`: libraries compress for one connection, and here many connections share the result.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use crate::websocket::encoder::encode_frame as encode_plain;
use crate::websocket::opcode::{Opcode, RSV1};

/// The value of the response header that accepts the extension.
pub const GRANTED: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
/// The end of a flushed block, which is not sent (RFC 7692 section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// The head of a gzip stream: no name, no time, an unknown system (RFC 1952 section 2.3).
pub const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// The longest stored block in bytes (RFC 1951 section 3.2.4).
const STORED_MAX: usize = 0xffff;

thread_local! {
    static COMPRESSOR: RefCell<Compress> = RefCell::new(Compress::new(Compression::default(), false));
}

/// Whether a client offers the extension in a form that the server can accept. The offer must not demand a server
/// window smaller than the default.
pub fn is_offered(extensions: &str) -> bool {
    extensions.split(',').any(|offer| {
        let mut parts = offer.split(';').map(str::trim);
        let known = |part: &str| {
            let (name, value) = part
                .split_once('=')
                .map_or((part, None), |(name, value)| (name.trim_end(), Some(value.trim().trim_matches('"'))));
            match name {
                "server_no_context_takeover" | "client_no_context_takeover" => value.is_none(),
                "client_max_window_bits" => {
                    value.is_none_or(|bits| bits.parse().is_ok_and(|bits: u8| (8..=15).contains(&bits)))
                }
                "server_max_window_bits" => value == Some("15"),
                _ => false,
            }
        };
        parts.next() == Some("permessage-deflate") && parts.all(known)
    })
}

/// Appends a message as a compressed frame, or as a plain frame if that is not longer.
pub(crate) fn encode_frame(opcode: Opcode, message: &[u8], out: &mut Vec<u8>) {
    match compress(message) {
        Some(compressed) if compressed.len() < message.len() => {
            let at = out.len();
            encode_plain(opcode, &compressed, out);
            out[at] |= RSV1;
        }
        _ => encode_plain(opcode, message, out),
    }
}

/// Appends a message as blocks that end at a byte boundary and do not refer to earlier data. The blocks are compressed
/// if the message has at least `from` bytes and compression makes it shorter. Otherwise they are stored.
pub(crate) fn encode_blocks(message: &[u8], from: usize, out: &mut Vec<u8>) {
    if message.len() >= from
        && let Some(compressed) = compress(message).filter(|compressed| compressed.len() + TAIL.len() < message.len())
    {
        out.extend_from_slice(&compressed);
        out.extend_from_slice(&TAIL);
        return;
    }
    for part in message.chunks(STORED_MAX) {
        let length = part.len() as u16;
        out.push(0);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(part);
    }
}

fn compress(message: &[u8]) -> Option<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.reset();
        let mut out = Vec::with_capacity(message.len() / 2 + 64);
        loop {
            let used = compressor.total_in() as usize;
            compressor.compress_vec(message.get(used..)?, &mut out, FlushCompress::Sync).ok()?;
            // Free space in `out` means that the whole input is consumed and flushed.
            if out.len() < out.capacity() {
                break;
            }
            out.reserve(message.len() / 2 + 64);
        }
        let length = out.strip_suffix(&TAIL)?.len();
        out.truncate(length);
        Some(out)
    })
}

/// Decompresses a message of a client. `None` = the data is not valid, or is longer than `most` bytes.
pub fn inflate(message: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut inflater = Decompress::new(false);
    let mut out = Vec::with_capacity((message.len() * 2).clamp(64, 4_096).min(most.max(1)));
    for part in [message, &TAIL[..]] {
        let before = inflater.total_in();
        loop {
            let used = (inflater.total_in() - before) as usize;
            inflater.decompress_vec(part.get(used..)?, &mut out, FlushDecompress::Sync).ok()?;
            if out.len() > most {
                return None;
            }
            // Free space in `out` means that the whole input is consumed, or that the stream has ended.
            if out.len() < out.capacity() {
                break;
            }
            // One byte beyond the limit shows that the message is too long.
            out.reserve_exact(out.len().max(64).min(most.saturating_sub(out.len()) + 1));
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|i| b"{\"score\":[1,2]}"[i % 15]).collect()
    }

    fn noise(length: usize) -> Vec<u8> {
        let mixed = |i: u64| (i ^ i >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
        (0..length as u64).map(|i| (mixed(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 56) as u8).collect()
    }

    fn message_of(frame: &[u8]) -> Vec<u8> {
        let (first, length) = (frame[0], usize::from(frame[1]));
        let payload = if length == 126 { &frame[4..] } else { &frame[2..] };
        if first & RSV1 == 0 { payload.to_vec() } else { inflate(payload, 1 << 20).expect("it is ours") }
    }

    #[test]
    fn what_is_compressed_comes_back() {
        for length in [1, 10, 300, 5_000, 60_000] {
            let message = text(length);
            let mut frame = Vec::new();
            encode_frame(Opcode::Text, &message, &mut frame);
            assert!(length < 300 || frame.len() < message.len() / 4, "{length}: {}", frame.len());
            assert_eq!(message_of(&frame), message, "{length}");
        }
    }

    #[test]
    fn blocks_of_messages_one_behind_the_other_are_one_stream() {
        let messages = [text(0), text(1), text(300), noise(70_000), text(200_000), text(63), noise(64), text(65)];
        for from in [0, 64, usize::MAX] {
            let (mut stream, mut plain) = (Vec::new(), Vec::new());
            for message in &messages {
                encode_blocks(message, from, &mut stream);
                plain.extend_from_slice(message);
                assert!(
                    inflate(&stream, 1 << 20).is_some_and(|so_far| so_far == plain),
                    "{from}: every message is whole when it has come"
                );
            }
            assert_eq!(stream.len() < plain.len() / 2, from <= 64, "{from}: {} of {}", stream.len(), plain.len());
        }
    }

    #[test]
    fn what_would_be_no_shorter_is_not_compressed() {
        let (mut frames, mut blocks) = (BTreeSet::new(), BTreeSet::new());
        for zeros in 0..40 {
            let message = [noise(40), vec![b'0'; zeros]].concat();
            let compressed = compress(&message).expect("it compresses").len();
            let mut out = Vec::new();
            encode_frame(Opcode::Text, &message, &mut out);
            assert_eq!(out.len() - 2, compressed.min(message.len()), "{zeros}");
            assert_eq!(out[0] & RSV1 != 0, compressed < message.len(), "{zeros}");
            out.clear();
            encode_blocks(&message, 0, &mut out);
            let with_tail = compressed + TAIL.len();
            assert_eq!(out.len(), if with_tail < message.len() { with_tail } else { message.len() + 5 }, "{zeros}");
            frames.insert(compressed.cmp(&message.len()));
            blocks.insert(with_tail.cmp(&message.len()));
        }
        assert_eq!((frames.len(), blocks.len()), (3, 3), "longer, as long, and shorter");
    }

    #[test]
    fn what_becomes_longer_than_was_reckoned_is_whole() {
        // Random letters compress to three quarters of their length.
        for length in [2_000, 10_000, 100_000] {
            let message: Vec<u8> = noise(length).iter().map(|byte| b'?' + byte % 64).collect();
            let compressed = compress(&message).expect("it compresses");
            assert!(
                compressed.len() > message.len() / 2 + 64 && compressed.len() < message.len(),
                "{length}: {}",
                compressed.len()
            );
            assert_eq!(inflate(&compressed, length), Some(message), "{length}");
        }
    }

    #[test]
    fn what_is_inflated_may_be_so_long_and_no_longer() {
        for length in [0, 1, 63, 64, 65, 127, 128, 129, 4_095, 4_096, 4_097, 8_192, 8_193] {
            for message in [text(length), noise(length)] {
                let compressed = compress(&message).expect("it compresses");
                assert_eq!(length.checked_sub(1).and_then(|most| inflate(&compressed, most)), None, "{length}");
                for most in [length, length + 1, 1 << 20] {
                    assert_eq!(inflate(&compressed, most).as_ref(), Some(&message), "{length} of {most}");
                }
            }
        }
    }

    #[test]
    fn what_stands_behind_the_end_of_a_stream_is_passed_over() {
        for length in [5, 64, 5_000] {
            let mut compressor = Compress::new(Compression::default(), false);
            let mut ended = Vec::with_capacity(2 * length + 64);
            compressor.compress_vec(&text(length), &mut ended, FlushCompress::Finish).expect("it compresses");
            ended.extend_from_slice(b"more");
            assert_eq!(inflate(&ended, length), Some(text(length)), "{length}");
        }
    }

    #[test]
    fn bombs_and_noise_are_refused() {
        let bomb = compress(&vec![b'0'; 1 << 20]).expect("it compresses");
        assert!(bomb.len() < 8_000);
        assert_eq!(inflate(&bomb, 65_536), None);
        assert_eq!(inflate(&bomb, 1 << 20).map(|message| message.len()), Some(1 << 20));
        assert_eq!(inflate(&[0xff; 20], 65_536), None);
    }

    #[test]
    fn offers_are_granted_if_they_can_be() {
        for (offer, expected) in [
            ("permessage-deflate", true),
            ("permessage-deflate; client_max_window_bits", true),
            ("x-webkit-deflate-frame, permessage-deflate; server_no_context_takeover; client_max_window_bits=15", true),
            ("permessage-deflate; client_max_window_bits=8", true),
            ("permessage-deflate; client_max_window_bits=7", false),
            ("permessage-deflate; client_max_window_bits=16", false),
            ("permessage-deflate; client_max_window_bits=many", false),
            ("permessage-deflate; client_no_context_takeover", true),
            ("permessage-deflate; client_no_context_takeover=1", false),
            ("permessage-deflate; server_max_window_bits = \"15\"", true),
            ("permessage-deflate; server_max_window_bits", false),
            ("permessage-deflate; server_max_window_bits=10", false),
            ("permessage-deflate; server_max_window_bits=10, permessage-deflate", true),
            ("permessage-deflate; unheard_of", false),
            ("permessage-bzip2", false),
            ("", false),
        ] {
            assert_eq!(is_offered(offer), expected, "{offer}");
        }
    }
}
