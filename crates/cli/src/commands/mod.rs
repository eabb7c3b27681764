//! The commands, one file each: from the arguments to the exit code.

pub(crate) mod api;
pub(crate) mod backup;
mod banner;
pub(crate) mod check;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod configschema;
mod dev;
mod ephemeral;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod genconfig;
pub(crate) mod health;
pub(crate) mod match_replay;
pub(crate) mod migrate;
pub(crate) mod overview;
pub(crate) mod print_config;
pub(crate) mod publish;
pub(crate) mod serve;
pub(crate) mod token;
pub(crate) mod trace;
pub(crate) mod version;
pub(crate) mod watch;
