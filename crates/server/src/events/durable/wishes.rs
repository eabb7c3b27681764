//! What this node reports: everything that an endpoint in the ledger asks for, whichever node has named the endpoint.
//! What no endpoint asks for is kept aside, so that it can be reported when another node asks for it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use touchline_engine::events::{EventDraft, EventKind, StateKey};
use touchline_engine::ledger::{EndpointWish, WishList};
use touchline_registry::{FoldState, HashSeed};

use crate::node::Node;

/// What is reported, and what no endpoint asks for.
pub(super) struct WishFilter {
    node: Arc<Node>,
    list: RefCell<WishList>,
    tells_clients: Cell<bool>,
    clients: RefCell<HashMap<String, EventDraft, FoldState>>,
    keys: RefCell<HashSet<StateKey, FoldState>>,
}

/// What was kept aside and is reported from now on.
pub(super) struct AskedAnew {
    pub(super) clients: Vec<EventDraft>,
    pub(super) keys: Vec<StateKey>,
}

impl WishFilter {
    /// Makes a filter. `own`: what this node wants its endpoints to receive.
    pub(super) fn new(node: Arc<Node>, own: Vec<EndpointWish>, seed: HashSeed) -> Self {
        let filter = WishFilter {
            node,
            list: RefCell::default(),
            tells_clients: Cell::new(false),
            clients: RefCell::new(HashMap::with_hasher(seed.fold())),
            keys: RefCell::new(HashSet::with_hasher(seed.fold())),
        };
        filter.set(WishList { version: 0, wishes: own });
        filter
    }

    fn set(&self, list: WishList) {
        let tells_clients = [EventKind::Connected, EventKind::Disconnected].map(|kind| list.is_told(kind, None));
        self.tells_clients.set(tells_clients.contains(&true));
        if let Some(events) = self.node.events.get() {
            events.widen(list.kinds());
        }
        *self.list.borrow_mut() = list;
    }

    /// Returns the version of the list that this node fulfils.
    pub(super) fn version(&self) -> u64 {
        self.list.borrow().version
    }

    /// Applies new wishes. A kind that is no longer wished for is still noted until the next start, and reaches no
    /// endpoint.
    pub(super) fn apply(&self, list: WishList) -> AskedAnew {
        self.set(list);
        let clients = if self.tells_clients.get() { self.clients.borrow_mut().drain().collect() } else { Vec::new() };
        let keys = self.keys.borrow_mut().extract_if(|key| self.counts(key)).collect();
        AskedAnew { clients: clients.into_iter().map(|(_, draft)| draft).collect(), keys }
    }

    /// Whether an endpoint receives this event. `channel`: the channel of the event, if endpoints may ask for some
    /// channels only.
    pub(super) fn is_told(&self, kind: EventKind, channel: Option<&str>) -> bool {
        let namespace = channel.map(|channel| self.node.generation().session.namespaces.namespace_of(channel));
        self.list.borrow().is_told(kind, namespace)
    }

    /// Whether an endpoint receives the state of a key.
    fn counts(&self, key: &StateKey) -> bool {
        let (kinds, channel) = match key {
            StateKey::Channel(name) => ([EventKind::Occupied, EventKind::Vacated], Some(&**name)),
            StateKey::User(_) => ([EventKind::UserOnline, EventKind::UserOffline], None),
        };
        kinds.into_iter().any(|kind| self.is_told(kind, channel))
    }

    /// Handles a connected client. Returns it unless no endpoint asks for clients.
    pub(super) fn connected(&self, draft: EventDraft) -> Option<EventDraft> {
        if self.tells_clients.get() {
            return Some(draft);
        }
        self.clients.borrow_mut().insert(draft.subject.clone(), draft);
        None
    }

    /// Handles the end of a client. Returns whether the client was kept aside.
    pub(super) fn disconnected(&self, client: &str) -> bool {
        self.clients.borrow_mut().remove(client).is_some()
    }

    /// Handles a key that is held now, or no longer. Returns whether an endpoint asks for it.
    pub(super) fn held(&self, key: &StateKey, is_held: bool) -> bool {
        if !is_held {
            return !self.keys.borrow_mut().remove(key);
        }
        let is_asked = self.counts(key);
        if !is_asked {
            self.keys.borrow_mut().insert(key.clone());
        }
        is_asked
    }
}
