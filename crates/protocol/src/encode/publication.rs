//! Writes a publication and its publisher as JSON.

use super::object::{ObjectWriter, text};
use crate::publication::content::{ClientInfo, Content, LogPosition};
use crate::stream::Offset;

/// Writes `ClientInfo`. The members `user` and `client` are always present.
pub fn client_info(out: &mut Vec<u8>, info: &ClientInfo) {
    let mut object = ObjectWriter::open(out);
    text(object.key("user"), &info.user);
    text(object.key("client"), &info.client);
    object.raw("conn_info", info.conn_info.as_deref()).raw("chan_info", info.chan_info.as_deref());
    object.close();
}

/// Writes a `Publication`. The first publication of a stream (offset 1) also carries the epoch.
pub fn publication(out: &mut Vec<u8>, content: &Content, position: Option<LogPosition<'_>>) {
    let mut object = ObjectWriter::open(out);
    object.raw("data", Some(&content.data));
    if let Some(info) = &content.info {
        client_info(object.key("info"), info);
    }
    if let Some(position) = position {
        object.number("offset", position.offset.0);
    }
    if !content.tags.is_empty() {
        let out = object.key("tags");
        // A map from strings to strings can always be written as JSON.
        let _ = serde_json::to_writer(out, &content.tags);
    }
    object.number("expires_at", content.expires_ms);
    if let Some(position) = position {
        object.number("time", position.time_ms);
        if position.offset == Offset(1) {
            object.text("epoch", position.epoch);
        }
    }
    object.close();
}

/// Writes the position of a publication after its other members.
pub fn position_members(out: &mut Vec<u8>, position: LogPosition<'_>) {
    for (name, value) in [("offset", position.offset.0), ("time", position.time_ms)] {
        out.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
    }
    if position.offset == Offset(1) {
        out.extend_from_slice(b",\"epoch\":");
        text(out, position.epoch);
    }
}
