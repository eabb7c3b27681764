//! The thread that owns the node's directory: names, groups, presence and calls. Orders come in through one queue, in batches; whatever
//! the directory wants done is done here.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use touchline_engine::directory::{Act, Ask, Directory, ScopeFigures, Who};
use touchline_engine::request::Publish;
use touchline_engine::{Request, Response, ShardId};
use touchline_protocol::Disconnect;
use touchline_protocol::publication::Content;
use touchline_registry::OwnerId;
use touchline_store::Letter;

use crate::inbox::{Asker, ClientOrder};
use crate::node::Node;
use crate::store;

/// Orders carried out before what they come to is sent.
const BATCH: usize = 1_024;
/// Between two looks at the time while something depends on it.
const TICK: Duration = Duration::from_millis(50);
/// The same while nothing does.
const REST: Duration = Duration::from_secs(3_600);

/// An order for the registrar.
pub(crate) enum Order {
    /// From a client or from the server API.
    Ask { who: Who, ask: Ask, asker: Asker },
    /// Another node's part of a scope says something.
    Link { scope: Arc<str>, message: Bytes },
    /// Another node's directory says something.
    Node { from: Arc<str>, message: Bytes },
    /// A connection that was to be given something is not there.
    Gone(OwnerId),
    /// There is a letter for a name.
    Mail { scope: Arc<str>, name: Box<str> },
    /// Letters to a name; none = they can't be had now.
    Letters { scope: Arc<str>, name: Box<str>, letters: Option<Vec<(u64, Bytes)>> },
    /// Letters that have arrived and are thrown away.
    Discarded(Vec<u64>),
    /// What has been counted.
    Figures(oneshot::Sender<Figures>),
    /// The node stops.
    Stop,
}

/// What the registrar has counted.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) scopes: Vec<ScopeFigures>,
    pub(crate) calls_waiting: usize,
}

/// Starts the thread.
///
/// # Errors
/// When the system refuses it.
pub(crate) fn start(node: Arc<Node>, directory: Directory<Asker>, orders: Receiver<Order>) -> io::Result<JoinHandle<()>> {
    let registrar = Registrar { node, directory };
    std::thread::Builder::new().name("registry".into()).spawn(move || registrar.run(&orders))
}

struct Registrar {
    node: Arc<Node>,
    directory: Directory<Asker>,
}

impl Registrar {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut ticked_ms = 0;
        loop {
            let is_timed = self.node.cluster.is_some() || self.directory.next_deadline_ms().is_some();
            let first = match orders.recv_timeout(if is_timed { TICK } else { REST }) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let now_ms = self.node.clock.now_ms();
            let batch = first.into_iter().chain(std::iter::from_fn(|| orders.try_recv().ok())).take(BATCH);
            let mut is_over = false;
            for order in batch {
                is_over |= matches!(order, Order::Stop);
                self.obey(order, now_ms);
            }
            if now_ms >= ticked_ms + TICK.as_millis() as u64 {
                ticked_ms = now_ms;
                self.directory.tick(now_ms);
                if self.node.note_peers(self.directory.peer_ids())
                    && let Some(cluster) = &self.node.cluster
                {
                    // A node came, perhaps back from behind a cut: what it let through meanwhile may be missing here.
                    cluster.suspect();
                }
            }
            self.directory.flush();
            self.perform();
            if is_over {
                return;
            }
        }
    }

    fn obey(&mut self, order: Order, now_ms: u64) {
        match order {
            Order::Ask { who, ask, asker } => {
                let asker = (!matches!(asker, Asker::Nobody)).then_some(asker);
                self.directory.ask(&who, ask, asker, now_ms);
            }
            Order::Link { scope, message } => self.directory.receive(&scope, &message, now_ms),
            Order::Node { from, message } => self.directory.receive_from_node(&from, &message, now_ms),
            Order::Gone(owner) => {
                let who = Who { owner, user: Box::default(), is_backend: true };
                self.directory.ask(&who, Ask::Close, None, now_ms);
            }
            Order::Mail { scope, name } => self.directory.mail(&scope, &name),
            Order::Letters { scope, name, letters } => self.directory.deliver(&scope, &name, letters, now_ms),
            Order::Discarded(ids) => self.directory.discarded(&ids),
            Order::Figures(reply) => {
                let (scopes, calls_waiting) = (self.directory.figures().collect(), self.directory.calls_waiting());
                let _ = reply.send(Figures { scopes, calls_waiting });
            }
            Order::Stop => self.directory.goodbye(),
        }
    }

    fn perform(&mut self) {
        let Registrar { node, directory } = self;
        for act in directory.acts() {
            match act {
                Act::Answer(asker, answer) => node.answer(asker, answer.map_or_else(Response::Refused, Response::Answer)),
                Act::Push(owner, message) => node.order_client(owner, ClientOrder::Push(message)),
                Act::Drop(owner) => node.order_client(owner, ClientOrder::Disconnect(Disconnect::FORCE_NO_RECONNECT)),
                Act::Announce(channel, frame) => {
                    node.tell_home(channel, Request::Announce(frame));
                }
                Act::Watch(channel, json) => {
                    let content = Content { data: json.into(), ..Content::default() };
                    let request = Request::Publish(Box::new(Publish { content, ..Publish::default() }));
                    node.tell_home(channel, request);
                }
                Act::Link { scope, to, message } => {
                    if let Some(cluster) = &node.cluster {
                        cluster.link(&scope, to.as_ref(), Bytes::from_owner(message));
                    }
                }
                Act::Post { scope, name, message, expires_ms, most, asker } => {
                    store::post(node, Letter { scope, name, message: message.into(), expires_ms, most }, asker);
                }
                Act::Fetch { scope, name, behind, limit } => {
                    if let Some(store) = node.store() {
                        store.letters(scope, name, behind, limit);
                    }
                }
                Act::Discard { ids, asker } => store::discard(node, ids, asker),
                Act::Node(to, message) => {
                    if let Some(cluster) = &node.cluster {
                        cluster.node(to, message);
                    }
                }
            }
        }
    }
}

/// Where the connection of a client id is, if it is one of this node: its shard and slot are part of the id.
pub(crate) fn route(owner: OwnerId, shards: usize) -> Option<(ShardId, u32)> {
    let [.., a, b, c, d, e, f] = owner.0;
    let shard = u16::from_be_bytes([a, b]);
    (usize::from(shard) < shards).then(|| (shard, u32::from_be_bytes([c, d, e, f])))
}

/// The last bytes of a client id: where its connection is.
pub(crate) fn place(shard: ShardId, slot: u32) -> [u8; 6] {
    let ([a, b], [c, d, e, f]) = (shard.to_be_bytes(), slot.to_be_bytes());
    [a, b, c, d, e, f]
}
