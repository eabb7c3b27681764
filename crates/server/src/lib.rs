//! Shards, HTTP, operations, metrics: the server that people embed or run.
