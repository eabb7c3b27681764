//! A publication in all the encodings in which it leaves the server. Each encoding is made once, when the first client
//! needs it.
//!
//! [`Content`] is the publisher's input. [`Publication::encode`] gives it a position and frames it. [`Recovered`] is a
//! series of publications for a subscriber that missed them.

mod cache;
pub(crate) mod content;
mod encoded;
mod exclusion;
mod push;
mod recovered;
#[cfg(test)]
mod tests;
pub(crate) mod transcode;

pub use content::{ClientInfo, Content, LogPosition, Tags};
pub use encoded::{Delta, Publication};
pub use exclusion::Exclusion;
pub use push::EncodedPush;
pub use recovered::Recovered;
