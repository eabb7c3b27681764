//! Encodes messages as WebSocket frames. Every message is one frame.

use super::head::CONTROL_MAX;
use super::mask::mask;
use super::opcode::Opcode;

/// Appends the head of an unmasked, final frame, which a server sends. `payload` is its length in bytes.
pub fn encode_header(opcode: Opcode, payload: usize, out: &mut Vec<u8>) {
    encode_head(opcode, payload, 0, out);
}

/// Appends a whole unmasked frame.
pub fn encode_frame(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    encode_header(opcode, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends a whole masked frame, which a client sends. The key should be random (RFC 6455 section 10.3).
pub fn encode_masked_frame(opcode: Opcode, payload: &[u8], key: [u8; 4], out: &mut Vec<u8>) {
    encode_head(opcode, payload.len(), 0x80, out);
    out.extend_from_slice(&key);
    let start = out.len();
    out.extend_from_slice(payload);
    mask(key, &mut out[start..]);
}

/// Appends a close frame of a server. The reason is cut between characters if it is longer than 123 bytes.
pub fn encode_close(code: u16, reason: &str, out: &mut Vec<u8>) {
    let reason = &reason[..reason.floor_char_boundary(CONTROL_MAX - 2)];
    encode_header(Opcode::Close, 2 + reason.len(), out);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

fn encode_head(opcode: Opcode, payload: usize, mask_bit: u8, out: &mut Vec<u8>) {
    out.push(0x80 | opcode as u8);
    match payload {
        0..=125 => out.push(mask_bit | payload as u8),
        126..=0xffff => {
            out.push(mask_bit | 126);
            out.extend_from_slice(&(payload as u16).to_be_bytes());
        }
        _ => {
            out.push(mask_bit | 127);
            out.extend_from_slice(&(payload as u64).to_be_bytes());
        }
    }
}
