//! The streams that are open.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::history::Streams;
use crate::loader::Loader;
use crate::settings::JoinOptions;

/// The open streams, with the tasks that use them.
pub(crate) struct OpenStreams {
    pub(crate) streams: Streams,
    /// How often the connection had been lost when the opening began.
    pub(crate) lost: u64,
    pub(crate) loader: Loader,
    /// The task that polls the streams. It ends when this is dropped.
    pub(crate) _watch: JoinSet<()>,
}

/// Newly opened streams, with the number of lost connections when the opening began, the settings that were used, and
/// whether these are all streams of the settings.
pub(crate) type OpenedStream = (u64, Arc<JoinOptions>, Streams, bool);
