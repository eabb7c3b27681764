//! The gRPC messages. They are generated from the `.proto` files of the repository. A test of this crate generates them
//! again and compares.

pub(crate) mod json;

/// The API service of Centrifugo: `proto/centrifugo_api.proto`.
#[expect(unreachable_pub, reason = "it is generated")]
pub(crate) mod centrifugo_api {
    include!("generated/centrifugal.centrifugo.api.rs");
}

/// The hooks of a backend: `proto/centrifugo_proxy.proto`.
#[expect(unreachable_pub, reason = "it is generated")]
pub(crate) mod centrifugo_proxy {
    include!("generated/centrifugal.centrifugo.proxy.rs");
}

/// The API service of Touchline: `proto/touchline.proto`.
#[expect(unreachable_pub, reason = "it is generated")]
pub(crate) mod touchline_api {
    include!("generated/touchline.api.v1.rs");
}

/// The files of both API services, for reflection.
pub(crate) const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
