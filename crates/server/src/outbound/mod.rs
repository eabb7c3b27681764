//! Requests of the node to other servers over HTTP/1.1, HTTP/2 and gRPC. Connections are kept, redirects are never
//! followed, and answers have a maximum size. The caller sets the timeout.

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
