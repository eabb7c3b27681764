//! Input that has begun to arrive on a connection.

use touchline_protocol::lines::Lines;
use touchline_protocol::websocket::Assembly;

use crate::net::transport::Transport;

/// How the bytes of a connection become commands. It holds no bytes while the connection is idle.
pub(super) enum Input {
    /// WebSocket frames, of which one may be incomplete.
    Frames(Assembly),
    /// Lines, of which the last may be incomplete.
    Lines(Lines),
    /// One of the two, and later bytes that wait until the connection has room for the answers to them.
    Held(Box<(Input, Vec<u8>)>),
    /// The socket carries no input: commands arrive by other requests, or not at all.
    Nothing,
}

impl Input {
    pub(super) fn of(transport: Transport) -> Self {
        match transport {
            Transport::WebSocket | Transport::UniWebSocket => Input::Frames(Assembly::default()),
            Transport::Tcp => Input::Lines(Lines::default()),
            Transport::HttpStream | Transport::Sse | Transport::UniHttpStream | Transport::UniSse => Input::Nothing,
        }
    }
}

impl Input {
    /// How many bytes have arrived of a message that is not complete yet.
    pub(super) fn begun(&self) -> usize {
        match self {
            Input::Frames(assembly) => assembly.buffered_bytes(),
            Input::Lines(lines) => lines.buffered_bytes(),
            Input::Held(held) => held.0.begun() + held.1.len(),
            Input::Nothing => 0,
        }
    }
}
