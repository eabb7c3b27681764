//! Writes JSON to the end of a buffer. Zero and empty fields are omitted, except those that the protocol always sends.

pub(crate) mod object;
pub(crate) mod publication;
mod results;

pub(crate) use object::separated;
pub use object::{ObjectWriter, list, number, text};
pub use publication::{client_info, position_members, publication};
pub use results::{error, history, presence_stats, publications};
