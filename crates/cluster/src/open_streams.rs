//! The streams that are open.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::history::Streams;
use crate::loader::Loader;
use crate::settings::JoinOptions;

/// The open streams, with the tasks that use them.
pub(crate) struct OpenStreams {
    pub(crate) streams: Streams,
    pub(crate) loader: Loader,
    /// The task that polls the streams. It ends when this is dropped.
    pub(crate) _watch: JoinSet<()>,
}

/// Newly opened streams, with the number of lost connections when the opening began, and the settings that were used.
pub(crate) type OpenedStream = (u64, Arc<JoinOptions>, Streams);
