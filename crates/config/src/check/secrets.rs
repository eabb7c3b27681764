//! Checks that a server has the secrets that it needs before it accepts clients. The default is to deny.

use crate::finding::Finding;
use crate::settings::Settings;

const HOW: &str = "`touchline genconfig --output touchline.toml` makes a configuration with fresh secrets; \
                   `touchline serve --dev` needs none";

/// Refuses settings that would refuse every client, and warns if every call of the server API would be refused.
pub(crate) fn check(settings: &Settings, findings: &mut Vec<Finding>) {
    let client = &settings.client;
    let verifies_tokens = client.token.has_keys();
    let asks_backend = client.proxy.connect.enabled;
    if !verifies_tokens && !asks_backend && !client.insecure && !client.allow_anonymous_connect_without_token {
        let text = format!(
            "client.token.hmac_secret_key: missing, so no client could connect. \
             Set it (or a public key, client.token.jwks_public_endpoint, client.token.jwks), ask a backend \
             (client.proxy.connect), or accept anonymous clients with \
             client.allow_anonymous_connect_without_token = true. {HOW}"
        );
        findings.push(Finding::error(text, None));
    }
    let api = &settings.http_api;
    let has_callers = !api.key.is_empty() || !api.keys.is_empty() || api.jwks.enabled || api.insecure;
    if !has_callers && !api.disabled {
        let text = "http_api.key: missing, so every call of the server API is refused. \
                    Set it, or disable the API with http_api.disabled = true";
        findings.push(Finding::warning(text, None));
    }
    if settings.grpc_api.enabled && settings.grpc_api.key.is_empty() && !has_callers {
        let text = "grpc_api.key: missing, as are the keys of http_api, so every call over gRPC is refused. Set it";
        findings.push(Finding::warning(text, None));
    }
}
