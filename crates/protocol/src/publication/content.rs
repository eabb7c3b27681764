//! What a publication says, and where it stands in its channel.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::stream::Offset;

/// Who published, joined, left or is present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// The user; empty = anonymous.
    pub user: Box<str>,
    /// The client id, a UUID in its usual form.
    pub client: Box<str>,
    /// A payload from the connection's token.
    pub conn_info: Option<Bytes>,
    /// A payload from the subscription's token.
    pub chan_info: Option<Bytes>,
}

/// Labels of a publication, for filters.
pub type Tags = BTreeMap<String, String>;

/// What a publication says, before it has its place in a channel.
#[derive(Debug, Clone, Default)]
pub struct Content {
    /// A payload: a JSON value on one line ([`crate::notation`]).
    pub data: Bytes,
    /// Labels.
    pub tags: Tags,
    /// The client that published; none for the server API.
    pub info: Option<Arc<ClientInfo>>,
    /// From then on nobody is given it any more, Unix milliseconds; 0 = it does not expire.
    pub expires_ms: u64,
}

/// Where a publication stands in a channel with history.
#[derive(Debug, Clone, Copy)]
pub struct LogPosition<'a> {
    /// Its offset, from 1 on.
    pub offset: Offset,
    /// The channel's epoch.
    pub epoch: &'a str,
    /// When it was accepted, Unix milliseconds.
    pub time_ms: u64,
}
