//! The behaviour of a store, which is the same on SQLite and on PostgreSQL.

mod bad_items;
mod directory;
mod facts;
mod history;
mod inbox;
mod inbox_pages;
mod ledger;
mod nodes;
mod opening;
mod outbox;
mod reactions;
mod runs;
mod seen;
mod size;
mod stage;
mod stats;
