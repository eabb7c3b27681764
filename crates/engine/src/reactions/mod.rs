//! Reactions: the small inputs of many clients, combined into one result for each channel.
//!
//! A [`ReactionBoard`] counts on a shard what its clients send. A [`ReactionBook`] holds the totals of a node, which
//! converge to the same values on all nodes. Every incarnation of a node is a [`Contributor`] with growing counters of
//! its own. What is known about one contributor is merged by the maximum, so the order, repetition, delay and loss of
//! messages do not change the final result. (State-based counters: Shapiro, Preguiça, Baquero, Zawirski 2011.)
//!
//! It is not a vote: a client may react any number of times, within its rate.

mod admission;
mod agreement;
mod board;
mod book;
mod closings;
mod doubt;
mod link;
mod opening;
mod rate;
mod records;
mod request;
mod settings;
mod state;
mod totals;
mod turn;

pub use admission::ReactionAdmission;
pub use board::{CountedReactions, ReactionBoard, ReactionRefusal, ReactionRefusals, RoundProgress};
pub use book::{BookOutput, ReactionBook, ReactionFault, ReactionLimits};
pub use link::MalformedReactions;
pub use opening::{OPTION_LENGTH_MAX, OPTIONS_MAX, OpenReactions, ReactionOpening, RoundId, check_options};
pub use rate::ReactionRate;
pub use records::Contributor;
pub use request::{REACTIONS_ADD, ReactionRequest};
pub use settings::ReactionSettings;
pub use state::ReactionState;
pub use turn::finish_turn;
