//! How a request takes its connection out of HTTP.

use std::cell::RefCell;

use tokio::sync::Notify;

use super::respond::HttpResponse;
use super::stream::Admitted;
use crate::handshake::Negotiated;

/// What becomes of a connection.
pub(super) enum Taken {
    /// It is a WebSocket, once the answer is written.
    Upgrade(Negotiated),
    /// The rest of it is the answer to this request.
    Stream(Box<Admitted>),
}

/// Where a request leaves word.
#[derive(Default)]
pub(super) struct Takeover {
    taken: RefCell<Option<Taken>>,
    now: Notify,
}

impl Takeover {
    /// Once the answer is written the connection is taken.
    pub(super) fn set(&self, taken: Taken) {
        self.taken.replace(Some(taken));
    }

    /// Takes the connection at once: no answer follows.
    pub(super) async fn take(&self, taken: Taken) -> HttpResponse {
        self.set(taken);
        self.now.notify_one();
        std::future::pending().await
    }

    /// Returns when the connection is to be taken at once.
    pub(super) async fn now(&self) {
        self.now.notified().await;
    }

    /// What was left.
    pub(super) fn taken(&self) -> Option<Taken> {
        self.taken.take()
    }
}
