//! A process that holds roaming clients: each is subscribed to a channel with recovery. When its node disconnects it,
//! it waits as an official SDK does and connects to another node. One thread, one poller; it reads commands as JSON
//! lines from standard input and writes reports to standard output.

mod backoff;
mod client;
mod messages;
mod process;
mod reply;
mod window;

pub(crate) use messages::{RoamingCommand, RoamingReport, RoamingSpec, WindowReport};
pub(crate) use process::run;
