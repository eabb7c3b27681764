//! How a node joins: its settings are checked, then the thread starts.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::sync::mpsc::unbounded_channel;

use crate::errors::JoinError;
use crate::events::{ClusterEvent, ClusterEventSink};
use crate::handle::{Cluster, LinkParts, ReplySender};
use crate::nats::NatsServers;
use crate::room::OutgoingRoom;
use crate::settings::JoinOptions;
use crate::{connection, options};

/// The default size limit of a NATS message, bytes.
const MESSAGE_SIZE_DEFAULT: usize = 1_024 * 1_024;

/// A node that is about to join.
pub struct Joining {
    settings: JoinOptions,
    servers: NatsServers,
    link: LinkParts,
}

/// Checks whether a node could join with these settings, without connecting to NATS.
///
/// # Errors
/// See [`JoinError`].
pub fn check(settings: &JoinOptions) -> Result<(), JoinError> {
    options::options(settings).map(drop)
}

/// Prepares to join. Messages that the handle sends wait until [`Joining::start`].
///
/// # Errors
/// See [`JoinError`].
pub fn join(settings: JoinOptions) -> Result<(Cluster, Joining), JoinError> {
    let connecting = options::options(&settings)?;
    Ok(prepare(settings, NatsServers::Servers(Box::new(connecting))))
}

/// Makes the handle, and the parts of the thread.
pub(crate) fn prepare(settings: JoinOptions, servers: NatsServers) -> (Cluster, Joining) {
    let (sender, outgoing) = unbounded_channel();
    let message_max = Arc::new(AtomicUsize::new(MESSAGE_SIZE_DEFAULT));
    let (traffic, room) = (Arc::default(), OutgoingRoom::new(settings.outgoing_max_size()));
    let replies = ReplySender { replies: sender.downgrade(), room: Arc::clone(&room) };
    (
        Cluster { outgoing: sender, room, message_max: Arc::clone(&message_max), traffic: Arc::clone(&traffic) },
        Joining { settings, servers, link: LinkParts { outgoing, replies, message_max, traffic } },
    )
}

/// A panic of the cluster's thread ends the process: a node without the others must not serve.
struct LinkGuard;

impl Drop for LinkGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a fault in the link to the other nodes: the process ends");
            std::process::abort();
        }
    }
}

impl Joining {
    /// Starts the thread. NATS need not be reachable yet, because the client tries to connect until it is.
    ///
    /// # Errors
    /// [`JoinError::System`].
    pub fn start(self, incoming: impl Fn(ClusterEvent) + Send + Sync + 'static) -> Result<(), JoinError> {
        self.spawn(Arc::new(incoming))
    }

    /// The work of the thread, until the node leaves.
    pub(crate) async fn run(self, incoming: ClusterEventSink) {
        connection::run(self.settings, self.servers, self.link, incoming).await;
    }

    /// Generic code is compiled again in each crate that calls it, so this part is not generic.
    fn spawn(self, incoming: ClusterEventSink) -> Result<(), JoinError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = self.run(incoming);
        std::thread::Builder::new().name("cluster".into()).spawn(move || {
            let _ends = LinkGuard;
            runtime.block_on(work);
        })?;
        Ok(())
    }
}
