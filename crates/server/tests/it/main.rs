//! The server from the view of its users: over real sockets, with clients that share no code with it.

mod addresses;
mod api_answers;
mod api_keys;
mod api_page;
mod backend;
mod bad_input;
mod bans;
mod bans_listed;
mod bans_of_nodes;
mod commands;
mod connected;
mod connected_nodes;
mod consumers;
mod database_size;
mod drain;
mod durable_events;
mod durable_nodes;
mod edge;
mod embedding;
mod event_endpoints;
mod event_ids;
mod events;
mod exclusion;
mod forgotten;
mod forgotten_nodes;
mod generated;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "grpc")]
mod grpc_client;
#[cfg(feature = "grpc")]
mod grpc_hooks;
mod hooks;
mod hosts;
mod http2;
mod inboxes;
mod issuer;
mod jetstream;
mod keys;
mod libraries;
mod limit_measures;
mod limits;
mod lines;
mod link;
mod metrics;
mod named_users;
mod nats;
mod operations;
mod ordering;
mod pages;
mod ports;
#[path = "../../../lab/src/postgres.rs"]
mod postgres;
mod refusals;
mod registry;
mod registry_refusals;
mod sessions;
mod site;
mod stream_consumers;
mod support;
mod token_checks;
mod unauthenticated;
