//! The ledger of lifecycle events: its rules as a small model, and the same scripts on the databases.

mod crowd;
mod desk;
mod lanes;
mod model;
mod properties;
mod real;
mod wishes;
mod world;
