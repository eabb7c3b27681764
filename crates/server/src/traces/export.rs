//! The export of trace spans to a collector.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, Uri};
use opentelemetry::{KeyValue, global};
use opentelemetry_http::{HttpClient as OtlpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::sync::{mpsc, oneshot};
use touchline_config::{ClientTlsSettings, OpenTelemetrySettings};

use super::part::TracedPart;
use super::spans::trace;
use crate::outbound::{HttpClient, discard, shown_address};
use crate::runtime::process::{VERSION, host_name};
use crate::start_error::StartError;

/// How long a stop waits for the collector to take the last spans.
const LAST_EXPORT: Duration = Duration::from_secs(2);
/// The name of the service, if neither `OTEL_SERVICE_NAME` nor `OTEL_RESOURCE_ATTRIBUTES` sets it.
const SERVICE: &str = "touchline";
/// The variable with the authorities by which the collector is trusted (OpenTelemetry Protocol Exporter).
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
/// How many bytes of an answer are read; its content is not needed.
const ANSWER_MAX: usize = 64 * 1024;
/// The variables that set how long the collector may take, in milliseconds; the first that is set counts.
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
/// How long the collector may take by default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The variable of the SDK that sets how many spans may wait. The SDK would reserve the memory for more.
const QUEUE_SIZE: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
const QUEUE_SIZE_MAX: u64 = 1_000_000;
/// The variables that name the collector; the first that is set counts.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// The variable that switches the export off, whatever the configuration says.
const DISABLED: &str = "OTEL_SDK_DISABLED";
/// How long an HTTP/2 connection may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// The export of traces of a running node.
#[derive(Debug)]
pub(crate) struct TraceExport(SdkTracerProvider);

impl TraceExport {
    /// Sends the spans that were not sent yet, and ends the export. Blocks for at most [`LAST_EXPORT`].
    pub(crate) fn stop(self) {
        trace(&[], false);
        if let Err(error) = self.0.shutdown_with_timeout(LAST_EXPORT) {
            tracing::warn!(%error, "the last spans could not be sent");
        }
    }
}

/// Starts the export if it is switched on; None = it is not. The `OTEL_…` variables name the collector, the service and
/// the sampler.
///
/// # Errors
/// When a variable cannot be used, or the system refuses a thread.
pub(crate) fn start(settings: &OpenTelemetrySettings, node: &str) -> Result<Option<TraceExport>, StartError> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if !settings.enabled || variable(DISABLED).eq_ignore_ascii_case("true") {
        return Ok(None);
    }
    if variable(QUEUE_SIZE).parse::<u64>().is_ok_and(|size| size > QUEUE_SIZE_MAX) {
        return Err(StartError::Traces(format!("{QUEUE_SIZE}: at most {QUEUE_SIZE_MAX}")));
    }
    let client = Bridge::start()?;
    let exporter = SpanExporter::builder().with_http().with_http_client(client).build();
    let exporter = exporter.map_err(|error| StartError::Traces(error.to_string()))?;
    let mut resource = Resource::builder().with_attributes([
        KeyValue::new("service.version", VERSION),
        KeyValue::new("service.instance.id", node.to_owned()),
        KeyValue::new("host.name", host_name()),
    ]);
    let is_named = |variable: &str, part: &str| std::env::var(variable).is_ok_and(|text| text.contains(part));
    if !is_named("OTEL_SERVICE_NAME", "") && !is_named("OTEL_RESOURCE_ATTRIBUTES", "service.name=") {
        resource = resource.with_service_name(SERVICE);
    }
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
    global::set_tracer_provider(provider.clone());
    let OpenTelemetrySettings { api, consuming, hooks, events, publications, .. } = settings;
    let parts = [
        (api, TracedPart::Api),
        (consuming, TracedPart::Consuming),
        (hooks, TracedPart::Hooks),
        (events, TracedPart::Events),
    ];
    let on = parts.into_iter().filter(|(is_on, _)| **is_on).map(|(_, part)| part);
    let on: Vec<TracedPart> = on.collect();
    trace(&on, *publications);
    let endpoint = ENDPOINTS.iter().map(|name| variable(name)).find(|value| !value.is_empty());
    let endpoint = endpoint.unwrap_or_else(|| "http://localhost:4318".to_owned());
    let endpoint = endpoint.parse::<Uri>().map(|uri| shown_address(&uri)).unwrap_or_default();
    tracing::info!(endpoint, "spans are sent by OTLP over HTTP");
    Ok(Some(TraceExport(provider)))
}

/// A request of the exporter, and the sender for its answer.
type PendingExport = (Request<Bytes>, oneshot::Sender<Result<Response<Bytes>, HttpError>>);

/// The HTTP client that the exporter uses. The exporter's thread has no tokio runtime, so the client has its own.
struct Bridge(mpsc::UnboundedSender<PendingExport>);

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bridge")
    }
}

impl Bridge {
    fn start() -> Result<Self, StartError> {
        let authorities = std::env::var(CERTIFICATE).unwrap_or_default();
        let tls = ClientTlsSettings {
            enabled: !authorities.is_empty(),
            server_ca_pem: authorities,
            ..ClientTlsSettings::default()
        };
        let client = HttpClient::new("opentelemetry", &tls, SILENCE).map_err(StartError::Tls)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let (sender, mut exports) = mpsc::unbounded_channel::<PendingExport>();
        let set = TIMEOUTS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
        let limit = set.map_or(TIMEOUT, Duration::from_millis);
        let run = async move {
            let mut is_failing = false;
            // One request at a time, because the exporter waits for each.
            while let Some((request, answer)) = exports.recv().await {
                // real time: spans of requests are exported, and nothing waits for it.
                let sent = tokio::time::timeout(limit, send(&client, request)).await;
                let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {limit:?}").into()));
                note(&sent, &mut is_failing);
                let _ = answer.send(sent);
            }
        };
        std::thread::Builder::new().name("traces".into()).spawn(move || runtime.block_on(run)).map_err(no_thread)?;
        Ok(Bridge(sender))
    }
}

fn no_thread(source: std::io::Error) -> StartError {
    StartError::System { what: "a thread for traces", source }
}

async fn send(client: &HttpClient, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (head, body) = client.begin(request.map(Full::new)).await?.into_parts();
    discard(body, ANSWER_MAX).await;
    Ok(Response::from_parts(head, Bytes::new()))
}

/// Logs the first of several failures, and their end.
fn note(sent: &Result<Response<Bytes>, HttpError>, is_failing: &mut bool) {
    let cause = match sent {
        Ok(response) if response.status().is_success() => None,
        Ok(response) => Some(format!("the status of the answer is {}", response.status().as_u16())),
        Err(error) => Some(error.to_string()),
    };
    match cause {
        Some(ref cause) if !*is_failing => tracing::warn!(cause, "the collector takes no spans: some will be lost"),
        None if *is_failing => tracing::info!("the collector takes spans again"),
        _ => {}
    }
    *is_failing = cause.is_some();
}

#[async_trait::async_trait]
impl OtlpClient for Bridge {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (answer, answered) = oneshot::channel();
        self.0.send((request, answer)).map_err(|_| "the export has ended")?;
        answered.await.map_err(|_| "the export has ended")?
    }
}
