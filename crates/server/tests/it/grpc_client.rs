//! A gRPC client whose messages are made from the `.proto` files at run time. It uses none of the server's types.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use prost::Message as _;
use prost::bytes::{Buf as _, BufMut as _};
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MessageDescriptor, MethodDescriptor, SerializeOptions};
use serde_json::Value;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};

/// The descriptors of the `.proto` files.
pub(crate) static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let files = ["centrifugo_api.proto", "centrifugo_proxy.proto", "touchline.proto"];
    DescriptorPool::from_file_descriptor_set(protox::compile(files, [directory]).expect("the files are good"))
        .expect("they name each other")
});

/// All methods that the node serves, of every service.
pub(crate) fn methods() -> Vec<MethodDescriptor> {
    let served = |name: &str| name != "CentrifugoProxy";
    let services = POOL.services().filter(|service| served(service.name())).collect::<Vec<_>>();
    services.iter().flat_map(|service| service.methods().collect::<Vec<_>>()).collect()
}

/// The method of an operation: `presence_stats` is `PresenceStats`.
pub(crate) fn method_of(operation: &str) -> MethodDescriptor {
    let wanted = operation.replace('_', "");
    methods().into_iter().find(|method| method.name().to_lowercase() == wanted).expect("every operation has a method")
}

/// Changes the fields that contain JSON, in place, by a function.
fn change_payloads(descriptor: &MessageDescriptor, value: &mut Value, change: &dyn Fn(&Value) -> Value) {
    let Some(object) = value.as_object_mut() else { return };
    for (name, value) in object {
        let Some(field) = descriptor.get_field_by_name(name) else { continue };
        let kind = match field.kind() {
            Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
            kind => kind,
        };
        match kind {
            Kind::Bytes => *value = change(value),
            Kind::Message(inner) => match value {
                Value::Object(entries) if field.is_map() => {
                    entries.values_mut().for_each(|value| change_payloads(&inner, value, change));
                }
                Value::Array(items) => items.iter_mut().for_each(|item| change_payloads(&inner, item, change)),
                value => change_payloads(&inner, value, change),
            },
            _ => {}
        }
    }
}

/// Encodes a message from plain JSON, in which payloads are JSON too.
pub(crate) fn encode(descriptor: &MessageDescriptor, plain: &Value) -> Vec<u8> {
    let mut plain = plain.clone();
    change_payloads(descriptor, &mut plain, &|json| STANDARD.encode(json.to_string()).into());
    let message = DynamicMessage::deserialize(descriptor.clone(), plain).expect("it is of the message's shape");
    message.encode_to_vec()
}

/// Decodes a message into plain JSON.
pub(crate) fn decode(descriptor: &MessageDescriptor, bytes: &[u8]) -> Value {
    let message = DynamicMessage::decode(descriptor.clone(), bytes).expect("it is a message");
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    let mut plain = message.serialize_with_options(serde_json::value::Serializer, &options).expect("it has a form");
    change_payloads(descriptor, &mut plain, &|text| {
        let bytes = STANDARD.decode(text.as_str().expect("a text")).expect("base64");
        serde_json::from_slice(&bytes).expect("the bytes are JSON")
    });
    plain
}

/// Sends and receives bytes as they are.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; from.remaining()];
        from.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}

type Connection = Client<HttpsConnector<HttpConnector>, Body>;

/// A client with its own connection.
pub(crate) struct GrpcCaller {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) grpc: Grpc<Connection>,
    /// The value of `authorization`; empty = none is sent.
    pub(crate) authorization: String,
}

impl GrpcCaller {
    pub(crate) fn plain(address: SocketAddr, authorization: &str) -> Self {
        let roots = rustls::RootCertStore::empty();
        Self::with(&format!("http://{address}"), roots, authorization)
    }

    pub(crate) fn with(origin: &str, roots: rustls::RootCertStore, authorization: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http2().build();
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build(connector);
        let origin: Uri = origin.parse().expect("an address");
        let grpc = Grpc::with_origin(client, origin).max_decoding_message_size(64 << 20);
        GrpcCaller { runtime, grpc, authorization: authorization.to_owned() }
    }

    /// Makes the client compress requests.
    pub(crate) fn compressed(mut self) -> Self {
        self.grpc = self.grpc.send_compressed(CompressionEncoding::Gzip);
        self
    }

    fn request(&self, bytes: Vec<u8>) -> Request<Vec<u8>> {
        let mut request = Request::new(bytes);
        request.set_timeout(Duration::from_secs(60));
        if !self.authorization.is_empty() {
            let value = self.authorization.parse().expect("a value of metadata");
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    /// Sends bytes to a method. Returns the bytes of the answer.
    pub(crate) async fn send(&self, path: &str, bytes: Vec<u8>) -> Result<Vec<u8>, Status> {
        let mut grpc = self.grpc.clone();
        let path = path.parse().expect("a path");
        grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        grpc.unary(self.request(bytes), path, Raw).await.map(tonic::Response::into_inner)
    }

    /// Calls a method with plain JSON. Returns its answer as plain JSON.
    pub(crate) fn call_method(&self, method: &MethodDescriptor, plain: &Value) -> Result<Value, Status> {
        let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
        let answer = self.runtime.block_on(self.send(&path, encode(&method.input(), plain)))?;
        Ok(decode(&method.output(), &answer))
    }

    /// Calls the method of an operation.
    pub(crate) fn call(&self, operation: &str, plain: Value) -> Result<Value, Status> {
        self.call_method(&method_of(operation), &plain)
    }
}
