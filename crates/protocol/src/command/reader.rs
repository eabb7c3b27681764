//! Reads the commands of one frame one by one.

use super::protobuf;
use super::types::Command;
use crate::encoding::Encoding;
use crate::protobuf::Malformed;

/// An iterator over the commands of one frame. It remembers how far it has read.
pub enum Commands<'a> {
    /// JSON values one after the other, usually one on each line.
    Json(serde_json::StreamDeserializer<'a, serde_json::de::SliceRead<'a>, Command<'a>>, &'a [u8]),
    /// Protobuf messages, each preceded by its length.
    Protobuf(&'a [u8]),
}

impl<'a> Commands<'a> {
    /// Starts reading the commands in `input`.
    pub fn read(body: Encoding, input: &'a [u8]) -> Self {
        match body {
            Encoding::Protobuf => Commands::Protobuf(input),
            Encoding::Json | Encoding::Push => {
                Commands::Json(serde_json::Deserializer::from_slice(input).into_iter(), input)
            }
        }
    }

    /// The part of the input that has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        match self {
            Commands::Json(commands, input) => input.get(commands.byte_offset()..).unwrap_or_default(),
            Commands::Protobuf(rest) => rest,
        }
    }
}

impl<'a> Iterator for Commands<'a> {
    type Item = Result<Command<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Commands::Json(commands, _) => Some(commands.next()?.map_err(|_| Malformed)),
            Commands::Protobuf(rest) => protobuf::next(rest),
        }
    }
}
