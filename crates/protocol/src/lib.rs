//! The words on the wire: commands, replies, codes, and the WebSocket envelope.
//!
//! Pure: slices in, values, events or bytes out. No runtime, no clock, no randomness, no sockets.
//! Source of the client protocol: `client.proto` of the Centrifugal protocol, version 2, in its JSON and its Protobuf
//! form.

pub mod code;
pub mod command;
pub mod data;
pub mod deflate;
pub mod emulation;
pub mod encode;
mod encoding;
pub mod filter;
mod fossil;
pub mod lines;
pub mod message;
pub mod protobuf;
pub mod publication;
pub mod stored;
pub mod stream;
pub mod websocket;
pub mod wire;

pub use code::{Disconnect, Error, Unsubscribe};
pub use command::Command;
pub use publication::{ClientInfo, Publication};
pub use stream::{ChannelName, NamespaceName, Offset};
pub use wire::Wire;
