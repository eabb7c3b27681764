//! Bans: users who are blocked, tokens that are revoked, and tokens of a user that were issued too early.
//!
//! A ban is a shared fact ([`touchline_protocol::fact`]). A node knows all bans ([`Bans`]). It checks each client that
//! connects, refreshes or subscribes, and it checks connected clients when bans have changed.
//!
//! `ban.rs`: one ban, and the fact that stores it. `token.rs`: what a session keeps of its client's token. `table.rs`:
//! the bans that a node knows, by hashes. `shared.rs`: the table as the shards of a node share it.

mod ban;
mod shared;
mod table;
mod token;

pub use ban::{Ban, BanReason};
pub use shared::{BanKnowledge, BanRefusal, BanScope, Bans};
pub use table::BanCounts;
pub use token::{ShownToken, TokenMark};
