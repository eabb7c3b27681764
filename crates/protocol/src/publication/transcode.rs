//! Converts this crate's JSON of publications and pushes to Protobuf (`client.proto` of the Centrifugal protocol,
//! version 2).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::notation::bytes_of;
use crate::protobuf::{Fields, delimited};

/// The field of a reply that contains a push.
pub(crate) const PUSH: u32 = 4;

/// `ClientInfo` in this crate's JSON.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Info<'a> {
    #[serde(borrow)]
    user: Cow<'a, str>,
    #[serde(borrow)]
    client: Cow<'a, str>,
    #[serde(borrow)]
    conn_info: Option<&'a RawValue>,
    #[serde(borrow)]
    chan_info: Option<&'a RawValue>,
}

impl Info<'_> {
    pub(crate) fn write(&self, fields: &mut Fields<'_>) {
        fields
            .text(1, &self.user)
            .text(2, &self.client)
            .bytes(3, &payload(self.conn_info))
            .bytes(4, &payload(self.chan_info));
    }
}

/// The bytes of a payload. An absent payload is empty.
fn payload(json: Option<&RawValue>) -> Cow<'_, [u8]> {
    json.map_or(Cow::Borrowed(&[]), |json| bytes_of(json.get().as_bytes()))
}

/// A publication in this crate's JSON.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Item<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    info: Option<Info<'a>>,
    offset: u64,
    #[serde(borrow)]
    tags: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    delta: bool,
    time: u64,
    #[serde(borrow)]
    epoch: Cow<'a, str>,
}

impl Item<'_> {
    /// Writes the fields. `is_text` = the payload is not the JSON value itself, but the text inside that JSON string.
    fn write(&self, fields: &mut Fields<'_>, is_text: bool) {
        let text = self.data.filter(|_| is_text).and_then(|data| serde_json::from_str::<Cow<'_, str>>(data.get()).ok());
        match text {
            Some(text) => fields.text(4, &text),
            None => fields.bytes(4, &payload(self.data)),
        };
        if let Some(info) = &self.info {
            fields.message(5, |fields| info.write(fields));
        }
        fields.number(6, self.offset);
        for (key, value) in &self.tags {
            fields.message(7, |entry| {
                entry.text(1, key).text(2, value);
            });
        }
        fields.flag(8, self.delta).number(9, self.time).text(14, &self.epoch);
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ObjectMember<'a> {
    #[serde(borrow)]
    info: Info<'a>,
}

/// A push to many clients in this crate's JSON.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SharedInfo<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(borrow)]
    r#pub: Option<Item<'a>>,
    #[serde(borrow)]
    join: Option<ObjectMember<'a>>,
    #[serde(borrow)]
    leave: Option<ObjectMember<'a>>,
    #[serde(borrow)]
    message: Option<MessageObject<'a>>,
}

/// A message outside channels that several clients get.
#[derive(Deserialize)]
struct MessageObject<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
}

/// Converts a publication's object from this crate's JSON to Protobuf.
pub(crate) fn publication_of_json(json: &[u8], is_text: bool) -> Vec<u8> {
    let item: Item<'_> = serde_json::from_slice(json).unwrap_or_default();
    let mut out = Vec::with_capacity(json.len());
    item.write(&mut Fields(&mut out), is_text);
    out
}

/// Converts a push from this crate's JSON, without anything around it, to a whole Protobuf message.
pub(crate) fn push_of_json(json: &[u8], is_text: bool) -> Vec<u8> {
    let shared: SharedInfo<'_> = serde_json::from_slice(json).unwrap_or_default();
    let mut out = Vec::with_capacity(json.len());
    delimited(&mut out, |out| {
        Fields(out).message(PUSH, |fields| {
            fields.text(2, &shared.channel);
            if let Some(item) = &shared.r#pub {
                fields.message(4, |fields| item.write(fields, is_text));
            }
            for (tag, member) in [(5, &shared.join), (6, &shared.leave)] {
                if let Some(member) = member {
                    fields.message(tag, |fields| {
                        fields.message(1, |fields| member.info.write(fields));
                    });
                }
            }
            if let Some(message) = &shared.message {
                fields.message(8, |fields| {
                    fields.bytes(1, &payload(Some(message.data)));
                });
            }
        });
    });
    out
}
