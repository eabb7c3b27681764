//! What this node tells: all that some endpoint of the ledger is told of, whichever node has named it. What nobody asks
//! for is kept aside, so that it can be told when another node asks for it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use touchline_engine::events::{EventDraft, EventKind, StateKey};
use touchline_engine::ledger::{EndpointWish, WishList};
use touchline_registry::{FoldState, HashSeed};

use crate::node::Node;

/// What is told, and what nobody asks for.
pub(super) struct WishFilter {
    node: Arc<Node>,
    list: RefCell<WishList>,
    tells_clients: Cell<bool>,
    clients: RefCell<HashMap<String, EventDraft, FoldState>>,
    keys: RefCell<HashSet<StateKey, FoldState>>,
}

/// What was kept aside and is told from now on.
pub(super) struct AskedAnew {
    pub(super) clients: Vec<EventDraft>,
    pub(super) keys: Vec<StateKey>,
}

impl WishFilter {
    /// `own`: what this node wants its endpoints to be told.
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

    /// The version of the list by which this node tells.
    pub(super) fn version(&self) -> u64 {
        self.list.borrow().version
    }

    /// From now on these wishes are told. A kind that is not wished any more is still noted until the next start, and
    /// reaches no endpoint.
    pub(super) fn apply(&self, list: WishList) -> AskedAnew {
        self.set(list);
        let clients = if self.tells_clients.get() { self.clients.borrow_mut().drain().collect() } else { Vec::new() };
        let keys = self.keys.borrow_mut().extract_if(|key| self.counts(key)).collect();
        AskedAnew { clients: clients.into_iter().map(|(_, draft)| draft).collect(), keys }
    }

    /// Whether some endpoint is told of this. `channel`: that it is about, if endpoints are told of some only.
    pub(super) fn is_told(&self, kind: EventKind, channel: Option<&str>) -> bool {
        let namespace = channel.map(|channel| self.node.generation().session.namespaces.namespace_of(channel));
        self.list.borrow().is_told(kind, namespace)
    }

    /// Whether some endpoint is told whether a key is held.
    fn counts(&self, key: &StateKey) -> bool {
        let (kinds, channel) = match key {
            StateKey::Channel(name) => ([EventKind::Occupied, EventKind::Vacated], Some(&**name)),
            StateKey::User(_) => ([EventKind::UserOnline, EventKind::UserOffline], None),
        };
        kinds.into_iter().any(|kind| self.is_told(kind, channel))
    }

    /// A client has connected. Returns it unless nobody asks for clients.
    pub(super) fn connected(&self, draft: EventDraft) -> Option<EventDraft> {
        if self.tells_clients.get() {
            return Some(draft);
        }
        self.clients.borrow_mut().insert(draft.subject.clone(), draft);
        None
    }

    /// A client is gone. Returns whether it was kept aside.
    pub(super) fn disconnected(&self, client: &str) -> bool {
        self.clients.borrow_mut().remove(client).is_some()
    }

    /// Whether a key is held has changed. Returns whether somebody asks for it.
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
