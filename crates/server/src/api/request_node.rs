//! The node as one request of the server API sees it.

use std::ops::Deref;

use crate::node::Node;
use crate::runtime::generation::Generation;

/// The node, with the settings that were in force when the request arrived. All parts of a request use the same
/// settings, also if the configuration is reloaded in the meantime: [`RequestNode::generation`] hides
/// [`Node::generation`].
#[derive(Clone, Copy)]
pub(crate) struct RequestNode<'a> {
    node: &'a Node,
    generation: &'a Generation,
}

impl<'a> RequestNode<'a> {
    /// Makes the view of a request. It is called once for each request, where the request arrives.
    pub(crate) fn new(node: &'a Node, generation: &'a Generation) -> Self {
        RequestNode { node, generation }
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
