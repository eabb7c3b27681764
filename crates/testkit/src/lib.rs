//! Parts that tests of all crates share. The crate depends on no other crate of the workspace, so that the tests of
//! pure crates stay cheap to compile, and its clients share no code with the server.
//!
//! A function panics, and so fails its test, if a program or a server does not do what the function waits for within
//! [`PATIENCE`], and if a program, a directory or a port cannot be had. The message names the cause.
//!
//! - [`wait`]: one timeout for all tests, and functions that wait for a condition.
//! - [`ports`]: ports that no other test gets.
//! - [`process`]: a program with its output.
//! - [`folder`]: a directory that ends with its test.
//! - [`http`] and [`websocket`]: the clients.
//! - [`nats`] and [`postgres`]: servers of other projects.
//! - [`seeds`]: simulators with seeds.

pub mod folder;
pub mod http;
pub mod nats;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod seeds;
pub mod wait;
pub mod websocket;

pub use folder::Folder;
pub use wait::{PATIENCE, comes, until, until_eq, until_some};
