//! Stories of a channel's home: order, history and memory of its own channels, and what it does where a cluster or a
//! store keeps them. The test is the cluster and the store, and the clock; a story compares all that comes out with
//! what should, word by word.

mod cluster;
mod expiry;
mod home;
mod refit;
mod store;
mod sync;
mod waits;
mod world;
