//! A publication in all the encodings in which it leaves the server. Each encoding is made once, when the first client
//! needs it.
//!
//! [`Content`] is what a publisher says; [`Publication::encode`] gives it a position and frames it; [`Recovered`] is a
//! run of publications for a subscriber that missed them.

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
