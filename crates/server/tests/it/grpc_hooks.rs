//! Hooks over gRPC: what the answers of a small backend do. The test makes the backend from the `.proto` files at run
//! time.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use touchline_server::{ChannelOptions, Namespace};
use touchline_testkit::until_eq;

use super::bans::now_s;
use super::grpc_client::{POOL, decode, encode};
use super::support::TestServer;

/// The methods that were called, each with its message.
type Calls = Arc<Mutex<Vec<(String, Value)>>>;
type Decide = dyn Fn(&str, &Value) -> Value + Send + Sync;

/// A backend that answers each call by a function of its method and its message.
struct GrpcBackend {
    address: SocketAddr,
    calls: Calls,
    /// When this is dropped, the thread of the backend ends.
    _is_wanted: tokio::sync::oneshot::Sender<()>,
}

impl GrpcBackend {
    fn start(decide: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (calls, decide): (Calls, Arc<Decide>) = (Arc::default(), Arc::new(decide));
        let of_server = Arc::clone(&calls);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (calls, decide) = (Arc::clone(&of_server), Arc::clone(&decide));
                let service = service_fn(move |request| answer(request, Arc::clone(&calls), Arc::clone(&decide)));
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(http.serve_connection(TokioIo::new(socket), service));
            }
        });
        let (is_wanted, is_over) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || runtime.block_on(is_over));
        GrpcBackend { address, calls, _is_wanted: is_wanted }
    }

    fn calls(&self) -> Vec<(String, Value)> {
        self.calls.lock().expect("no thread panics with it").clone()
    }
}

/// Reads the one message of a call, and answers it with another one and the status 0.
async fn answer(
    request: Request<Incoming>,
    calls: Calls,
    decide: Arc<Decide>,
) -> Result<Response<StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>>>>, Infallible> {
    let (service, name) = request.uri().path()[1..].split_once('/').expect("a service and a method");
    let service = POOL.get_service_by_name(service).expect("a service of the files");
    let method = service.methods().find(|method| method.name() == name).expect("a method of the service");
    let body = request.into_body().collect().await.expect("a body").to_bytes();
    // Before a message come one byte for whether it is compressed, and its length.
    assert_eq!((body[0], &body[1..5]), (0, &((body.len() - 5) as u32).to_be_bytes()[..]));
    let asked = decode(&method.input(), &body[5..]);
    let told = encode(&method.output(), &decide(method.name(), &asked));
    calls.lock().expect("no thread panics with it").push((method.name().to_owned(), asked));
    let message = [&[0][..], &(told.len() as u32).to_be_bytes(), &told].concat();
    let trailers = HeaderMap::from_iter([("grpc-status".parse().expect("a name"), HeaderValue::from_static("0"))]);
    let frames = [Frame::data(Bytes::from(message)), Frame::trailers(trailers)].map(Ok);
    let mut response = Response::new(StreamBody::new(stream::iter(frames)));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// An hour in seconds.
const HOUR_S: u64 = 3_600;

#[test]
fn a_backend_prolongs_a_subscription_and_ends_it() {
    let refreshes = Mutex::new(0);
    let backend = GrpcBackend::start(move |method, _| match method {
        "Subscribe" => json!({"result": {"expire_at": now_s() + HOUR_S}}),
        _ => {
            let mut refreshes = refreshes.lock().expect("no thread panics with it");
            *refreshes += 1;
            let is_first = *refreshes == 1;
            json!({"result": {"expired": !is_first, "expire_at": if is_first { now_s() + 100 * HOUR_S } else { 0 }}})
        }
    });
    let server = TestServer::timed(|settings| {
        // The test lets many hours pass at once, and answers no ping.
        settings.client.ping_interval = Duration::from_secs(1_000 * HOUR_S);
        let channel = &mut settings.channel.proxy;
        for proxy in [&mut channel.subscribe, &mut channel.sub_refresh] {
            proxy.endpoint = format!("grpc://{}", backend.address);
            proxy.timeout = Duration::from_secs(5);
        }
        let options = ChannelOptions {
            subscribe_proxy_enabled: true,
            sub_refresh_proxy_enabled: true,
            ..ChannelOptions::default()
        };
        settings.channel.namespaces.push(Namespace { name: "chat".into(), options });
    });
    let mut client = server.connected();
    let reply = client.ask(json!({"id": 2, "subscribe": {"channel": "chat:a"}}));
    assert!(reply["subscribe"].is_object(), "{reply}");
    server.clock().advance(Duration::from_secs(HOUR_S));
    until_eq(1, || server.metric("touchline_hook_calls_total{hook=\"sub_refresh\",outcome=\"answered\"}"));
    // Its reply comes from the shard, which has the answer of the backend by then.
    client.ask(json!({"id": 3, "subscribe": {"channel": "other"}}));
    server.clock().advance(Duration::from_secs(100 * HOUR_S));
    until_eq(3, || backend.calls().len());
    // The client gets only the end: the server prolongs the subscription with the backend alone.
    let ended = client.message();
    let told = (&ended["push"]["channel"], &ended["push"]["unsubscribe"]["code"]);
    assert_eq!(told, (&json!("chat:a"), &json!(2501)), "{ended}");
    let calls = backend.calls();
    let methods: Vec<&str> = calls.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["Subscribe", "SubRefresh", "SubRefresh"]);
    for (method, asked) in &calls {
        let told = (&asked["channel"], &asked["transport"]);
        assert_eq!(told, (&json!("chat:a"), &json!("websocket")), "{method} {asked}");
        assert_eq!(asked["client"].as_str().map(str::len), Some(36), "{method} {asked}");
    }
}
