//! The connections of a shard: slots with generations, in chunks that never move.
//!
//! The project does not use `slab` or `slotmap`: they keep one vector, which moves all connections when it grows.

use touchline_engine::{ConnectionId, Session};
use touchline_protocol::Wire;

use super::due::Due;
use super::input::Input;
use super::queue::Queue;
use crate::net::agent::Agent;
use crate::net::socket::Socket;
use crate::net::transport::Transport;
use crate::runtime::rate_limiter::RateLimiter;

/// How many connections one allocation holds.
const CHUNK: usize = 256;
/// The slot number that means "no slot".
pub(super) const NONE: u32 = u32::MAX;

/// One client connection. It holds no buffer while it is idle.
pub(super) struct Connection {
    pub(super) socket: Socket,
    pub(super) session: Session,
    pub(super) transport: Transport,
    /// The encoding and framing of the connection's messages.
    pub(super) wire: Wire,
    /// Part of a message that has begun to arrive.
    pub(super) input: Input,
    /// Output that will be written, in order.
    pub(super) due: Due,
    /// Output that the socket did not take; None = the socket is not blocked.
    pub(super) queue: Option<Box<Queue>>,
    pub(super) stage: ConnectionStage,
    /// When the wheel reports the connection, in Unix milliseconds; 0 = it is not booked.
    pub(super) booked_ms: u64,
    /// The neighbours in the list of the user's connections.
    pub(super) next_of_user: u32,
    pub(super) previous_of_user: u32,
    pub(super) is_listed: bool,
    /// Whether the client has not connected yet.
    pub(super) is_unauthenticated: bool,
    /// Whether the connect of the client was reported to the thread that sends events.
    pub(super) is_told: bool,
    pub(super) agent: Agent,
    /// The number of the client's program in the shard's metrics.
    pub(super) program: u8,
    /// The close code, as of a WebSocket; 0 = neither side has sent one.
    pub(super) close_code: u16,
    /// When the connection was opened, in tenths of a second of the node's clock.
    pub(super) opened: u32,
    /// When the socket last took all waiting output, in tenths of a second of the node's clock; 0 = no output has
    /// waited.
    pub(super) drained: u32,
    /// What the client has sent, compared with its rates.
    pub(super) rate_limiter: RateLimiter,
    /// Whether the shard does not read the connection, because it is above its rates.
    pub(super) is_throttled: bool,
    /// How many bytes of the node's memory the connection is charged for.
    pub(super) buffered: u32,
    /// Whether the connection's input waits until there is room for answers again.
    pub(super) is_held: bool,
    /// Whether the client has sent input since the server last sent a ping.
    pub(super) has_spoken: bool,
}

/// The stage of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionStage {
    /// The session of the connection is running.
    Open,
    /// The server has sent a close frame and waits for the client's until this time, in tenths of a second of the
    /// node's clock.
    Closing(u32),
    /// The socket is closed once all output is written, or at this time, in tenths of a second of the node's clock.
    Ending(u32),
    /// The server has closed its side, and waits until this time for the peer to close its own side, in tenths of a
    /// second of the node's clock. It reads no more input.
    ///
    /// A socket that is closed while it holds unread input resets the connection, and the peer's system then discards
    /// output that the peer has not read yet (RFC 2525 section 2.17): the reason of the end would be lost.
    Lingering(u32),
}

struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

/// The slots of a shard.
#[derive(Default)]
pub(super) struct Connections {
    chunks: Vec<Vec<Slot>>,
    free: Vec<u32>,
    open: usize,
}

impl Connections {
    /// The slot that the next [`Connections::insert`] uses, and its generation.
    pub(super) fn vacant(&mut self) -> (u32, u32) {
        if self.free.is_empty() {
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push((0..CHUNK).map(|_| Slot { generation: 0, connection: None }).collect());
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        let slot = self.free.last().copied().unwrap_or(NONE);
        (slot, self.generation(slot))
    }

    /// Inserts a connection into the vacant slot.
    pub(super) fn insert(&mut self, connection: Connection) {
        if let Some(slot) = self.free.pop()
            && let Some(entry) = self.slot_mut(slot)
        {
            entry.connection = Some(connection);
            self.open += 1;
        }
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Connection> {
        self.slot(slot)?.connection.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slot_mut(slot)?.connection.as_mut()
    }

    /// Removes a connection. Its slot has a new generation afterwards.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Connection> {
        let entry = self.slot_mut(slot)?;
        let connection = entry.connection.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
        self.open -= 1;
        Some(connection)
    }

    /// Frees a slot whose connection could not be closed properly, because the close panicked.
    pub(super) fn forget(&mut self, slot: u32) {
        drop(self.remove(slot));
    }

    pub(super) fn generation(&self, slot: u32) -> u32 {
        self.slot(slot).map_or(0, |slot| slot.generation)
    }

    /// Whether an id belongs to the connection that occupies its slot now.
    pub(super) fn is_current(&self, id: ConnectionId) -> bool {
        self.slot(id.slot).is_some_and(|slot| slot.generation == id.generation && slot.connection.is_some())
    }

    pub(super) fn len(&self) -> usize {
        self.open
    }

    /// The occupied slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let all = self.chunks.iter().flatten().zip(0u32..);
        all.filter(|(slot, _)| slot.connection.is_some()).map(|(_, index)| index)
    }

    /// How many slots were ever made.
    pub(super) fn slot_count(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    /// Returns a slot; None = it was never made. Clients can send any slot number, because it is part of their client
    /// ids.
    fn slot(&self, slot: u32) -> Option<&Slot> {
        self.chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)
    }

    fn slot_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        self.chunks.get_mut(slot as usize / CHUNK)?.get_mut(slot as usize % CHUNK)
    }
}
