//! Sessions as transcripts: what clients say and hear, with a clock that the test holds.

mod connect;
mod flow;
mod heartbeat;
mod lines;
mod permissions;
mod refusals;
mod registry;
mod server_side;
mod story;
mod subscribe;
mod tokens;
