//! Payloads that claims and answers of backends contain as base64.

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;
use touchline_protocol::notation::{decode_base64, notation};

/// A payload that arrived as base64: JSON, or the notation of bytes that are not JSON.
#[derive(Debug)]
pub struct Base64Payload(pub Box<RawValue>);

/// The notation for bytes that arrived as base64, even if they are JSON. The channel's format decides how they are
/// interpreted.
#[derive(Debug)]
pub struct Base64Bytes(pub Box<RawValue>);

impl<'de> Deserialize<'de> for Base64Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = decoded(deserializer)?;
        match serde_json::from_slice::<&RawValue>(&bytes) {
            Ok(json) => Ok(Base64Payload(json.to_owned())),
            Err(_) => noted(&bytes).map(Base64Payload),
        }
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        noted(&decoded(deserializer)?).map(Base64Bytes)
    }
}

fn decoded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    decode_base64(&String::deserialize(deserializer)?).ok_or_else(|| de::Error::custom("not base64"))
}

fn noted<E: de::Error>(bytes: &[u8]) -> Result<Box<RawValue>, E> {
    serde_json::from_slice(&notation(bytes)).map_err(E::custom)
}
