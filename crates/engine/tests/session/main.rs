//! Sessions as transcripts: what clients send and receive, with a clock that the test controls.

mod answers;
mod bans;
mod claims;
mod connect;
mod explain;
mod flow;
mod grants;
mod heartbeat;
mod hooks;
mod lines;
mod permissions;
mod reactions;
mod refusals;
mod registry;
mod server_side;
mod story;
mod subscribe;
mod tokens;
