//! Compression of one message at a time: one compressed form serves everybody who has negotiated it, and a connection holds neither a
//! compressor nor a window. In WebSocket frames it is permessage-deflate (RFC 7692) without context takeover on either side, in HTTP
//! streams it is gzip (RFC 1952).

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::websocket::{Opcode, RSV1, encode_frame as encode_plain};

/// What an extension header says that grants it.
pub const GRANTED: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
/// The end of a flushed block, which is not sent (RFC 7692 section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// How a gzip stream begins: no name, no time, an unknown system (RFC 1952 section 2.3).
pub const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// Longest stored block (RFC 1951 section 3.2.4).
const STORED_MAX: usize = 0xffff;

thread_local! {
    static COMPRESSOR: RefCell<Compress> = RefCell::new(Compress::new(Compression::default(), false));
}

/// Whether a client offers the extension in a form that can be granted: it names no window smaller than the usual one for us.
pub fn is_offered(extensions: &str) -> bool {
    extensions.split(',').any(|offer| {
        let mut parts = offer.split(';').map(str::trim);
        let known = |part: &str| {
            let (name, value) =
                part.split_once('=').map_or((part, None), |(name, value)| (name.trim_end(), Some(value.trim().trim_matches('"'))));
            match name {
                "server_no_context_takeover" | "client_no_context_takeover" => value.is_none(),
                "client_max_window_bits" => value.is_none_or(|bits| bits.parse().is_ok_and(|bits: u8| (8..=15).contains(&bits))),
                "server_max_window_bits" => value == Some("15"),
                _ => false,
            }
        };
        parts.next() == Some("permessage-deflate") && parts.all(known)
    })
}

/// Appends a message as a compressed frame, or as a plain one where that is no longer.
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

/// Appends a message as blocks that end at a byte and refer to nothing before them: compressed ones if it is as long as `from` and they are
/// shorter, else stored ones.
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
            let status = compressor.compress_vec(message.get(used..)?, &mut out, FlushCompress::Sync).ok()?;
            // Room that is left says that all is flushed.
            if compressor.total_in() as usize == message.len() && out.len() < out.capacity() && status != Status::BufError {
                break;
            }
            out.reserve(message.len() / 2 + 64);
        }
        let length = out.strip_suffix(&TAIL)?.len();
        out.truncate(length);
        Some(out)
    })
}

/// Inflates a message of a client.
///
/// # Errors
/// `None` when it is broken, or longer than `most` bytes.
pub fn inflate(message: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut inflater = Decompress::new(false);
    let mut out = Vec::with_capacity((message.len() * 2).clamp(64, 4_096).min(most.max(1)));
    for part in [message, &TAIL[..]] {
        let before = inflater.total_in();
        loop {
            let used = (inflater.total_in() - before) as usize;
            let rest = part.get(used..)?;
            let room = out.capacity() - out.len();
            let status = inflater.decompress_vec(rest, &mut out, FlushDecompress::Sync).ok()?;
            if out.len() > most {
                return None;
            }
            let is_used_up = (inflater.total_in() - before) as usize == part.len();
            if status == Status::StreamEnd || is_used_up && out.len() < out.capacity() {
                break;
            }
            if out.len() == out.capacity() {
                // One byte more than is allowed shows that it is too long.
                out.reserve_exact(out.len().max(64).min(most.saturating_sub(out.len()) + 1));
            } else if room == out.capacity() - out.len() {
                return None;
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_of(frame: &[u8]) -> Vec<u8> {
        let (first, length) = (frame[0], usize::from(frame[1]));
        let payload = if length == 126 { &frame[4..] } else { &frame[2..] };
        if first & RSV1 == 0 { payload.to_vec() } else { inflate(payload, 1 << 20).expect("it is ours") }
    }

    #[test]
    fn what_is_compressed_comes_back() {
        for length in [1, 10, 300, 5_000, 60_000] {
            let message: Vec<u8> = (0..length).map(|i| b"{\"score\":[1,2]}"[i % 15]).collect();
            let mut frame = Vec::new();
            encode_frame(Opcode::Text, &message, &mut frame);
            assert!(length < 300 || frame.len() < message.len() / 4, "{length}: {}", frame.len());
            assert_eq!(message_of(&frame), message, "{length}");
        }
    }

    #[test]
    fn blocks_of_messages_one_behind_the_other_are_one_stream() {
        let text = |length: usize| (0..length).map(|i| b"{\"score\":[1,2]}"[i % 15]).collect::<Vec<u8>>();
        let noise = |length: usize| (0..length as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        let messages = [text(0), text(1), text(300), noise(70_000), text(200_000), text(63), noise(64), text(65)];
        for from in [0, 64, usize::MAX] {
            let (mut stream, mut plain) = (Vec::new(), Vec::new());
            for message in &messages {
                encode_blocks(message, from, &mut stream);
                plain.extend_from_slice(message);
                assert!(inflate(&stream, 1 << 20).is_some_and(|so_far| so_far == plain), "{from}: every message is whole when it has come");
            }
            assert_eq!(stream.len() < plain.len() / 2, from <= 64, "{from}: {} of {}", stream.len(), plain.len());
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
