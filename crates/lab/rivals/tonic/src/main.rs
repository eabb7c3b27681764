//! A bare tonic service: it decodes a publication and answers an empty message. `touchline-lab grpc --bare` starts it
//! and reads its address from the first line that it prints.

mod bare {
    tonic::include_proto!("centrifugal.centrifugo.api");
}

use bare::centrifugo_api_server::{CentrifugoApi, CentrifugoApiServer};
use bare::{PublishRequest, PublishResponse};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

struct DecodingOnly;

#[tonic::async_trait]
impl CentrifugoApi for DecodingOnly {
    async fn publish(&self, request: Request<PublishRequest>) -> Result<Response<PublishResponse>, Status> {
        std::hint::black_box(request.into_inner());
        Ok(Response::new(PublishResponse {}))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let service = CentrifugoApiServer::new(DecodingOnly);
    Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)).await?;
    Ok(())
}
