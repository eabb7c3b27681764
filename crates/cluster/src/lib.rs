//! Nodes joined by NATS.
