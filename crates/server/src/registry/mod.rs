//! The registry actor: the thread of a node that owns the directory.

pub(crate) mod actor;
mod clock_jumps;
mod walks;
