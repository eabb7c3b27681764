//! WebSocket framing (RFC 6455 section 5) without I/O: slices in, events or bytes out.
//!
//! A message that lies whole in the caller's buffer is unmasked in place and handed out from there; only what is
//! incomplete is copied, so an idle connection holds nothing.
//!
//! By hand: `tungstenite` and `fastwebsockets` own their stream and keep a buffer for each connection.

mod decoder;
mod encoder;
mod head;

pub use decoder::{Assembly, FrameEvent, Violation};
pub use encoder::{encode_close, encode_frame, encode_header, encode_masked_frame};
pub use head::{CLOSE_REASON_MAX, Opcode, Role};

/// The bit of a frame's first byte that says: compressed (RFC 7692 section 6).
pub(crate) const RSV1: u8 = 0x40;

/// Applies a mask to a whole payload in place (RFC 6455 section 5.3).
pub fn mask(key: [u8; 4], bytes: &mut [u8]) {
    let wide = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    if wide == 0 {
        return;
    }
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}
