//! Sessions as transcripts: what clients send and receive, with a clock that the test controls.

mod claims;
mod connect;
mod flow;
mod heartbeat;
mod hooks;
mod lines;
mod permissions;
mod refusals;
mod registry;
mod server_side;
mod story;
mod subscribe;
mod tokens;
