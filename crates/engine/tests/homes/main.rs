//! Stories of a channel's home: order, history and memory of its own channels, and what it does if a cluster or a store
//! keeps them. The test plays the cluster, the store and the clock. A story compares the whole output with the expected
//! text, word by word.

mod cluster;
mod expiry;
mod home;
mod refit;
mod store;
mod sync;
mod waits;
mod world;
