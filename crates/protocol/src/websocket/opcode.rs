//! The opcodes of frames, and the bit of compressed frames.

/// The bit in a frame's first byte that marks a compressed message (RFC 7692 section 6).
pub(crate) const RSV1: u8 = 0x40;

/// The kinds of frames (RFC 6455 section 11.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// Continues a fragmented message.
    Continuation = 0,
    /// Begins a message of UTF-8 text.
    Text = 1,
    /// Begins a message of bytes.
    Binary = 2,
    /// Ends the connection.
    Close = 8,
    /// Asks the peer for a pong.
    Ping = 9,
    /// Answers a ping.
    Pong = 10,
}

impl Opcode {
    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    pub(super) fn is_control(self) -> bool {
        self as u8 >= 8
    }
}
