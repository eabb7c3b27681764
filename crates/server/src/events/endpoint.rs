//! The endpoints of events: their settings, checked and ready for use.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Uri};
use touchline_config::{EventsSettings, NamedEvents, Settings, event_faults};
use touchline_engine::duration::millis;
use touchline_engine::events::{EndpointReply, EventKind, EventKinds};
use touchline_engine::ledger::{EndpointWish, WishDescription};

use super::signature::BatchSigner;
use crate::outbound::{HttpClient, discard, shown_address};
use crate::runtime::clock::NodeClock;
use crate::runtime::event_mailbox::EventWants;
use crate::start_error::StartError;
use crate::traces::Span;

/// The most bytes of an answer that are read, so that its connection can be used again.
const ANSWER_READ_MAX: usize = 65_536;
/// How long that may take.
const ANSWER_READ_TIME: Duration = Duration::from_secs(1);
/// The media type of a batch (CloudEvents, JSON batch format).
const BATCH_TYPE: HeaderValue = HeaderValue::from_static("application/cloudevents-batch+json; charset=utf-8");

/// A backend that receives events.
pub(crate) struct EventEndpoint {
    pub(super) name: String,
    pub(super) kinds: EventKinds,
    /// The namespaces of the channels whose events the endpoint receives; None = all namespaces.
    namespaces: Option<Vec<Box<str>>>,
    pub(super) options: EventsSettings,
    pub(super) target: EventTarget,
}

/// How events are sent to a backend.
pub(crate) enum EventTarget {
    Http(Box<HttpTarget>),
    /// As messages of NATS. The text is the subject.
    Nats(Box<str>),
}

/// A backend that receives events over HTTP.
pub(crate) struct HttpTarget {
    client: HttpClient,
    uri: Uri,
    headers: HeaderMap,
    signer: Option<BatchSigner>,
    timeout: Duration,
}

/// A batch as it is sent.
pub(super) struct SentBatch {
    /// The id of the batch. All tries have the same id and the same body.
    pub(super) id: String,
    pub(super) body: Bytes,
}

impl EventEndpoint {
    /// Connects once to an endpoint over HTTP. `None` = the endpoint receives messages of NATS. Returns its name, its
    /// address and the outcome.
    pub(crate) async fn try_connection(&self) -> Option<(&str, String, Result<String, String>)> {
        match &self.target {
            EventTarget::Http(target) => {
                Some((&self.name, shown_address(&target.uri), target.client.try_connection(&target.uri).await))
            }
            EventTarget::Nats(_) => None,
        }
    }
}

/// Makes the endpoints of the settings.
///
/// # Errors
/// When one of them cannot be used.
pub(crate) fn endpoints(settings: &Settings) -> Result<Vec<EventEndpoint>, StartError> {
    if let Some(fault) = event_faults(settings).into_iter().next() {
        return Err(StartError::Events(fault));
    }
    settings.events.iter().map(EventEndpoint::new).collect()
}

/// Returns the events that at least one endpoint asks for. `is_shared`: other nodes share the primary database, and may
/// ask first for events of one of their durable endpoints.
pub(crate) fn wants(endpoints: &[EventEndpoint], is_shared: bool) -> EventWants {
    let kinds = endpoints.iter().fold(EventKinds::default(), |all, endpoint| all.union(endpoint.kinds));
    let of_channels = |endpoint: &&EventEndpoint| CHANNEL_KINDS.iter().any(|kind| endpoint.kinds.has(*kind));
    let needs_ends = |endpoint: &EventEndpoint| endpoint.options.durable && endpoint.kinds.has(EventKind::Disconnected);
    // The node must have recorded the beginning of a client to report its end for certain.
    let kinds = if endpoints.iter().any(needs_ends) { kinds.with(EventKind::Connected) } else { kinds };
    let mut namespaces = Some(Vec::new());
    for endpoint in endpoints.iter().filter(of_channels) {
        match (&mut namespaces, &endpoint.namespaces) {
            (Some(all), Some(more)) => all.extend(more.iter().cloned()),
            _ => namespaces = None,
        }
    }
    if is_shared && endpoints.iter().any(|endpoint| endpoint.options.durable) {
        let all = EventKind::CONFIGURED.into_iter().collect();
        return EventWants {
            kinds: all,
            told: LEDGER_KINDS.into_iter().fold(kinds, EventKinds::with),
            namespaces: None,
        };
    }
    EventWants { kinds, told: kinds, namespaces }
}

/// What a node that shares a ledger always keeps of itself: its clients, and what they hold. It can then report this
/// when another node asks for it.
const LEDGER_KINDS: [EventKind; 6] = [
    EventKind::Connected,
    EventKind::Disconnected,
    EventKind::Occupied,
    EventKind::Vacated,
    EventKind::UserOnline,
    EventKind::UserOffline,
];

/// The kinds of events that an endpoint may receive for some namespaces only.
const CHANNEL_KINDS: [EventKind; 4] =
    [EventKind::Subscribed, EventKind::Unsubscribed, EventKind::Occupied, EventKind::Vacated];

impl EventEndpoint {
    fn new(named: &NamedEvents) -> Result<Self, StartError> {
        let NamedEvents { name, options } = named;
        let target = match options.nats_subject() {
            Some(subject) => EventTarget::Nats(subject.into()),
            None => EventTarget::Http(Box::new(HttpTarget::new(name, options)?)),
        };
        let namespaces = &options.namespaces;
        Ok(EventEndpoint {
            name: name.clone(),
            kinds: options.types.iter().filter_map(|word| EventKind::from_word(word)).collect(),
            namespaces: (!namespaces.is_empty()).then(|| namespaces.iter().map(|name| name.as_str().into()).collect()),
            options: options.clone(),
            target,
        })
    }

    /// Returns what nodes report to each other about the endpoint.
    pub(super) fn wish(&self) -> EndpointWish {
        let namespaces = &self.options.namespaces;
        let description = WishDescription {
            types: self.options.types.iter().cloned().collect(),
            namespaces: (!namespaces.is_empty()).then(|| namespaces.iter().cloned().collect()),
            lanes: self.options.lanes.max(1) as u32,
            delay_ms: millis(self.options.delay),
        };
        EndpointWish { name: self.name.clone(), description }
    }

    /// Whether the endpoint receives this event. `namespace`: the namespace of its channel; None = the event is not
    /// about a channel.
    pub(super) fn is_told(&self, kind: EventKind, namespace: Option<&str>) -> bool {
        let is_of = |name: &str| self.namespaces.as_ref().is_none_or(|all| all.iter().any(|known| **known == *name));
        kind == EventKind::StateReset || self.kinds.has(kind) && namespace.is_none_or(is_of)
    }

    /// Whether the endpoint receives an event that another endpoint does not.
    pub(super) fn asks_for_more_than(&self, other: &EventEndpoint) -> bool {
        let has_more_namespaces = match (&self.namespaces, &other.namespaces) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(all), Some(others)) => all.iter().any(|name| !others.contains(name)),
        };
        has_more_namespaces || self.kinds.union(other.kinds) != other.kinds
    }

    /// Returns the address, for logs.
    pub(super) fn shown_address(&self) -> String {
        match &self.target {
            EventTarget::Http(http) => shown_address(&http.uri),
            EventTarget::Nats(subject) => format!("nats:{subject}"),
        }
    }

    /// Returns how old an event may become, in milliseconds.
    pub(super) fn max_age_ms(&self) -> u64 {
        millis(self.options.max_age)
    }
}

impl HttpTarget {
    fn new(name: &str, options: &EventsSettings) -> Result<Self, StartError> {
        let fault = |text: &str| StartError::Events(format!("events[{name}].{text}"));
        let uri: Uri = options.endpoint.parse().map_err(|_| fault("endpoint: not an http:// or https:// address"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers.0 {
            let field = HeaderName::from_bytes(name.as_bytes());
            let (Ok(field), Ok(mut value)) = (field, HeaderValue::from_str(value)) else {
                return Err(fault(&format!("headers: {name:?} is not a header field, or its value is not valid")));
            };
            // The values are usually secrets.
            value.set_sensitive(true);
            headers.insert(field, value);
        }
        let client = HttpClient::new(&format!("events[{name}].tls"), &options.tls, options.timeout)?;
        let (signer, timeout) = (BatchSigner::new(options), options.timeout);
        Ok(HttpTarget { client, uri, headers, signer, timeout })
    }

    /// Sends a batch. Returns the answer, and what is wrong with it for the log.
    pub(super) async fn send(
        &self,
        batch: &SentBatch,
        span: &Span,
        clock: &NodeClock,
    ) -> (EndpointReply, Option<String>) {
        let now_ms = clock.now_ms();
        let Some(mut request) = self.request(batch, now_ms) else {
            return (EndpointReply::Nothing, Some("the request cannot be written".to_owned()));
        };
        span.hand_to(request.headers_mut());
        let answer = match clock.time().timeout(self.timeout, self.client.begin(request)).await {
            Err(_) => return (EndpointReply::Nothing, Some(format!("no answer within {:?}", self.timeout))),
            Ok(Err(error)) => return (EndpointReply::Nothing, Some(error.to_string())),
            Ok(Ok(answer)) => answer,
        };
        let (head, body) = answer.into_parts();
        let status = head.status.as_u16();
        // The body is not needed. Reading it lets the connection be used again; a slow body only costs the connection.
        let _ = clock.time().timeout(ANSWER_READ_TIME, discard(body, ANSWER_READ_MAX)).await;
        let fault = (!head.status.is_success()).then(|| format!("the status of the answer is {status}"));
        (EndpointReply::Status { status, retry_after_ms: retry_after_ms(&head.headers, now_ms) }, fault)
    }

    fn request(&self, batch: &SentBatch, now_ms: u64) -> Option<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::new(batch.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, BATCH_TYPE);
        let timestamp_s = now_ms / 1_000;
        headers.insert("webhook-id", HeaderValue::from_str(&batch.id).ok()?);
        headers.insert("webhook-timestamp", timestamp_s.into());
        if let Some(signer) = &self.signer {
            let signature = signer.sign(&batch.id, timestamp_s, &batch.body);
            headers.insert("webhook-signature", HeaderValue::from_str(&signature).ok()?);
        }
        *request.headers_mut() = headers;
        Some(request)
    }
}

/// Returns how long an answer asks to wait, in milliseconds: a number of seconds, or a date (RFC 9110 section 10.2.3).
fn retry_after_ms(headers: &HeaderMap, now_ms: u64) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is treated as the largest one. The caller limits the waiting time.
        return Some(text.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1_000));
    }
    let until = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(millis(until).saturating_sub(now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_long_to_wait_by_seconds_or_by_a_date() {
        let of = |text: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after_ms(&headers, 784_111_770_000)
        };
        assert_eq!(of("120"), Some(120_000));
        assert_eq!(of(" 0 "), Some(0));
        assert_eq!(of("18446744073709551615"), Some(u64::MAX));
        assert_eq!(of("99999999999999999999999"), Some(u64::MAX));
        assert_eq!(of("Sun, 06 Nov 1994 08:49:37 GMT"), Some(7_000));
        assert_eq!(of("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!((of("-1"), of("+1"), of("soon"), of("")), (None, None, None, None));
        assert_eq!(retry_after_ms(&HeaderMap::new(), 0), None);
    }
}
