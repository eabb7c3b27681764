//! The head of a frame (RFC 6455 section 5.2).

use super::opcode::{Opcode, RSV1};
use super::role::Role;
use super::violation::Violation;

/// The maximum payload of a control frame, in bytes.
pub(super) const CONTROL_MAX: usize = 125;
// A control frame has its length in the head's second byte. From 126 on that byte announces a longer length field.
const _: () = assert!(CONTROL_MAX < 126);
/// The maximum reason of a close frame in bytes: the payload without the two-byte code (RFC 6455 section 5.5).
pub const CLOSE_REASON_MAX: usize = 123;
const _: () = assert!(2 + CLOSE_REASON_MAX == CONTROL_MAX);
/// The maximum length of a head: two bytes, eight bytes of length, four bytes of mask.
pub(super) const HEAD_MAX: usize = 14;

/// The decoded head of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) is_final: bool,
    pub(super) opcode: Opcode,
    /// True if the message that begins with this frame is compressed (RFC 7692 section 6).
    pub(super) is_compressed: bool,
    pub(super) key: [u8; 4],
    pub(super) payload: usize,
    /// The length of the head itself in bytes.
    pub(super) length: usize,
}

impl Head {
    /// Reads a head. `None` = there are not enough bytes yet.
    ///
    /// # Errors
    /// Code 1002 if RFC 6455 forbids the head, as soon as this is visible. Code 1009 if the length exceeds what this
    /// machine can address.
    pub(super) fn read(bytes: &[u8], role: Role) -> Result<Option<Head>, Violation> {
        let &[first, second, ..] = bytes else { return Ok(None) };
        let opcode = Opcode::from_bits(first & 0x0f).ok_or(Violation::protocol("the opcode is reserved"))?;
        let is_compressed =
            first & 0x70 == RSV1 && role == Role::DeflatedServer && matches!(opcode, Opcode::Text | Opcode::Binary);
        if first & 0x70 != 0 && !is_compressed {
            return Err(Violation::protocol("reserved bits are set"));
        }
        let is_final = first & 0x80 != 0;
        let is_masked = second & 0x80 != 0;
        if is_masked == (role == Role::Client) {
            return Err(Violation::protocol(if is_masked {
                "a frame of a server is masked"
            } else {
                "a frame of a client is not masked"
            }));
        }
        let short = usize::from(second & 0x7f);
        if opcode.is_control() && (!is_final || short > CONTROL_MAX) {
            return Err(Violation::protocol("a control frame is fragmented or too long"));
        }
        let (payload, at) = match short {
            126 => match bytes.get(2..4) {
                Some(&[a, b]) => (u64::from(u16::from_be_bytes([a, b])), 4),
                _ => return Ok(None),
            },
            127 => match bytes.get(2..10).and_then(|bytes| bytes.try_into().ok()) {
                Some(bytes) => (u64::from_be_bytes(bytes), 10),
                None => return Ok(None),
            },
            short => (short as u64, 2),
        };
        let is_minimal = match short {
            126 => payload > 125,
            127 => payload > 0xffff && payload >> 63 == 0,
            _ => true,
        };
        if !is_minimal {
            return Err(Violation::protocol("a length is not in its shortest form"));
        }
        let payload = usize::try_from(payload).map_err(|_| Violation::TOO_BIG)?;
        if role == Role::Client {
            return Ok(Some(Head { is_final, opcode, is_compressed, key: [0; 4], payload, length: at }));
        }
        let key = bytes.get(at..at + 4).and_then(|key| key.try_into().ok());
        Ok(key.map(|key| Head { is_final, opcode, is_compressed, key, payload, length: at + 4 }))
    }
}
