//! Turns the outputs of the scopes' replicas into effects.

use std::sync::Arc;

use touchline_registry::Output;

use super::effect::DirectoryEffect;
use super::inbox_delivery::inbox_change;
use super::scope::ScopeId;
use super::state::{Directory, Scope};
use super::{answer, presence, told};

impl<A> Directory<A> {
    /// Turns the queued outputs of the replicas into effects.
    pub(super) fn collect(&mut self) {
        let last = self.scopes.len() - 1;
        let (mut nodes_gone, mut inbox_changes, mut is_probe_requested) = (Vec::new(), Vec::new(), false);
        let Directory { scopes, effects, is_clustered, node: me, told, acting, .. } = self;
        for (index, scope) in scopes.iter_mut().enumerate() {
            let Scope { name, options, replica, watch } = scope;
            for output in replica.outputs() {
                if let Some(told) = *told {
                    match &output {
                        Output::Event(event) => {
                            let of = (&*me, acting.as_ref(), index == last);
                            effects.extend(told::of_event(told, name, event, of));
                        }
                        Output::Lost { lost, winner, reason } => {
                            effects.extend(told::of_loss(told, name, (lost, winner), *reason));
                        }
                        _ => {}
                    }
                }
                match output {
                    Output::Send { to, message } if *is_clustered => {
                        effects.push(DirectoryEffect::SendToScope { scope: Arc::clone(name), to, message })
                    }
                    Output::Send { .. } => {}
                    Output::Resolve { mine, other } => {
                        effects.push(DirectoryEffect::ResolveConflict { scope: Arc::clone(name), mine, other });
                    }
                    Output::Event(event) if index == last => effects.extend(presence::announce(&event)),
                    Output::Event(event) => {
                        if options.inbox_size > 0 {
                            inbox_changes.extend(inbox_change(ScopeId(index as u16), &event, me));
                        }
                        if let Some(watch) = watch {
                            watch.note(event);
                        }
                    }
                    Output::Lost { lost, winner, reason } => {
                        effects.push(DirectoryEffect::Push(lost.owner(), answer::lost(name, &lost, &winner, reason)));
                        effects.extend(options.disconnect_losers.then(|| DirectoryEffect::Disconnect(lost.owner())));
                    }
                    Output::Node { node, is_up, .. } if index == last && !is_up => nodes_gone.push(node),
                    Output::Node { .. } => {}
                    Output::Probe => is_probe_requested = true,
                    Output::Differs { node } => {
                        effects.push(DirectoryEffect::OptionsDiffer { scope: Arc::clone(name), node })
                    }
                }
            }
        }
        if is_probe_requested {
            self.probe();
        }
        for (address, owner) in inbox_changes {
            match owner {
                Some(owner) => {
                    let fetch = self.inbox.open(address, owner);
                    self.fetch(fetch);
                }
                None => self.inbox.close(&address),
            }
        }
        for node in nodes_gone {
            let done = self.calls.node_gone(&node);
            self.finish_all(done);
        }
    }
}
