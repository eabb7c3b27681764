//! One question over HTTP: its header fields and JSON, and the meaning of its answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use touchline_engine::caps::CapsCache;
use touchline_engine::directory::client_text;
use touchline_engine::hook::{
    ConflictClaim, HookError, HookKind, HookOutcome, HookRequest, TransformOutcome, parse_answer,
};
use touchline_protocol::Disconnect;
use touchline_protocol::encode::{ObjectWriter, list, text};
use touchline_protocol::notation::bytes_of;

use super::endpoint::{Endpoint, HttpBackend};
use crate::runtime::hook_mailbox::HookJob;
use crate::traces::Span;

/// The outcome of a question.
pub(super) struct Asked {
    pub(super) outcome: HookOutcome,
    /// Why the answer cannot be used or is missing, for the log.
    pub(super) fault: Option<String>,
    /// Whether the outcome counts against the backend: the backend was unreachable or has failed.
    pub(super) is_outage: bool,
}

impl Asked {
    /// Reads an answer to a hook of this kind.
    pub(super) fn read(kind: HookKind, json: &[u8], caps: &CapsCache) -> Self {
        match parse_answer(kind, json, caps) {
            Ok(outcome) => Asked { outcome, fault: None, is_outage: false },
            Err(fault) => Asked::failed(fault.to_string(), false),
        }
    }

    pub(super) fn failed(fault: String, is_outage: bool) -> Self {
        Asked { outcome: HookOutcome::Failed, fault: Some(fault), is_outage }
    }
}

/// Asks a backend over HTTP. The caller sets the time limit and the span.
pub(super) async fn ask(
    endpoint: &Endpoint,
    backend: &HttpBackend,
    (job, span): (&HookJob, &Span),
    caps: &CapsCache,
    answer_max: usize,
) -> Asked {
    let mut request = Request::new(Full::new(Bytes::from(body(endpoint, job))));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = backend.uri.clone();
    let mut headers = headers(endpoint, &backend.static_headers, job);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    span.hand_to(&mut headers);
    *request.headers_mut() = headers;
    let answer = match backend.client.send(request, answer_max).await {
        Ok(answer) => answer,
        Err(error) => return Asked::failed(error.to_string(), !error.is_of_answer()),
    };
    if answer.status != StatusCode::OK {
        return refused(backend, answer.status);
    }
    Asked::read(job.call.request.kind(), &answer.body, caps)
}

/// Returns the outcome of a status other than 200.
fn refused(backend: &HttpBackend, status: StatusCode) -> Asked {
    let transforms = &backend.transforms.0;
    let Some(transform) = transforms.iter().find(|transform| transform.status_code == status.as_u16()) else {
        return Asked::failed(status_fault(status), status.is_server_error());
    };
    let outcome = match &transform.outcome {
        TransformOutcome::Error { code, message, temporary } => {
            HookOutcome::Error(HookError { code: *code, message: message.as_str().into(), temporary: *temporary })
        }
        TransformOutcome::Disconnect { code, reason } => {
            HookOutcome::Disconnect(Disconnect { code: *code, reason: reason.clone().into() })
        }
    };
    let outcome = HookOutcome::Refused(Box::new(outcome));
    Asked { outcome, fault: None, is_outage: status.is_server_error() }
}

/// Says which status an answer has, and how a backend refuses.
fn status_fault(status: StatusCode) -> String {
    let remedy = match status.is_client_error() {
        true => ": to refuse, answer 200 with \"error\" or \"disconnect\", or set status_to_code_transforms",
        false => "",
    };
    format!("the status of the answer is {}{remedy}", status.as_u16())
}

#[test]
fn a_backend_that_answers_403_is_told_how_to_refuse() {
    assert!(status_fault(StatusCode::FORBIDDEN).contains("is 403: to refuse, answer 200 with"));
    assert_eq!(status_fault(StatusCode::BAD_GATEWAY), "the status of the answer is 502");
}

/// Returns the header fields of a question. Those of the configuration (`always`) cannot be replaced by a client. Those
/// of the client's own request replace those that the client states.
pub(super) fn headers(endpoint: &Endpoint, always: &HeaderMap, job: &HookJob) -> HeaderMap {
    let mut headers = always.clone();
    for (name, value) in emulated(endpoint, job) {
        headers.insert(name, value);
    }
    for (name, _) in forwarded(endpoint, job) {
        headers.remove(name);
    }
    for (name, value) in forwarded(endpoint, job) {
        headers.append(name, value.clone());
    }
    headers
}

/// Returns the header fields of the client's request that this backend receives.
pub(super) fn forwarded<'j>(
    endpoint: &'j Endpoint,
    job: &'j HookJob,
) -> impl Iterator<Item = (&'j HeaderName, &'j HeaderValue)> {
    let all = job.forwarded.iter().flat_map(|headers| headers.iter());
    all.filter(|(name, _)| endpoint.http_headers.contains(name)).map(|(name, value)| (name, value))
}

/// Returns the header fields that the client states and this backend receives.
pub(super) fn emulated<'j>(
    endpoint: &'j Endpoint,
    job: &'j HookJob,
) -> impl Iterator<Item = (&'j HeaderName, HeaderValue)> {
    let all = job.call.emulated_headers.iter().flat_map(|headers| headers.iter());
    all.filter_map(|(name, value)| {
        let field = endpoint.emulated_headers.iter().find(|field| *field.as_str() == **name)?;
        Some((field, HeaderValue::from_str(value).ok()?))
    })
}

/// Writes the JSON of a question about a name. The user of a client is left out if no node has reported it.
fn conflict_body(out: &mut Vec<u8>, scope: &str, name: &str, claims: &[ConflictClaim]) {
    let mut object = ObjectWriter::open(out);
    text(object.key("scope"), scope);
    text(object.key("name"), name);
    list(object.key("claims"), claims, |out, claim| {
        let mut object = ObjectWriter::open(out);
        object.text("client", &claim.client);
        if let Some(user) = &claim.user {
            text(object.key("user"), user);
        }
        object.text("node", &claim.node);
        object.raw("meta", Some(&claim.meta[..]).filter(|meta| !meta.is_empty()));
        object.number("time", claim.time_ms);
        object.close();
    });
    object.close();
}

/// Writes the JSON of a question. Empty fields other than `user` are left out.
fn body(endpoint: &Endpoint, job: &HookJob) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let call = &job.call;
    if let HookRequest::Conflict { scope, name, claims } = &call.request {
        conflict_body(&mut out, scope, name, claims);
        return out;
    }
    let mut object = ObjectWriter::open(&mut out);
    object.text("client", &client_text(job.client)).text("transport", job.transport);
    object.text("protocol", job.protocol).text("encoding", if endpoint.is_binary { "binary" } else { "json" });
    let is_connect = matches!(call.request, HookRequest::Connect { .. });
    if !is_connect {
        text(object.key("user"), &call.user);
    }
    if let Some(channel) = call.request.channel() {
        object.text("channel", channel);
    }
    if let HookRequest::Rpc { method, .. } = &call.request {
        object.text("method", method);
    }
    match call.request.data() {
        Some(data) if endpoint.is_binary => {
            object.text("b64data", &STANDARD.encode(bytes_of(data)));
        }
        data => {
            object.raw("data", data.map(|data| &data[..]));
        }
    }
    if let HookRequest::Connect { name, version, channels, .. } = &call.request {
        object.text("name", name).text("version", version);
        if !channels.is_empty() {
            list(object.key("channels"), channels.iter(), |out, channel| text(out, channel));
        }
    }
    if endpoint.includes_meta && !is_connect {
        object.raw("meta", call.meta.as_deref());
    }
    object.raw("labels", call.labels.as_deref());
    object.close();
    out
}
