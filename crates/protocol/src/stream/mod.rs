//! The names, numbers and positions that all crates use for a channel and its log.
//!
//! Each has its own type, so that the compiler rejects a mix-up: a channel with its namespace, an offset with a time,
//! or the number of a run with its id.
//!
//! ```
//! use touchline_protocol::stream::{ChannelName, Epoch, Offset, RunId, StreamPosition};
//!
//! let channel = ChannelName::from("match:7");
//! assert_eq!(&*channel, "match:7");
//! assert_eq!(Offset(1).next(), Offset(2));
//!
//! let position = StreamPosition { offset: Offset(2), epoch: Epoch::from_bits(1).in_run(RunId(2)) };
//! assert_eq!(position.epoch.as_str(), "baaaaaaa.caaaaaaa");
//! ```

mod letters;
mod log;
mod name;
mod offset;
mod position;
mod run;

pub use log::{IDEMPOTENCY_KEY_TTL_MS, LoadId, Retention};
pub use name::{ChannelName, NamespaceName};
pub use offset::Offset;
pub use position::{Epoch, StreamPosition};
pub use run::{Run, RunId, RunStart, Runs};
