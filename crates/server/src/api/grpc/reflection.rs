//! Reflection: describes the services, methods and messages of this port to clients, in both versions of its protocol.

use std::pin::Pin;
use std::sync::OnceLock;

use hyper::body::Incoming;
use hyper::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic_reflection::server::{Builder, Error};

use crate::proto::DESCRIPTORS;

/// The largest message of a request to the services for operators, in bytes.
pub(super) const MESSAGE_MAX: usize = 4 * 1024;

type ReflectionAnswer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
/// Answers requests of reflection.
type Reflection = Box<dyn Fn(Request<Incoming>) -> ReflectionAnswer + Send + Sync>;

/// The versions of the reflection protocol.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReflectionVersion {
    V1,
    V1Alpha,
}

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Makes a function from a service, whose type has no name.
macro_rules! serving {
    ($server:expr) => {{
        let server = $server.max_decoding_message_size(MESSAGE_MAX);
        Ok(Box::new(move |request| {
            let mut server = server.clone();
            Box::pin(async move {
                match server.call(request).await {
                    Ok(answer) => answer,
                    Err(never) => match never {},
                }
            })
        }))
    }};
}

fn v1() -> Result<Reflection, Error> {
    serving!(builder().build_v1()?)
}

fn v1_alpha() -> Result<Reflection, Error> {
    serving!(builder().build_v1alpha()?)
}

/// Answers a request of reflection.
pub(super) async fn answer(version: ReflectionVersion, request: Request<Incoming>) -> Response<Body> {
    static V1: OnceLock<Option<Reflection>> = OnceLock::new();
    static V1_ALPHA: OnceLock<Option<Reflection>> = OnceLock::new();
    let reflection = match version {
        ReflectionVersion::V1 => V1.get_or_init(|| v1().ok()),
        ReflectionVersion::V1Alpha => V1_ALPHA.get_or_init(|| v1_alpha().ok()),
    };
    match reflection {
        Some(reflection) => reflection(request).await,
        None => Status::internal("the descriptions of the services cannot be read").into_http(),
    }
}
