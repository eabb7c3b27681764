//! The event loop of one core. It owns connections, the channels whose home it is, and their state.
//!
//! In one turn, the shard reads from sockets, serves the mailbox, ticks, and writes the output that is due. Then the
//! thread's other tasks (HTTP) run. Each step is bounded, so nothing starves behind a channel with many subscribers.
//!
//! `state.rs` contains the shard. Each other file contains a part of the shard, or one of its tasks.

mod accept;
pub(crate) mod acceptor;
mod audience;
pub(crate) mod backends;
mod bans;
mod budget;
mod client_facts;
mod closing;
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
