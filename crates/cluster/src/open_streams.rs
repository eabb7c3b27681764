//! Streams that are open.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::history::Streams;
use crate::loader::Loader;
use crate::settings::JoinOptions;

/// The open streams, with the tasks that use them.
pub(crate) struct OpenStreams {
    pub(crate) streams: Streams,
    pub(crate) loader: Loader,
    /// The watch ends when this is dropped.
    pub(crate) _watch: JoinSet<()>,
}

/// Streams, how often the connection had been lost when they began to be opened, and the settings they were opened by.
pub(crate) type OpenedStream = (u64, Arc<JoinOptions>, Streams);
