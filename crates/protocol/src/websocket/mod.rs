//! WebSocket framing (RFC 6455 section 5) without I/O: the caller passes byte slices and gets events or bytes.
//!
//! A message that is complete in the caller's buffer is unmasked in place and returned from there. Only an incomplete
//! message is copied, so an idle connection holds nothing.
//!
//! Hand-written: `tungstenite` and `fastwebsockets` own their stream and keep a buffer for each connection.

mod decoder;
pub(crate) mod encoder;
mod head;
mod mask;
pub(crate) mod opcode;
mod role;
mod violation;

pub use decoder::{Assembly, FrameEvent};
pub use encoder::{encode_close, encode_frame, encode_header, encode_masked_frame};
pub use head::CLOSE_REASON_MAX;
pub use mask::mask;
pub use opcode::Opcode;
pub use role::Role;
pub use violation::Violation;
