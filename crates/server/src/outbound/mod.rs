//! Requests of the node to other servers over HTTP/1.1, HTTP/2 and gRPC: connections are kept, a redirect is never
//! followed, and an answer has a greatest size. The time limit is the caller's.

mod address;
mod client;
#[cfg(feature = "grpc")]
mod grpc;
mod resolver;
mod tls;

pub(crate) use address::{basic_authorization, shown_address};
pub(crate) use client::{HttpClient, discard};
#[cfg(feature = "grpc")]
pub(crate) use grpc::{GrpcClient, GrpcError};
pub(crate) use tls::config as tls_config;
