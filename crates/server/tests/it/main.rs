//! The server as its users see it: over real sockets, by clients that share no code with it.

mod addresses;
mod backend;
mod bad_input;
mod drain;
mod edge;
mod embedding;
mod hooks;
mod hosts;
mod http2;
mod libraries;
mod limits;
mod lines;
mod operations;
mod ordering;
mod pages;
mod ports;
mod refusals;
mod registry;
mod sessions;
mod support;
mod unauthenticated;
