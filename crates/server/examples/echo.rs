//! A path that a program answers itself, on one shard. `cargo run --example echo -p touchline-server` prints its
//! address; then request `/?value=hello` from it.

use touchline_server::http::{Request, Response};
use touchline_server::{Bytes, Server, Settings};

/// Answers with the value of the query, in XML.
async fn echo(request: Request<Bytes>) -> Response<Bytes> {
    let query = request.uri().query().unwrap_or_default();
    let value = query.split('&').find_map(|pair| pair.strip_prefix("value=")).unwrap_or_default();
    let mut response = Response::new(Bytes::from(format!("<http_test><value>{value}</value></http_test>")));
    response.headers_mut().insert("content-type", "text/xml".parse().expect("it is a value of a header"));
    response
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    settings.http_server.address = "127.0.0.1".into();
    settings.http_server.port = 0;
    settings.node.shards = 1;
    settings.http_api.key = "lab".into();
    settings.health.enabled = true;
    let running = Server::builder(settings).route("/", echo).build()?.start()?;
    println!("{}", running.address());
    std::io::stdin().read_line(&mut String::new())?;
    running.stop();
    Ok(())
}
