//! The server as its users see it: over real sockets, by clients that share no code with it.

mod bad_input;
mod drain;
mod hosts;
mod http2;
mod operations;
mod ordering;
mod refusals;
mod sessions;
mod support;
