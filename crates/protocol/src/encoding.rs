//! The encodings of messages: JSON, Protobuf, and pushes alone.

/// How messages are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Replies as JSON, one a line.
    #[default]
    Json,
    /// Replies as Protobuf, each with its length before it.
    Protobuf,
    /// For a client that only listens: pushes as JSON, without anything around them, one a line.
    Push,
}
