//! Attacks on the real server over real sockets, one test each: what each cost the server and others, and what the
//! attacker was told.
//!
//! A hostile client costs only itself. TOUCHLINE_ATTACKS_LONG carries the attacks out at full size.

mod answers;
mod directory;
mod fuzz;
mod nodes;
mod pings;
#[expect(dead_code, reason = "shared with the lab and the tests of durability, which use all of it")]
#[path = "../../crates/lab/src/postgres.rs"]
mod postgres;
mod requests;
mod streams;
mod support;
mod texts;
mod tokens;
