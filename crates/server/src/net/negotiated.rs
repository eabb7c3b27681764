//! What a client and the server have agreed upon before a session begins.

use touchline_protocol::Wire;
use touchline_protocol::message::Encoding;
use touchline_protocol::wire::{Coding, Framing};

use super::admission::Admission;
use super::agent::Agent;
use super::forwarded::RequestFields;
use super::transport::Transport;

/// What a client and the server have negotiated.
#[derive(Debug)]
pub(crate) struct Negotiated {
    pub(crate) transport: Transport,
    /// The encoding and framing of messages.
    pub(crate) wire: Wire,
    pub(crate) agent: Agent,
    pub(crate) admission: Admission,
    /// What is kept of the request's header fields.
    pub(crate) fields: RequestFields,
}

/// Encoding and framing of messages over bare TCP.
const LINES: Wire = Wire { encoding: Encoding::Json, framing: Framing::Stream(Coding::Identity) };

impl Negotiated {
    /// What a client gets that speaks lines: there is nothing to negotiate.
    pub(crate) fn lines(admission: Admission) -> Self {
        let fields = RequestFields::default();
        Negotiated { transport: Transport::Tcp, wire: LINES, agent: Agent::Unknown, admission, fields }
    }
}
