//! The gRPC client of the node.

use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderMap;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use prost::Message;
use prost::bytes::{Buf, Bytes};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Status};
use tonic_prost::{ProstCodec, ProstEncoder};
use touchline_config::ClientTlsSettings;

use super::client::{causes, plain_connector, trusting};
use super::resolver::Resolver;
use crate::tls::TlsError;

/// How long bytes may wait for the server's acknowledgement before the connection counts as broken. Pings would detect
/// it too, but gRPC servers refuse clients that ping them often.
const UNACKNOWLEDGED_TIME: Duration = Duration::from_secs(10);

/// Calls methods of one server. Clones share their connection. Only for threads that run tokio.
#[derive(Clone)]
pub(crate) struct GrpcClient {
    grpc: Grpc<Client<HttpsConnector<HttpConnector<Resolver>>, Body>>,
}

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) struct GrpcError {
    /// The status of the call; None = the answer itself cannot be used.
    pub(crate) code: Option<Code>,
    /// The text for logs, which contains nothing of the request or the answer.
    pub(crate) text: String,
}

impl GrpcClient {
    /// Makes a client of a server that it trusts according to `tls`. `origin`: `http://host:port`, or `https://…` with
    /// TLS. `section`: the section of `tls`, for errors. `is_compressed`: questions are compressed, and answers may be.
    ///
    /// # Errors
    /// When a certificate, a key or an authority of the settings cannot be used.
    pub(crate) fn new(
        origin: Uri,
        section: &str,
        tls: &ClientTlsSettings,
        is_compressed: bool,
    ) -> Result<Self, TlsError> {
        let mut plain = plain_connector();
        plain.set_tcp_user_timeout(Some(UNACKNOWLEDGED_TIME));
        let connector = trusting(section, tls)?.enable_http2().wrap_connector(plain);
        let client =
            Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).http2_only(true).build(connector);
        let mut grpc = Grpc::with_origin(client, origin);
        if is_compressed {
            grpc = grpc.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip);
        }
        Ok(GrpcClient { grpc })
    }

    /// Calls a method and reads its answer, of at most `answer_max` bytes. `timeout`: sent to the server.
    ///
    /// # Errors
    /// [`GrpcError`] says why there is no answer.
    pub(crate) async fn call<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        metadata: HeaderMap,
        timeout: Duration,
        answer_max: usize,
    ) -> Result<A, GrpcError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut request = Request::new(message);
        *request.metadata_mut() = MetadataMap::from_headers(metadata);
        request.set_timeout(timeout);
        let mut grpc = self.grpc.clone().max_decoding_message_size(answer_max);
        let answer = grpc.unary(request, PathAndQuery::from_static(path), BytesCodec(ProstCodec::default())).await;
        let answer = answer.map_err(|status| call_error(&status))?.into_inner();
        A::decode(answer).map_err(|_| GrpcError { code: None, text: "the answer is not a message of its type".into() })
    }
}

/// Writes messages, and reads answers as bytes. If the library decoded them, its status for an answer that it cannot
/// decode would look like a status of the server.
struct BytesCodec<Q>(ProstCodec<Q, ()>);

impl<Q: Message + Send + 'static> Codec for BytesCodec<Q> {
    type Encode = Q;
    type Decode = Bytes;
    type Encoder = ProstEncoder<Q>;
    type Decoder = BytesDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> BytesDecoder {
        BytesDecoder
    }
}

struct BytesDecoder;

impl Decoder for BytesDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, answer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(answer.copy_to_bytes(answer.remaining())))
    }
}

/// Makes an error from a status. The text of a server is left out, because it may contain anything.
fn call_error(status: &Status) -> GrpcError {
    match (status.code(), std::error::Error::source(status)) {
        // No server has answered: errors of the HTTP client have no status of their own.
        (Code::Unknown, Some(source)) => {
            GrpcError { code: Some(Code::Unavailable), text: format!("no answer: {}", causes(source)) }
        }
        (code, Some(source)) => GrpcError { code: Some(code), text: format!("{}: {}", name(code), causes(source)) },
        // The library gives this status to an answer that is too large, too.
        (Code::OutOfRange, None) => {
            let text = "the answer is larger than hooks.answer_size_max, or its status is OUT_OF_RANGE";
            GrpcError { code: Some(Code::OutOfRange), text: text.into() }
        }
        (code, None) => GrpcError { code: Some(code), text: format!("the status of the answer is {}", name(code)) },
    }
}

/// The name of a status as backends know it.
fn name(code: Code) -> String {
    let words = format!("{code:?}");
    let mut name = String::with_capacity(words.len() + 2);
    for (index, letter) in words.char_indices() {
        if index > 0 && letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_writes_is_not_logged() {
        let error = call_error(&Status::permission_denied("ann's password is wrong"));
        assert_eq!(error.text, "the status of the answer is PERMISSION_DENIED");
    }
}
