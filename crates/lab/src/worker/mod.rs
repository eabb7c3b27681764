//! A process that holds subscribers: one thread, one poller. It reads commands as JSON lines from standard input and
//! writes reports to standard output.

mod messages;
mod opening;
mod process;
mod subscriber;

pub(crate) use messages::{SubscriberRequest, WorkerCommand, WorkerReport, WorkerSpec, channel_name};
pub(crate) use process::run;
