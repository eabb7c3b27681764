//! Checks the paths of requests: each begins with "/" and is served by one section only.

use crate::finding::Finding;
use crate::settings::Settings;

/// A path that the node serves.
struct Served<'a> {
    /// The section that serves the path.
    section: &'static str,
    path: &'a str,
    /// Whether the path is served on the internal port.
    is_internal: bool,
}

/// Refuses a text that is not a path, and warns if two sections use the same path.
pub(super) fn check(settings: &Settings, findings: &mut Vec<Finding>) {
    let s = settings;
    let all = [
        ("websocket", !s.websocket.disabled, &s.websocket.handler_prefix, false),
        ("http_stream", s.http_stream.enabled, &s.http_stream.handler_prefix, false),
        ("sse", s.sse.enabled, &s.sse.handler_prefix, false),
        ("emulation", s.http_stream.enabled || s.sse.enabled, &s.emulation.handler_prefix, false),
        ("uni_websocket", s.uni_websocket.enabled, &s.uni_websocket.handler_prefix, false),
        ("uni_http_stream", s.uni_http_stream.enabled, &s.uni_http_stream.handler_prefix, false),
        ("uni_sse", s.uni_sse.enabled, &s.uni_sse.handler_prefix, false),
        ("admin", s.admin.enabled, &s.admin.handler_prefix, true),
        ("health", s.health.enabled, &s.health.handler_prefix, true),
        ("prometheus", s.prometheus.enabled, &s.prometheus.handler_prefix, true),
    ];
    let has_internal = s.http_server.internal().is_some();
    let mut served: Vec<Served<'_>> = Vec::new();
    for (section, is_on, path, is_internal) in all {
        if !path.starts_with('/') {
            findings.push(Finding::error(
                format!("{section}.handler_prefix: a path begins with \"/\", found {path:?}"),
                None,
            ));
        }
        if !is_on {
            continue;
        }
        let is_internal = is_internal && has_internal;
        let other = served.iter().find(|other| other.path == path && other.is_internal == is_internal);
        let has_api = !s.http_api.disabled && is_internal == (has_internal && !s.http_api.external);
        if let Some(other) = other {
            let text = format!(
                "{section}.handler_prefix: {} is also served at {path:?}: one of them is never reached",
                other.section
            );
            findings.push(Finding::warning(text, None));
        } else if has_api && (path == "/api" || path.starts_with("/api/")) {
            let text = format!(
                "{section}.handler_prefix: the server API is also served below \"/api\": one of them is never reached"
            );
            findings.push(Finding::warning(text, None));
        }
        served.push(Served { section, path, is_internal });
    }
}
