//! Attacks on the real server over real sockets, one per test. Each test checks the cost for the server and for other
//! clients, and the answer to the attacker.
//!
//! A hostile client costs only itself. TOUCHLINE_ATTACKS_LONG runs the attacks at full size.

mod answers;
mod directory;
mod fuzz;
mod nodes;
mod pings;
mod requests;
mod streams;
mod support;
mod texts;
mod tokens;
