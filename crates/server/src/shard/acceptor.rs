//! The acceptor of a shard: its listeners, and the pending connections, which have been accepted and have sent nothing.

use std::collections::VecDeque;
use std::io::Error;

use hashbrown::HashMap;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Token};

use crate::net::port::{Port, PortRole};
use crate::net::remote::Remote;

/// The tokens of the listeners: of HTTP, of lines and of the internal port.
const LISTENER_TOKENS: [Token; 3] = [Token(usize::MAX), Token(usize::MAX - 1), Token(usize::MAX - 2)];
/// The first token of pending connections; the tokens of other connections are smaller.
const PENDING_TOKENS_FROM: usize = 1 << 32;
// The tokens of connections are their slots, which are numbers of 32 bits.
const _: () = assert!(PENDING_TOKENS_FROM > u32::MAX as usize);
/// The least time between two log lines about connections that can't be accepted, in milliseconds.
const ERROR_REPORT_INTERVAL_MS: u64 = 60_000;
/// The errors of the system when the process or the machine has no file descriptors left (errno(3): EMFILE, ENFILE).
pub(super) const NO_DESCRIPTORS: [i32; 2] = [24, 23];

/// A socket on which a shard listens, and what its port serves.
pub(crate) struct BoundListener {
    pub(crate) socket: std::net::TcpListener,
    pub(crate) port: Port,
}

/// One listener of a shard, and its state.
pub(super) struct Listener {
    pub(super) listener: TcpListener,
    /// Whether connections may wait to be accepted.
    pub(super) is_ready: bool,
    /// Until when this listener accepts no connection, in Unix milliseconds.
    pub(super) paused_until_ms: u64,
    pub(super) port: Port,
}

/// The listeners of a shard, and the pending connections: accepted, but nothing received yet.
pub(super) struct Acceptor {
    pub(super) listeners: Vec<Listener>,
    /// Until when no listener accepts a connection, in Unix milliseconds.
    pub(super) closed_until_ms: u64,
    /// Pending connections by token.
    pub(super) pending: HashMap<usize, PendingConnection>,
    /// The tokens of pending connections by their deadline in Unix milliseconds. The first bytes must have arrived by
    /// then.
    pub(super) deadlines: VecDeque<(u64, usize)>,
    /// The token of the next pending connection.
    pub(super) next_pending: usize,
    /// When the next report about connections that can't be accepted may follow, in Unix milliseconds, and how many
    /// there were since the last report.
    error_report: (u64, u64),
}

/// A connection that has been accepted and has not sent anything yet.
pub(super) struct PendingConnection {
    pub(super) socket: TcpStream,
    pub(super) remote: Remote,
    pub(super) side: PortRole,
}

impl Acceptor {
    /// Makes an acceptor from non-blocking listeners.
    ///
    /// # Errors
    /// The error of the poller, if it does not take a listener.
    pub(super) fn new(listeners: Vec<BoundListener>, registry: &mio::Registry) -> std::io::Result<Self> {
        let mut accepting = Vec::with_capacity(listeners.len());
        for (BoundListener { socket, port }, token) in listeners.into_iter().zip(LISTENER_TOKENS) {
            let mut listener = TcpListener::from_std(socket);
            registry.register(&mut listener, token, Interest::READABLE)?;
            accepting.push(Listener { listener, is_ready: true, paused_until_ms: 0, port });
        }
        Ok(Acceptor {
            listeners: accepting,
            closed_until_ms: 0,
            pending: HashMap::new(),
            deadlines: VecDeque::new(),
            next_pending: PENDING_TOKENS_FROM,
            error_report: (0, 0),
        })
    }

    /// Notes that the poller has reported a listener as ready.
    pub(super) fn on_ready(&mut self, token: Token) {
        if let Some(listener) = self.listeners.get_mut(usize::MAX - token.0) {
            listener.is_ready = true;
        }
    }

    /// The number of pending connections.
    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Whether a connection is still pending.
    pub(super) fn is_waiting(&self, token: Token) -> bool {
        self.pending.contains_key(&token.0)
    }

    /// Closes a pending connection.
    pub(super) fn drop_pending(&mut self, token: Token) {
        self.pending.remove(&token.0);
    }

    /// Logs that connections could not be accepted, at most once in [`ERROR_REPORT_INTERVAL_MS`].
    pub(super) fn report_error(&mut self, error: &Error, now_ms: u64) {
        let (due_ms, count) = &mut self.error_report;
        *count += 1;
        if *due_ms <= now_ms {
            let is_short = error.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code));
            let remedy = if is_short {
                ": raise the limit of open files (systemd: LimitNOFILE=, shells: ulimit -Hn)"
            } else {
                ""
            };
            tracing::warn!(%error, count = *count, "connections could not be accepted{remedy}");
            self.error_report = (now_ms + ERROR_REPORT_INTERVAL_MS, 0);
        }
    }
}

/// Whether a token belongs to a listener.
pub(super) fn is_listener(token: Token) -> bool {
    LISTENER_TOKENS.contains(&token)
}

/// Whether a token belongs to a pending connection.
pub(super) fn is_pending(token: Token) -> bool {
    token.0 >= PENDING_TOKENS_FROM && !is_listener(token)
}
