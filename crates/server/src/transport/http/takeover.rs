//! How a request takes its connection out of HTTP.

use std::cell::RefCell;

use tokio::sync::Notify;

use super::respond::HttpResponse;
use super::routed::HandedOver;
use super::stream::Admitted;
use crate::net::negotiated::Negotiated;

/// What a connection becomes when a request takes it over.
pub(crate) enum Taken {
    /// A WebSocket, once the answer is written.
    Upgrade(Negotiated),
    /// An endless answer to this request.
    Stream(Box<Admitted>),
    /// A task takes it, once the answer is written, or at once.
    HandOver(HandedOver),
}

/// The slot in which a request announces that it takes its connection over.
#[derive(Default)]
pub(crate) struct Takeover {
    taken: RefCell<Option<Taken>>,
    now: Notify,
}

impl Takeover {
    /// Announces that the connection is taken over once the answer is written.
    pub(crate) fn set(&self, taken: Taken) {
        self.taken.replace(Some(taken));
    }

    /// Takes the connection over at once. It never returns, so hyper writes no answer.
    pub(crate) async fn take(&self, taken: Taken) -> HttpResponse {
        self.set(taken);
        self.now.notify_one();
        std::future::pending().await
    }

    /// Returns when a request has called [`Takeover::take`].
    pub(crate) async fn now(&self) {
        self.now.notified().await;
    }

    /// Removes and returns the announcement; None = no request has taken the connection over.
    pub(crate) fn taken(&self) -> Option<Taken> {
        self.taken.take()
    }
}
