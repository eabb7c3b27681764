//! Stories of the registry as nodes, clients and backends live through them.
//!
//! Nodes are directories that are joined by passing what one of them wants done to the others; the time is the test's.
//! A story compares all that comes out with what should, word by word.

mod calls;
mod groups;
mod inbox;
mod lists;
mod names;
mod nodes;
mod presence;
mod requests;
mod watch;
mod world;
