//! Violations of the WebSocket protocol.

/// A violation by the peer that ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    /// The close code to answer with: 1002 protocol error, 1007 invalid text, 1009 too big.
    pub code: u16,
    /// The violation in words, which is sent as the close reason.
    pub reason: &'static str,
}

impl Violation {
    pub(super) const TOO_BIG: Violation = Violation { code: 1009, reason: "a message is too big" };
    pub(super) const DEFLATE: Violation =
        Violation { code: 1007, reason: "a compressed message is broken, or too big" };
    pub(super) const TEXT: Violation = Violation { code: 1007, reason: "text is not UTF-8" };

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Violation { code: 1002, reason }
    }
}
