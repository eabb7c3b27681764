//! Requests that wait until their channel is live.

use std::collections::HashSet;

use touchline_engine::ConnectionId;
use touchline_engine::request::WaitingRequest;

use crate::runtime::reply_to::ReplyTo;

/// The requests to one channel that wait until the channel is live, in order.
#[derive(Default)]
pub(super) struct WaitingRequests {
    pub(super) requests: Vec<(WaitingRequest, ReplyTo)>,
    /// The subscribers that subscribe or unsubscribe by one of these requests. So the next request need not be compared
    /// with all that wait.
    pub(super) subscribers: HashSet<ConnectionId>,
}

impl WaitingRequests {
    /// Adds a request behind the others.
    pub(super) fn push(&mut self, request: WaitingRequest, reply_to: ReplyTo) {
        self.subscribers.extend(request.request().subscriber());
        self.requests.push((request, reply_to));
    }
}
