//! Traces.

use touchline_engine::settings;

settings! {
    /// Traces, sent to a collector by OTLP over HTTP.
    pub struct OpenTelemetrySettings {
        /// The node makes spans and sends them. The collector, the name of the service and the sampler are those of the
        /// environment: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and others. Only in a
        /// program with the feature `otel`.
        key enabled: bool = false;
        /// A span for each call of the server API.
        key api: bool = true;
        /// A span for each command of a consumer.
        key consuming: bool = true;
        /// A span for each question to a backend.
        own hooks: bool = true;
        /// A span for each batch of events that is sent to an endpoint.
        own events: bool = true;
        /// A publication by the server API or by a consumer has the tag `traceparent`, which makes what its subscribers
        /// do a part of the same trace.
        own publications: bool = true;
    }
}
