//! The encodings of messages: JSON, Protobuf, and JSON pushes only.

/// How messages are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// JSON, one message on each line.
    #[default]
    Json,
    /// Protobuf, each message preceded by its length.
    Protobuf,
    /// For a client that only listens: JSON pushes without an envelope, one on each line.
    Push,
}
