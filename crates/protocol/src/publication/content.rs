//! The content of a publication and its position in the channel.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::stream::Offset;

/// The client that published, joined, left or is present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// The user id. Empty = anonymous.
    pub user: Box<str>,
    /// The client id, a UUID in its usual form.
    pub client: Box<str>,
    /// A payload from the connection's token. `None` = none.
    pub conn_info: Option<Bytes>,
    /// A payload from the subscription's token. `None` = none.
    pub chan_info: Option<Bytes>,
}

/// The tags of a publication, which filters compare.
pub type Tags = BTreeMap<String, String>;

/// The content of a publication before it has a position in a channel.
#[derive(Debug, Clone, Default)]
pub struct Content {
    /// The payload: a JSON value on one line ([`crate::notation`]).
    pub data: Bytes,
    /// The tags of the publication.
    pub tags: Tags,
    /// The client that published. `None` = the server API published.
    pub info: Option<Arc<ClientInfo>>,
    /// When the publication expires, Unix milliseconds. It is not delivered from then on. 0 = it does not expire.
    pub expires_ms: u64,
}

/// The position of a publication in a channel with history.
#[derive(Debug, Clone, Copy)]
pub struct LogPosition<'a> {
    /// The offset, from 1 on.
    pub offset: Offset,
    /// The epoch of the channel's log.
    pub epoch: &'a str,
    /// When the publication was accepted, Unix milliseconds.
    pub time_ms: u64,
}
