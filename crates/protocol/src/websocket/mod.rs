//! WebSocket framing (RFC 6455 section 5) without I/O: slices in, events or bytes out.
//!
//! A message that lies whole in the caller's buffer is unmasked in place and handed out from there; only what is
//! incomplete is copied, so an idle connection holds nothing.
//!
//! By hand: `tungstenite` and `fastwebsockets` own their stream and keep a buffer for each connection.

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
