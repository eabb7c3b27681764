//! Finds the heads of HTTP/2 frames in a stream of bytes (RFC 9113 section 4.1), however the bytes are cut into pieces.
//! The scanner validates nothing, because the HTTP/2 library does that. It finds out how much work a connection causes,
//! and whether its next request is still incomplete.

/// The size of a frame's head, in bytes.
const HEAD: usize = 9;
/// How many bytes precede the first frame (RFC 9113 section 3.4).
const PREFACE: usize = 24;
/// The types of frames that the scanner knows.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
/// The flag of a complete block of header fields.
const END_HEADERS: u8 = 4;

/// Scans the frames of one connection, from its first byte on.
#[derive(Debug)]
pub(super) struct FrameScanner {
    /// How many bytes of the preface have not arrived yet.
    preface_left: usize,
    head: [u8; HEAD],
    /// How many bytes of `head` have arrived.
    head_length: usize,
    /// How many bytes of the current frame have not arrived yet.
    payload_left: usize,
    /// Whether the current frame carries a body.
    is_data: bool,
    /// Whether a block of header fields has begun and is incomplete.
    is_in_block: bool,
    /// Whether the head of the first frame has arrived.
    has_begun: bool,
}

impl FrameScanner {
    pub(super) fn new() -> Self {
        FrameScanner {
            preface_left: PREFACE,
            head: [0; HEAD],
            head_length: 0,
            payload_left: 0,
            is_data: false,
            is_in_block: false,
            has_begun: false,
        }
    }

    /// Scans the next bytes of the connection. Returns how many chargeable frames begin in them. All frames are
    /// chargeable except `DATA` that carries at least as many bytes as its head has.
    pub(super) fn scan(&mut self, mut bytes: &[u8]) -> usize {
        let mut charged = 0;
        loop {
            let skipped = if self.preface_left > 0 { &mut self.preface_left } else { &mut self.payload_left };
            let length = bytes.len().min(*skipped);
            *skipped -= length;
            bytes = &bytes[length..];
            if bytes.is_empty() {
                return charged;
            }
            let length = bytes.len().min(HEAD - self.head_length);
            self.head[self.head_length..self.head_length + length].copy_from_slice(&bytes[..length]);
            self.head_length += length;
            bytes = &bytes[length..];
            if self.head_length == HEAD {
                charged += usize::from(self.begin_frame());
            }
        }
    }

    /// Begins the frame whose head is complete. Returns whether the frame is chargeable.
    fn begin_frame(&mut self) -> bool {
        let [a, b, c, kind, flags, ..] = self.head;
        self.head_length = 0;
        self.payload_left = u32::from_be_bytes([0, a, b, c]) as usize;
        self.is_data = kind == DATA;
        if matches!(kind, HEADERS | PUSH_PROMISE | CONTINUATION) {
            self.is_in_block = flags & END_HEADERS == 0;
        }
        self.has_begun = true;
        !self.is_data || self.payload_left < HEAD
    }

    /// Whether something has begun that should be complete soon: the preface, or any frame or block of header fields
    /// except a body.
    pub(super) fn is_incomplete(&self) -> bool {
        let is_in_frame = self.head_length > 0 || self.payload_left > 0 && !self.is_data;
        !self.has_begun || is_in_frame || self.is_in_block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = (payload as u32).to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], &vec![0xff; payload]].concat()
    }

    /// Makes the bytes of a connection. Returns them with the number of frames that are charged.
    fn connection() -> (Vec<u8>, usize) {
        let frames = [
            (frame(4, 0, 36), 1),
            (frame(6, 0, 8), 1),
            (frame(HEADERS, 0, 20), 1),
            (frame(CONTINUATION, END_HEADERS, 0), 1),
            (frame(DATA, 0, 300), 0),
            (frame(DATA, 0, 9), 0),
            (frame(DATA, 1, 8), 1),
            (frame(DATA, 1, 0), 1),
            (frame(8, 0, 4), 1),
        ];
        let charged = frames.iter().map(|(_, charged)| charged).sum();
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frames.iter().for_each(|(frame, _)| bytes.extend_from_slice(frame));
        (bytes, charged)
    }

    #[test]
    fn frames_are_counted_wherever_the_bytes_are_cut() {
        let (bytes, charged) = connection();
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let mut scanner = FrameScanner::new();
                let counted: usize = [&bytes[..first], &bytes[first..second], &bytes[second..]]
                    .into_iter()
                    .map(|piece| scanner.scan(piece))
                    .sum();
                assert_eq!(counted, charged, "cut at {first} and {second}");
                assert!(!scanner.is_incomplete());
            }
        }
        let mut scanner = FrameScanner::new();
        assert_eq!(bytes.iter().map(|byte| scanner.scan(&[*byte])).sum::<usize>(), charged, "byte by byte");
    }

    #[test]
    fn what_has_begun_and_is_not_whole_is_told() {
        let mut scanner = FrameScanner::new();
        assert!(scanner.is_incomplete(), "nothing has come");
        scanner.scan(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        assert!(scanner.is_incomplete(), "no settings have come");
        scanner.scan(&frame(4, 0, 0));
        assert!(!scanner.is_incomplete());
        for (what, bytes) in [
            ("half a head", frame(6, 0, 8)[..5].to_vec()),
            ("half a ping", frame(6, 0, 8)[..12].to_vec()),
            ("header fields that continue", frame(HEADERS, 0, 20)),
        ] {
            let mut scanner = FrameScanner { preface_left: 0, has_begun: true, ..FrameScanner::new() };
            scanner.scan(&bytes);
            assert!(scanner.is_incomplete(), "{what}");
        }
        let mut scanner = FrameScanner { preface_left: 0, has_begun: true, ..FrameScanner::new() };
        scanner.scan(&frame(DATA, 0, 100)[..50]);
        assert!(!scanner.is_incomplete(), "a body has a time of its own");
    }
}
