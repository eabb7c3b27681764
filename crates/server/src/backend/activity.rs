//! Actions of the node itself, for the log of changes.

use crate::console::Activity;
use crate::node::Node;

/// Notes an action of the node itself.
pub(crate) fn note_activity(node: &Node, what: &str, target: &str, result: &str) {
    node.console.activity.note(Activity {
        at_ms: node.clock.now_ms(),
        node: node.generation().settings.node.name.clone(),
        who: "the node".to_owned(),
        what: what.to_owned(),
        target: target.to_owned(),
        result: result.to_owned(),
        ..Activity::default()
    });
}
