//! The wire protocol: commands, replies, publications, codes, and the WebSocket envelope, in JSON and in Protobuf. The
//! caller passes byte slices and gets values, events or bytes.
//!
//! The crate is pure: it uses no runtime, no clock, no randomness and no sockets. The source of the client protocol is
//! `client.proto` of the Centrifugal protocol, version 2, in its JSON and Protobuf form.
//!
//! It is neither a client nor a server: it holds no connection and no session. `touchline-engine` executes commands.
//!
//! ```
//! use touchline_protocol::Wire;
//! use touchline_protocol::command::{CommandKind, Commands};
//! use touchline_protocol::message::{Encoding, Messages, Reply};
//!
//! let input = br#"{"id":1,"publish":{"channel":"news","data":{"n":1}}}"#;
//! let command = Commands::read(Encoding::Json, input).next().expect("there is one").expect("it is well-formed");
//! assert!(matches!(&command.operation, Some(CommandKind::Publish(publish)) if publish.channel == "news"));
//!
//! let mut messages = Messages::default();
//! messages.reply(command.id, &Reply::Publish);
//! assert_eq!(messages.bytes(), br#"{"id":1,"publish":{}}"#);
//!
//! // The same as a frame of text (0x81) of 21 bytes.
//! let mut frame = Vec::new();
//! Wire::JSON.frame(messages.bytes(), &mut frame);
//! assert_eq!((frame[0], frame[1], &frame[2..]), (0x81, 21, messages.bytes()));
//! ```
//!
//! # Where to begin
//!
//! 1. `command/types.rs`: the commands of a client as values. `command/reader.rs` reads them from a frame.
//! 2. `message/types.rs`: replies and pushes as values. `message/messages.rs` writes them for one client.
//! 3. `publication/encoded.rs`: a publication, with the encodings that its subscribers share.
//! 4. `wire.rs`: the forms in which messages are sent: an encoding, and a framing around it.
//!
//! # What never happens
//!
//! - Nothing here reads a clock, opens a socket or a file, or starts a thread.
//! - No input from a peer causes a panic. It is read, or refused as malformed or as a violation.
//! - No encoding of a publication is made before a connection needs it, except JSON in a WebSocket frame.
//! - No encoding of a publication is made twice for the subscribers that share it.

pub mod code;
pub mod command;
pub mod data;
pub mod deflate;
pub mod emulation;
pub mod encode;
mod encoding;
pub mod fact;
pub mod filter;
mod fossil;
pub mod lines;
pub mod message;
pub mod notation;
pub mod payload;
pub mod protobuf;
pub mod publication;
pub mod stored;
pub mod stream;
pub mod websocket;
pub mod wire;

pub use code::{Disconnect, Error, ErrorEntry, Unsubscribe};
pub use command::Command;
pub use publication::{ClientInfo, Publication};
pub use stream::{ChannelName, NamespaceName, Offset};
pub use wire::Wire;
