//! The node as one request of the server API sees it.

use std::cell::Cell;
use std::ops::Deref;
use std::time::Duration;

use super::operation_error::OperationError;
use crate::node::Node;
use crate::runtime::generation::Generation;

/// The node, with the settings that were in force when the request arrived. All parts of a request use the same
/// settings, also if the configuration is reloaded in the meantime: [`RequestNode::generation`] hides
/// [`Node::generation`].
#[derive(Clone, Copy)]
pub(crate) struct RequestNode<'a> {
    node: &'a Node,
    generation: &'a Generation,
    has_limit: bool,
    refused: Option<&'a Cell<Option<OperationError>>>,
}

impl<'a> RequestNode<'a> {
    /// Makes the view of a request. It is called once for each request, where the request arrives.
    pub(crate) fn new(node: &'a Node, generation: &'a Generation) -> Self {
        RequestNode { node, generation, has_limit: true, refused: None }
    }

    /// The view of a request whose first refused channel is logged. `refused`: why that channel was refused.
    pub(crate) fn noting(self, refused: &'a Cell<Option<OperationError>>) -> Self {
        RequestNode { refused: Some(refused), ..self }
    }

    /// Notes why one channel of a request was refused, while the request as a whole succeeds.
    pub(crate) fn note_refused(self, refusal: &OperationError) {
        if let Some(refused) = self.refused {
            refused.set(refused.take().or_else(|| Some(refusal.clone())));
        }
    }

    /// The view of a command of a consumer, which waits as long as the command takes.
    pub(crate) fn without_limit(self) -> Self {
        RequestNode { has_limit: false, ..self }
    }

    /// The time that the request may take, so that its answer leaves within `http_server.request_timeout`; None = it
    /// has no limit.
    pub(crate) fn time(self) -> Option<Duration> {
        let limit = self.generation.settings.http_server.request_timeout;
        self.has_limit.then(|| limit - (limit / 2).min(Duration::from_secs(1)))
    }

    /// The settings of the request.
    pub(crate) fn generation(self) -> &'a Generation {
        self.generation
    }

    /// The node, for work that outlives the request or does not use settings.
    pub(crate) fn node(self) -> &'a Node {
        self.node
    }
}

impl Deref for RequestNode<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.node
    }
}
