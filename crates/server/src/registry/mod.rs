//! The registry actor: the thread of a node that owns the directory.

pub(crate) mod actor;
pub(crate) mod clock_jumps;
mod walks;
