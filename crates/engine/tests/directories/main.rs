//! Stories of the registry from the view of nodes, clients and backends.
//!
//! Nodes are directories. The test passes their messages to each other and sets the time. A story compares the whole
//! output with the expected text, word by word.

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
