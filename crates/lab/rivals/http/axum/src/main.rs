//! The rival `axum` of `touchline-lab http`: axum on one thread of Tokio. Prints its address.

use axum::Router;
use axum::extract::Query;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use serde::Deserialize;
use tokio::net::TcpSocket;

#[derive(Deserialize)]
struct Echo {
    value: String,
}

async fn echo(Query(Echo { value }): Query<Echo>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/xml")], format!("<http_test><value>{value}</value></http_test>"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let listener = socket.listen(4096)?;
    println!("{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/", get(echo))).await
}
