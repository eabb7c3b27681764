//! Settings of OpenTelemetry traces.

use touchline_engine::settings;

settings! {
    /// OpenTelemetry traces, sent to a collector by OTLP over HTTP.
    pub struct OpenTelemetrySettings {
        /// The node records spans and sends them to a collector. The environment sets the collector, the name of the
        /// service and the sampler: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and
        /// others. The program must be built with the feature `otel`.
        key enabled: bool = false;
        /// Record a span for each call of the server API.
        key api: bool = true;
        /// Record a span for each command of a consumer.
        key consuming: bool = true;
        /// Record a span for each hook call to a backend.
        own hooks: bool = true;
        /// Record a span for each batch of events that is sent to an endpoint.
        own events: bool = true;
        /// A publication by the server API or by a consumer gets the tag `traceparent`, so that subscribers can
        /// continue the same trace.
        own publications: bool = true;
    }
}
