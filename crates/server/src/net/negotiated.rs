//! What a client and the server have agreed upon before a session begins.

use touchline_protocol::Wire;
use touchline_protocol::message::Encoding;
use touchline_protocol::wire::{Coding, Framing};

use super::admission::Admission;
use super::agent::Agent;
use super::forwarded::RequestFields;
use super::transport::Transport;

/// What a client and the server have negotiated before a session begins.
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub(crate) transport: Transport,
    /// The encoding and framing of the connection's messages.
    pub(crate) wire: Wire,
    pub(crate) agent: Agent,
    pub(crate) admission: Admission,
    /// The header fields of the request that the node keeps.
    pub(crate) fields: RequestFields,
}

/// The encoding and framing of messages over bare TCP.
const LINES: Wire = Wire { encoding: Encoding::Json, framing: Framing::Stream(Coding::Identity) };

impl Negotiated {
    /// What applies to a client that sends lines; nothing is negotiated with it.
    pub(crate) fn lines(admission: Admission) -> Self {
        let fields = RequestFields::default();
        Negotiated { transport: Transport::Tcp, wire: LINES, agent: Agent::Unknown, admission, fields }
    }
}
