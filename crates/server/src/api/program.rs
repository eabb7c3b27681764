//! Answers requests for the pages and the routes of the program that embeds the server.

use hyper::{Method, Request};

use crate::transport::http::Origin;
use crate::transport::http::body::RequestBody;
use crate::transport::http::respond::{self, HttpResponse};
use crate::web;

/// Answers a request for a path of the program ([`web::Web::has`]).
pub(super) async fn answer(origin: &Origin, request: Request<RequestBody>) -> HttpResponse {
    let node = &origin.node;
    let path = request.uri().path();
    let Some(handler) = node.web.routes.find(path) else {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return respond::method_not_allowed("GET, HEAD");
        }
        return node.web.assets.answer(path, request.headers()).unwrap_or_else(respond::not_found);
    };
    let (head, body) = request.into_parts();
    match body.read(node.generation().settings.http_api.body_size_limit).await {
        Ok((body, _budget)) => web::whole(handler.answer(Request::from_parts(head, body)).await),
        Err(status) => respond::text(status, "the body is larger than http_api.body_size_limit, or incomplete\n"),
    }
}
