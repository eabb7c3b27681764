//! The operations of the server API. Each is defined once, in a file of its own; `POST /api/<operation>`, `batch` and the old `POST /api`
//! are ways to reach it. Shapes and errors are Centrifugo's, so its server libraries work.

mod batch;
mod channel_directory;
mod channels;
mod connections;
mod history;
mod info;
mod presence;
mod publish;
mod registry;
mod stats;
mod together;

use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use touchline_engine::directory::METHODS;
use touchline_protocol::Error;
use touchline_protocol::data::is_plain_text;
use touchline_protocol::encode::Object;

use crate::node::Node;

/// Publishes, or operations of a batch, between two pauses.
const IN_A_ROW: usize = 16;

/// The JSON of a result.
type Json = Vec<u8>;
/// What an operation comes to. Malformed parameters are the outer error, a refusal the inner one.
type Outcome = Result<Result<Json, Error>, serde_json::Error>;

/// How errors are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorMode {
    /// In the body, with status 200.
    Inside,
    /// By the status too.
    Transport,
}

/// A reply of the server API.
pub(crate) struct Reply {
    pub(crate) body: Vec<u8>,
    pub(crate) error: Option<Error>,
}

impl Reply {
    /// The HTTP status that goes with it.
    pub(crate) fn status(&self, mode: ErrorMode) -> StatusCode {
        match (&self.error, mode) {
            (Some(Error::TOO_MANY_REQUESTS | Error::TOO_MANY_CALLS), _) => StatusCode::SERVICE_UNAVAILABLE,
            (None, _) | (_, ErrorMode::Inside) => StatusCode::OK,
            (Some(error), ErrorMode::Transport) => match error.code {
                102 | 104 | 4002 | 4003 | 4012 => StatusCode::NOT_FOUND,
                107 | 108 => StatusCode::BAD_REQUEST,
                112 => StatusCode::RANGE_NOT_SATISFIABLE,
                113 | 4001 | 4004 | 4011 => StatusCode::CONFLICT,
                4005 => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }
}

/// Serves `POST /api/<method>`; an empty method is the old form, which names it in the body.
///
/// # Errors
/// When the body is not JSON of the operation's shape.
pub(crate) async fn serve(node: &Node, method: &str, body: &[u8]) -> Result<Reply, serde_json::Error> {
    let outcome = match method {
        "" => {
            let call: OldCall<'_> = serde_json::from_slice(body)?;
            run(node, call.method, call.params.map_or("{}", RawValue::get).as_bytes()).await?
        }
        "batch" => batch::run_all(node, &parse(body)?).await?,
        _ => run(node, method, body).await?,
    };
    let mut reply = Vec::new();
    let error = outcome.as_ref().err().copied();
    write_outcome(&mut reply, &outcome);
    Ok(Reply { body: reply, error })
}

#[derive(Deserialize)]
struct OldCall<'a> {
    method: &'a str,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// Bytes around the parameters of an operation that nodes ask each other for.
const ORDER_AROUND: usize = 64;

/// An operation, as nodes ask each other for it.
pub(crate) fn order(method: &str, params: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.len() + 40);
    let mut object = Object::open(&mut out);
    object.text("method", method);
    let params = params.trim_ascii();
    object.raw("params", (!params.is_empty()).then_some(params));
    object.close();
    out
}

/// Does what another node asks for, and answers if it wants that.
pub(crate) fn obey(node: &Arc<Node>, message: Bytes, reply: Option<Box<dyn FnOnce(Vec<u8>) + Send>>) {
    let node = Arc::clone(node);
    tokio::task::spawn_local(async move {
        let Ok(call) = serde_json::from_slice::<OldCall<'_>>(&message) else { return };
        let params = call.params.map_or("{}", RawValue::get).as_bytes();
        let Ok(outcome) = run_here(&node, call.method, params).await else { return };
        if let Some(reply) = reply {
            let mut out = Vec::new();
            write_outcome(&mut out, &outcome);
            reply(out);
        }
    });
}

/// Runs one operation by its name, on all nodes that it concerns.
async fn run(node: &Node, method: &str, params: &[u8]) -> Outcome {
    let is_for_all = matches!(method, "subscribe" | "unsubscribe" | "disconnect" | "refresh");
    // Nothing is done here that the other nodes could not be asked for.
    if (is_for_all || registry::is_for_client(method)) && node.is_too_large(params.len() + ORDER_AROUND) {
        return Ok(Err(Error::BAD_REQUEST));
    }
    let outcome = run_here(node, method, params).await?;
    let Some(cluster) = &node.cluster else { return Ok(outcome) };
    Ok(match (method, outcome) {
        (_, Ok(result)) if is_for_all => {
            cluster.order(order(method, params));
            Ok(result)
        }
        ("channels" | "info", Ok(own)) => together::merge(method, own, &node.gather(method, params, |_| false).await.0),
        (method, Err(Error::NOT_REGISTERED)) if registry::is_for_client(method) => {
            let (answers, asked) = node.gather(method, params, together::is_of_client).await;
            together::first(&answers, asked)
        }
        (_, outcome) => outcome,
    })
}

/// Runs one operation by its name, on this node.
async fn run_here(node: &Node, method: &str, params: &[u8]) -> Outcome {
    Ok(match method {
        "publish" => publish::publish(node, parse(params)?).await,
        "broadcast" => publish::broadcast(node, parse(params)?).await,
        "subscribe" => connections::subscribe(node, parse(params)?).await,
        "unsubscribe" => connections::unsubscribe(node, parse(params)?).await,
        "disconnect" => connections::disconnect(node, parse(params)?).await,
        "refresh" => connections::refresh(node, parse(params)?).await,
        "presence" => presence::presence(node, parse(params)?).await,
        "presence_stats" => presence::presence_stats(node, parse(params)?).await,
        "history" => history::history(node, parse(params)?).await,
        "history_remove" => history::history_remove(node, parse(params)?).await,
        "channel_set" => channel_directory::set(node, parse(params)?).await,
        "channel_get" => channel_directory::get(node, parse(params)?).await,
        "channel_remove" => channel_directory::remove(node, parse(params)?).await,
        "channels_search" => channel_directory::search(node, parse(params)?).await,
        "channels_similar" => channel_directory::similar(node, parse(params)?).await,
        "stats_audience" => stats::audience(node, parse(params)?).await,
        "stats_top" => stats::top(node, parse(params)?).await,
        "stats_events" => stats::events(node, parse(params)?).await,
        "channels" => channels::channels(node, parse(params)?).await,
        "info" => info::info(node).await,
        method if METHODS.contains(&method) => registry::run(node, method, params).await,
        _ => Err(Error::METHOD_NOT_FOUND),
    })
}

/// Of many things that are done in a row, each perhaps without waiting for anybody: the thread's others have their turn now and then.
async fn let_others(index: usize) {
    if index % IN_A_ROW == IN_A_ROW - 1 {
        tokio::task::yield_now().await;
    }
}

/// An empty body is an empty object.
fn parse<'a, T: Deserialize<'a>>(params: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(if params.trim_ascii().is_empty() { b"{}" } else { params })
}

/// `{"result":…}` or `{"error":…}`.
fn write_outcome(out: &mut Vec<u8>, outcome: &Result<Json, Error>) {
    let mut object = Object::open(out);
    match outcome {
        Ok(result) => object.key("result").extend_from_slice(result),
        Err(error) => write_error(object.key("error"), error),
    }
    object.close();
}

fn write_error(out: &mut Vec<u8>, error: &Error) {
    let mut object = Object::open(out);
    object.number("code", error.code.into()).text("message", error.message);
    object.close();
}

/// Refuses texts with control characters: a database can't keep NUL, and they may end in one.
///
/// # Errors
/// 107 when there is one.
fn plain<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<(), Error> {
    let are_plain = texts.into_iter().all(|text| is_plain_text(text.as_ref()));
    if are_plain { Ok(()) } else { Err(Error::BAD_REQUEST) }
}

/// An empty result.
fn done() -> Json {
    b"{}".to_vec()
}

/// `null` is absence.
fn nullable<'de, D: serde::Deserializer<'de>, T: Default + DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// JSON given as a value, or as base64 of its text.
///
/// # Errors
/// 107 when it is neither, or nests too deep.
fn payload(value: Option<&RawValue>, base64: &str) -> Result<Option<bytes::Bytes>, Error> {
    if let Some(value) = value {
        return touchline_protocol::data::take(value).map(Some);
    }
    if base64.is_empty() {
        return Ok(None);
    }
    let decoded = touchline_engine::claims::decode_base64(base64).ok_or(Error::BAD_REQUEST)?;
    let value: &RawValue = serde_json::from_slice(&decoded).map_err(|_| Error::BAD_REQUEST)?;
    touchline_protocol::data::take(value).map(Some)
}
