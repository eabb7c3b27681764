//! Parts of the scenario of reactions: a crowd that reacts, and a bare loop that counts its reactions.

mod crowd;
mod floor;
mod messages;

pub(crate) use crowd::run as run_crowd;
pub(crate) use floor::serve as serve_floor;
pub(crate) use messages::{CHANNEL, CountingOrder, CountingReport, CrowdOrder, CrowdReport, OPTIONS};
