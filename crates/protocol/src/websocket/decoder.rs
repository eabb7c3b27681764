//! Decodes bytes to WebSocket messages.

use super::head::{HEAD_MAX, Head};
use super::mask::mask;
use super::opcode::Opcode;
use super::role::Role;
use super::violation::Violation;
use crate::deflate;

/// A message, or a control frame, which may come between the fragments of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameEvent<'a> {
    /// A whole text message, checked to be UTF-8.
    Text(&'a str),
    /// A whole binary message.
    Binary(&'a [u8]),
    /// A ping. The reader must answer it with a pong of the same payload, at most 125 bytes.
    Ping(&'a [u8]),
    /// The answer to a ping.
    Pong(&'a [u8]),
    /// The peer closes the connection.
    Close {
        /// The close code of RFC 6455 section 7.4. `None` = the peer gave none.
        code: Option<u16>,
        /// The reason in words. May be empty.
        reason: &'a str,
    },
}

/// The state between two reads: the beginning of a frame, and the fragments of a message. It has the size of a pointer,
/// and holds nothing while the connection is idle.
#[derive(Debug, Default)]
pub struct Assembly(Option<Box<FrameParts>>);

#[derive(Debug, Default)]
struct FrameParts {
    /// A frame whose end has not arrived yet.
    frame: Vec<u8>,
    /// The kind of the incomplete message.
    message: Option<Opcode>,
    fragments: Vec<u8>,
    is_compressed: bool,
    /// The number of fragments since the last `take_fragments`.
    count: u32,
    /// True if the data that the last event borrowed can be dropped.
    is_delivered: bool,
}

impl Assembly {
    /// Returns the next event in `input`. `at` is the number of bytes that are consumed already, and the method
    /// advances it. `None` = all bytes are consumed, and an incomplete part is kept.
    ///
    /// # Errors
    /// A [`Violation`] ends the connection: the caller must not read from it any more. Sizes are checked when the head
    /// is read, before anything is kept.
    pub fn next<'a>(
        &'a mut self,
        role: Role,
        message_size_max: usize,
        input: &'a mut [u8],
        at: &mut usize,
    ) -> Result<Option<FrameEvent<'a>>, Violation> {
        self.drop_delivered();
        loop {
            let rest = input.len() - *at;
            if rest == 0 {
                return Ok(None);
            }
            let has_part = self.0.as_ref().is_some_and(|parts| !parts.frame.is_empty());
            if has_part {
                if !self.complete(role, message_size_max, &input[*at..], at)? {
                    return Ok(None);
                }
                let Some((head, mut payload)) = self.take_completed(role)? else { continue };
                mask(head.key, &mut payload);
                match self.accept(head, message_size_max)? {
                    Accepted::Fragment => self.push_fragment(&payload),
                    Accepted::LastFragment => return self.push_last(&payload, message_size_max).map(Some),
                    Accepted::Whole if head.is_compressed => {
                        return self.inflate(head.opcode, &payload, message_size_max).map(Some);
                    }
                    Accepted::Whole => return self.keep(head.opcode, payload).map(Some),
                }
                continue;
            }
            let head = match Head::read(&input[*at..], role)? {
                Some(head) => head,
                None => {
                    self.begin(&input[*at..]);
                    *at = input.len();
                    return Ok(None);
                }
            };
            self.check(head, message_size_max)?;
            if rest < head.length + head.payload {
                self.begin(&input[*at..]);
                *at = input.len();
                return Ok(None);
            }
            let start = *at + head.length;
            let end = start + head.payload;
            *at = end;
            mask(head.key, &mut input[start..end]);
            match self.accept(head, message_size_max)? {
                Accepted::Fragment => self.push_fragment(&input[start..end]),
                Accepted::LastFragment => {
                    let last = &input[start..end];
                    return self.push_last(last, message_size_max).map(Some);
                }
                Accepted::Whole if head.is_compressed => {
                    return self.inflate(head.opcode, &input[start..end], message_size_max).map(Some);
                }
                Accepted::Whole => return event(head.opcode, &input[start..end]).map(Some),
            }
        }
    }

    /// Returns the number of fragments since the last call and resets it. The last fragment of a message does not
    /// count.
    pub fn take_fragments(&mut self) -> u32 {
        self.0.as_mut().map_or(0, |parts| std::mem::take(&mut parts.count))
    }

    /// Whether no incomplete frame or message is kept.
    pub fn is_idle(&self) -> bool {
        self.0.as_ref().is_none_or(|parts| parts.is_delivered)
    }

    /// The number of bytes that are kept.
    pub fn buffered_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |parts| parts.frame.len() + parts.fragments.len())
    }

    /// Frees the data of the last event. The next call does the same.
    pub fn release(&mut self) {
        self.drop_delivered();
    }

    fn parts(&mut self) -> &mut FrameParts {
        self.0.get_or_insert_default()
    }

    fn begin(&mut self, bytes: &[u8]) {
        self.parts().frame.extend_from_slice(bytes);
    }

    fn drop_delivered(&mut self) {
        let Some(parts) = self.0.as_mut().filter(|parts| parts.is_delivered) else { return };
        if parts.message.is_some() {
            // A control frame arrived between fragments, so the fragments stay.
            parts.frame = Vec::new();
            parts.is_delivered = false;
        } else {
            self.0 = None;
        }
    }

    /// Adds missing bytes to the kept frame. Returns true if the frame is complete.
    fn complete(&mut self, role: Role, max: usize, input: &[u8], at: &mut usize) -> Result<bool, Violation> {
        let mut used = 0;
        loop {
            let parts = self.parts();
            if let Some(head) = Head::read(&parts.frame, role)? {
                let lacking = head.length + head.payload - parts.frame.len();
                let taken = lacking.min(input.len() - used);
                parts.frame.extend_from_slice(&input[used..used + taken]);
                self.check(head, max)?;
                *at += used + taken;
                return Ok(taken == lacking);
            }
            debug_assert!(parts.frame.len() < HEAD_MAX);
            let Some(byte) = input.get(used) else {
                *at += used;
                return Ok(false);
            };
            parts.frame.push(*byte);
            used += 1;
        }
    }

    fn take_completed(&mut self, role: Role) -> Result<Option<(Head, Vec<u8>)>, Violation> {
        let mut frame = std::mem::take(&mut self.parts().frame);
        let Some(head) = Head::read(&frame, role)? else { return Ok(None) };
        frame.drain(..head.length);
        if self.0.as_ref().is_some_and(|parts| parts.message.is_none()) {
            self.0 = None;
        }
        Ok(Some((head, frame)))
    }

    /// Checks whether the frame is allowed now, and whether it fits.
    fn check(&self, head: Head, max: usize) -> Result<(), Violation> {
        let under_way = self.0.as_ref().and_then(|parts| parts.message);
        match (head.opcode, under_way) {
            (Opcode::Continuation, None) => {
                return Err(Violation::protocol("a continuation has nothing to go on with"));
            }
            (Opcode::Text | Opcode::Binary, Some(_)) => {
                return Err(Violation::protocol("a message begins inside another"));
            }
            _ => {}
        }
        let before = self.0.as_ref().map_or(0, |parts| parts.fragments.len());
        let is_too_big = !head.opcode.is_control() && head.payload > max.saturating_sub(before);
        if is_too_big { Err(Violation::TOO_BIG) } else { Ok(()) }
    }

    fn accept(&mut self, head: Head, max: usize) -> Result<Accepted, Violation> {
        self.check(head, max)?;
        Ok(match (head.opcode, head.is_final) {
            (Opcode::Continuation, true) => Accepted::LastFragment,
            (Opcode::Continuation, false) => Accepted::Fragment,
            (opcode @ (Opcode::Text | Opcode::Binary), false) => {
                let parts = self.parts();
                (parts.message, parts.is_compressed) = (Some(opcode), head.is_compressed);
                Accepted::Fragment
            }
            _ => Accepted::Whole,
        })
    }

    fn push_fragment(&mut self, payload: &[u8]) {
        let parts = self.parts();
        parts.count += 1;
        parts.fragments.extend_from_slice(payload);
    }

    fn push_last(&mut self, payload: &[u8], max: usize) -> Result<FrameEvent<'_>, Violation> {
        let parts = self.parts();
        parts.fragments.extend_from_slice(payload);
        parts.is_delivered = true;
        let opcode = parts.message.take().unwrap_or(Opcode::Binary);
        if std::mem::take(&mut parts.is_compressed) {
            parts.fragments = deflate::inflate(&parts.fragments, max).ok_or(Violation::DEFLATE)?;
        }
        event(opcode, &parts.fragments)
    }

    fn inflate(&mut self, opcode: Opcode, payload: &[u8], max: usize) -> Result<FrameEvent<'_>, Violation> {
        let message = deflate::inflate(payload, max).ok_or(Violation::DEFLATE)?;
        self.keep(opcode, message)
    }

    /// Keeps the payload of a frame that arrived in parts until its event has been used.
    fn keep(&mut self, opcode: Opcode, payload: Vec<u8>) -> Result<FrameEvent<'_>, Violation> {
        let parts = self.parts();
        parts.frame = payload;
        parts.is_delivered = true;
        event(opcode, &parts.frame)
    }
}

enum Accepted {
    /// A whole message or a control frame.
    Whole,
    Fragment,
    LastFragment,
}

fn event(opcode: Opcode, payload: &[u8]) -> Result<FrameEvent<'_>, Violation> {
    Ok(match opcode {
        Opcode::Text => FrameEvent::Text(simdutf8::basic::from_utf8(payload).map_err(|_| Violation::TEXT)?),
        Opcode::Binary | Opcode::Continuation => FrameEvent::Binary(payload),
        Opcode::Ping => FrameEvent::Ping(payload),
        Opcode::Pong => FrameEvent::Pong(payload),
        Opcode::Close => return close(payload),
    })
}

fn close(payload: &[u8]) -> Result<FrameEvent<'_>, Violation> {
    match payload {
        [] => Ok(FrameEvent::Close { code: None, reason: "" }),
        [_] => Err(Violation::protocol("a close code is cut in half")),
        [a, b, reason @ ..] => {
            let code = u16::from_be_bytes([*a, *b]);
            // According to RFC 6455 section 7.4.2 and the registry of close codes, other codes are reserved or never
            // sent.
            if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return Err(Violation::protocol("a close code that may not be sent"));
            }
            let reason = simdutf8::basic::from_utf8(reason).map_err(|_| Violation::TEXT)?;
            Ok(FrameEvent::Close { code: Some(code), reason })
        }
    }
}
