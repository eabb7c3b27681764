//! The operations of the server API, each in the file of its kind. Shapes and errors are those of Centrifugo, so its
//! server libraries work.

pub(super) mod activity;
pub(super) mod bans;
pub(super) mod bans_list;
pub(super) mod channel;
pub(super) mod channel_directory;
pub(super) mod channels;
pub(super) mod configuration;
pub(super) mod connected;
pub(super) mod connections;
pub(super) mod consumers;
pub(super) mod dead_events;
mod dry_run;
pub(super) mod events;
pub(super) mod forget_user;
pub(super) mod history;
pub(super) mod inbox;
pub(super) mod info;
pub(super) mod overview;
pub(super) mod presence;
pub(super) mod publish;
pub(super) mod reactions;
pub(super) mod refusals;
pub(super) mod registry;
pub(super) mod reload;
pub(super) mod rpc;
pub(super) mod send;
pub(super) mod stats;
pub(super) mod token_check;
pub(super) mod trace;
pub(super) mod user_status;
