//! The event loop of one core: it owns connections, the channels at home here, and their state.
//!
//! One turn: read from sockets, serve the mailbox, tick, write what is due; then the thread's other tasks (HTTP) run.
//! Each step is bounded, so nothing starves behind a channel with many subscribers.
//!
//! `state.rs` holds the shard; the other files hold its parts, or one of its tasks each.

mod accept;
pub(crate) mod acceptor;
mod audience;
mod backends;
mod bans;
mod budget;
mod client_facts;
mod commands;
mod connected;
mod connections;
mod deliver;
mod due;
mod ends;
mod events;
mod excluded;
mod frame_trace;
mod hooks;
mod input;
mod inspect;
mod log_refusals;
mod minute_stats;
mod outbox;
mod pause;
mod probe;
mod queue;
mod reactions;
mod read;
mod reload;
mod reload_progress;
mod room;
mod seen;
pub(crate) mod services;
pub(crate) mod state;
mod stepwise;
mod turn;
mod unauthenticated;
mod users;
mod waiting;
