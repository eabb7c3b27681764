//! Checks of a configuration beyond the types of its values: contradictions, secrets, files, paths.

mod address;
mod admin;
mod api_keys;
mod consumers;
mod doubts;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod hook_headers;
mod hooks;
mod limits;
mod names;
mod paths;
mod rules;
pub(crate) mod secrets;
mod tokens;
pub(crate) mod unsafe_omissions;

pub(crate) use self::rules::check;
