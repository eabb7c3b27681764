//! Checks the keys of the server API: each needs its own name, its own secret, and some permission.

use std::collections::HashSet;

use touchline_engine::{ClientSettings, TokenProvider};

use super::tokens::unproven_source;
use crate::finding::Finding;
use crate::item_path::{is_key_name, item_path};
use crate::keys::API_KEYS;
use crate::settings::{ApiJwksSettings, HttpApiSettings, Settings};

/// Minimum bytes of an API key. Shorter ones can be guessed.
const API_KEY_LEN_MIN: usize = 16;
/// Names that the metrics use for other callers.
const TAKEN: [&str; 4] = ["default", "grpc", "insecure", "jwks"];

/// Checks who may call the server API.
pub(super) fn check(settings: &Settings, findings: &mut Vec<Finding>) {
    let (api, grpc) = (&settings.http_api, &settings.grpc_api);
    if api.insecure && !api.disabled {
        let text = "http_api.insecure: any client that reaches the port can publish and disconnect";
        findings.push(Finding::warning(text, None));
    } else if !api.key.is_empty() && api.key.len() < API_KEY_LEN_MIN {
        findings.push(Finding::warning(
            format!("http_api.key: shorter than {API_KEY_LEN_MIN} bytes, so it can be guessed"),
            None,
        ));
    }
    if grpc.enabled && !grpc.key.is_empty() && grpc.key.len() < API_KEY_LEN_MIN {
        let text = format!("grpc_api.key: shorter than {API_KEY_LEN_MIN} bytes, so it can be guessed");
        findings.push(Finding::warning(text, None));
    }
    keys(api, findings);
    let jwks = &api.jwks;
    if jwks.enabled && jwks.endpoint.is_empty() {
        findings.push(Finding::error("http_api.jwks.endpoint: missing, and http_api.jwks is enabled", None));
    }
    if jwks.enabled && jwks.audience.is_empty() && jwks.scope.trim().is_empty() {
        let text = "http_api.jwks: needs audience or scope: without them every token of the issuer, also those of its \
                    users, could use the server API";
        findings.push(Finding::error(text, None));
    }
    if jwks.enabled {
        let is_plain = jwks.insecure_skip_jwks_endpoint_safety_check;
        unproven_source("http_api.jwks", "endpoint", &jwks.endpoint, is_plain, &jwks.tls, findings);
        tokens_of_clients(jwks, &settings.client, findings);
    }
}

/// Refuses settings with which every client token would also be accepted by the server API. An audience or a scope must
/// separate them.
fn tokens_of_clients(jwks: &ApiJwksSettings, client: &ClientSettings, findings: &mut Vec<Finding>) {
    let own = &client.subscription_token;
    let sections = [("client.token", &client.token, true), ("client.subscription_token", &own.token, own.enabled)];
    for (section, token, _) in sections.into_iter().filter(|(.., is_on)| *is_on) {
        let providers = token.jwks.providers.iter().filter(|provider| token.jwks.enabled && provider.options.enabled);
        let whole = (section.to_owned(), token.clone());
        let all = providers
            .map(|TokenProvider { name, options }| (format!("{section}.jwks.providers[{name}]"), options.token()));
        for (section, of_clients) in std::iter::once(whole).chain(all) {
            let is_same_issuer = jwks.issuer.is_empty()
                || of_clients.issuer_regex.is_none() && of_clients.issuer.is_empty()
                || of_clients.issuer == jwks.issuer;
            let is_same = !jwks.endpoint.is_empty()
                && of_clients.jwks_public_endpoint == jwks.endpoint
                && of_clients.audience == jwks.audience
                && of_clients.audience_regex.is_none();
            if is_same && is_same_issuer && jwks.scope.trim().is_empty() {
                let text = format!(
                    "http_api.jwks: accepts every token of {section}, so every client could use the server API; \
                     set scope, or an audience that client tokens do not have"
                );
                findings.push(Finding::error(text, None));
            }
        }
    }
}

fn keys(api: &HttpApiSettings, findings: &mut Vec<Finding>) {
    let mut names = HashSet::new();
    let mut secrets: HashSet<&str> = Some(api.key.as_str()).filter(|key| !key.is_empty()).into_iter().collect();
    for (index, named) in api.keys.iter().enumerate() {
        let (name, options) = (named.name.as_str(), &named.options);
        let path = item_path(API_KEYS, index, name);
        let mut error = |text: &str| findings.push(Finding::error(format!("{path}{text}"), None));
        if !is_key_name(name) {
            error(".name: expected two or more of letters, digits and \"_\"");
        } else if TAKEN.contains(&name) {
            error(".name: default, grpc, insecure and jwks are the names of other callers in metrics");
        }
        if !names.insert(name) {
            error(".name: used twice");
        }
        if options.key.is_empty() {
            error(".key: missing");
        } else if !secrets.insert(&options.key) {
            error(".key: another entry has the same key, so it would be unclear which one is meant");
        }
        for (key, list) in [("operations", &options.operations), ("channels", &options.channels)] {
            if list.is_empty() {
                error(&format!(".{key}: empty, so the key would permit nothing; \"*\" permits all"));
            }
        }
        if !options.key.is_empty() && options.key.len() < API_KEY_LEN_MIN {
            let text = format!("{path}.key: shorter than {API_KEY_LEN_MIN} bytes, so it can be guessed");
            findings.push(Finding::warning(text, None));
        }
    }
}
