//! Payloads that claims and answers of backends hold as base64.

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;
use touchline_protocol::notation::{decode_base64, notation};

/// A payload that arrived as base64: JSON, or the notation of other bytes.
#[derive(Debug)]
pub struct Base64Payload(pub Box<RawValue>);

/// Bytes that arrived as base64, as their notation: whether they are to be JSON, the format of a channel says.
#[derive(Debug)]
pub struct Base64Bytes(pub Box<RawValue>);

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = decode_base64(&text).ok_or_else(|| de::Error::custom("not base64"))?;
        serde_json::from_slice(&notation(&bytes)).map(Base64Bytes).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Base64Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = decode_base64(&text).ok_or_else(|| de::Error::custom("not base64"))?;
        let value: &RawValue = match serde_json::from_slice(&bytes) {
            Ok(value) => value,
            Err(_) => return serde_json::from_slice(&notation(&bytes)).map(Base64Payload).map_err(de::Error::custom),
        };
        Ok(Base64Payload(value.to_owned()))
    }
}
