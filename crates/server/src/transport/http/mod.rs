//! HTTP/1 and HTTP/2, with or without TLS. A [`Router`] of a higher layer answers the requests.

pub(crate) mod body;
mod caller;
mod connection;
mod cors;
pub(crate) mod emulation;
mod frames;
mod gauge;
mod http1;
mod http2;
pub(crate) mod reactions;
pub(crate) mod respond;
mod rewind;
mod routed;
pub(crate) mod stream;
mod takeover;
mod timeouts;
pub(crate) mod upgrade;

pub(crate) use caller::{HEAD_MAX, HttpCaller, Origin};
pub(crate) use connection::{prepare, serve};
pub(crate) use routed::{Duplex, Routed, Router};
